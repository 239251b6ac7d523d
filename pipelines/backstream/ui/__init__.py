"""Routes inside Airflow, protected by Airflow's access checks."""
