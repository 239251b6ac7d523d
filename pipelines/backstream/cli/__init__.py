"""The command line: the same verbs as in Airflow, without it."""

from backstream.cli import engine, runs
from backstream.cli.app import app

__all__ = ["app", "engine", "runs"]
