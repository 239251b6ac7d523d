"""backstream re-runs history: bounded streams with Flink's event-time rules, checked, then published."""

__version__ = "0.1.0"
