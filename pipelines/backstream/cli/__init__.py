"""The command line: what the DAGs do, without Airflow."""

from backstream.cli import (
    check,
    engine,
    explain,
    handover,
    history,
    init,
    inspect,
    installation,
    prepare,
    preview,
    reports,
    run,
)
from backstream.cli.app import app, main

__all__ = [
    "app",
    "check",
    "engine",
    "explain",
    "handover",
    "history",
    "init",
    "inspect",
    "installation",
    "main",
    "prepare",
    "preview",
    "reports",
    "run",
]
