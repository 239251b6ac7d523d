"""The command line: the same verbs as in Airflow, without it."""

from backstream.cli import days, engine, history, quality, reconcile, report, runs, stale, status
from backstream.cli.app import app, main

__all__ = ["app", "days", "engine", "history", "main", "quality", "reconcile", "report", "runs", "stale", "status"]
