"""Jobs of Spark Structured Streaming: their logs, and Spark's event-time rules in plain Python."""
