"""The functions that DAG files call. Until a task runs, none of them loads Spark, pandas or Great Expectations."""
