"""Run the demo: real flights, a local Airflow, and one backfill."""
