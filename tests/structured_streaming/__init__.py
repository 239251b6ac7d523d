"""Jobs of Spark Structured Streaming: their logs, and the rules of their windows."""
