"""The demonstration: real flights, a real Airflow, one real backfill."""
