"""Chunks run by the native engine: Spark sends out tasks and collects what they did, and never sees a record."""
