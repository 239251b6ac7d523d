"""Sessions of the native engine: tasks make units per interval of time, then sessions per share of the keys."""
