"""Translate a script of Flink SQL into the content of a definition."""
