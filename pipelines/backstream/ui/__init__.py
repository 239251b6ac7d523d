"""Routes inside Airflow, behind Airflow's own access checks."""
