"""Prepare raw files in native tasks, and find what Spark must prepare."""
