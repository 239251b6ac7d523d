"""Event-time rules of Apache Flink in plain Python, standard library only."""
