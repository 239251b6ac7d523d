"""The native engine: DuckDB computes windows in Spark tasks, which receive file names and bounds but no rows."""
