"""HTML pages for Airflow, rendered from run files and tables; they import neither Airflow nor Spark."""
