"""What the pages inside Airflow show: records in, HTML out. No Airflow, no Spark."""
