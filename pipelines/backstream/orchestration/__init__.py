"""What the DAG files call. Nothing here imports Spark, pandas or Great Expectations before a task runs."""
