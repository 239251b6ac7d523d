"""The command line: what the DAGs do, without Airflow."""

from backstream.cli import engine, history, inspect, reports, run
from backstream.cli.app import app, main

__all__ = ["app", "engine", "history", "inspect", "main", "reports", "run"]
