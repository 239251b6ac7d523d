"""The native engine: DuckDB computes windows, inside tasks of Spark that get file names and bounds, never rows."""
