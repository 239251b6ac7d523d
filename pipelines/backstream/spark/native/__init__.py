"""Run chunks with the native engine: Spark distributes tasks and collects their results, and reads no record."""
