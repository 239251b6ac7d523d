"""Windows that depend on an event's time alone: tumbling, sliding, cumulating ones."""
