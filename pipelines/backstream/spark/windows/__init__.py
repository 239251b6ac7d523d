"""Compute windows that depend only on the time of an event: tumbling, sliding, and cumulating windows."""
