"""The functions that DAG files call. Before a task runs, none of them loads Spark, pandas or Great Expectations."""
