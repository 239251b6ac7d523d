"""Define the command `doctor`, which checks an installation, and prints one line per part with the remedy."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import typer

from backstream.cli.app import app
from backstream.runs.home import Home

if TYPE_CHECKING:
    from backstream.workflow.findings import Finding


@app.command("doctor")
def doctor_command() -> None:
    """Check the installation: Python, Java, Spark, settings, definitions, home, catalog, warehouse, and Airflow.

    Each part has one line: `ok`, `warn`, or `fail`, what was found, and what to do. Nothing is changed.
    Exit status 0: no part failed; 1: at least one part makes runs fail.

    Example: `backstream doctor`
    """
    from backstream.workflow.findings import State

    has_failed = False
    for finding in _findings():
        print(finding, flush=True)
        has_failed |= finding.state is State.FAIL
    if has_failed:
        raise typer.Exit(1)


def _findings() -> Iterator[Finding]:
    from backstream.workflow.check_installation import check_installation

    yield from check_installation(Home.from_environment())
    if find_spec("airflow"):
        yield from airflow_findings()


def airflow_findings() -> Iterator[Finding]:
    """Yield a finding per part of the Airflow of this environment; one if there is no Airflow."""
    if find_spec("airflow") is None:
        from backstream.workflow.findings import fail

        yield fail("airflow", "not installed", "pip install 'backstream[airflow]'")
        return
    from backstream.orchestration.check_airflow import check_airflow

    logging.disable(logging.WARNING)  # Airflow logs each step of a look-up
    yield from check_airflow()
