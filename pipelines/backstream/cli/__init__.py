"""The command line: the same verbs as in Airflow, without it."""

from backstream.cli import days, engine, history, quality, report, runs, stale, status
from backstream.cli.app import app

__all__ = ["app", "days", "engine", "history", "quality", "report", "runs", "stale", "status"]
