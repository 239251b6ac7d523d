"""Run the steps around a Spark job, for Airflow and the command line: one module per step."""
