"""The native engine: windows computed by DuckDB, inside a task of Spark that gets file names and bounds, never rows."""
