"""The command line: what the DAGs do, without Airflow."""

from backstream.cli import (
    check,
    config,
    doctor,
    engine,
    explain,
    handover,
    history,
    init,
    inspect,
    prepare,
    preview,
    reports,
    run,
)
from backstream.cli.app import app, main

__all__ = [
    "app",
    "check",
    "config",
    "doctor",
    "engine",
    "explain",
    "handover",
    "history",
    "init",
    "inspect",
    "main",
    "prepare",
    "preview",
    "reports",
    "run",
]
