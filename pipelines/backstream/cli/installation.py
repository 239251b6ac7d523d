"""Define the commands `config` and `doctor`, which show the settings and the parts of an installation."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

import typer

from backstream.cli.app import OutputFormat, OutputFormatOption, app, report_errors
from backstream.errors import SpecError
from backstream.runs.home import Home
from backstream.text import print_text

if TYPE_CHECKING:
    from backstream.workflow.checks.findings import Finding


@app.command("config")
def config_command(context: typer.Context, form: OutputFormatOption = OutputFormat.TABLE) -> None:
    """Print every setting with its value and its source; secrets are masked.

    An environment variable overrides the file `.env` of the project, and `.env` overrides `backstream.toml`. The
    project is the nearest folder with a `backstream.toml`, from the working directory upwards.

    Example: `backstream config`
    """
    from backstream.workflow.checks.effective_settings import effective_settings

    with report_errors():
        settings = list(effective_settings(context.obj, Home.from_environment()))
    if form is OutputFormat.JSON:
        rows = [{"key": each.key, "value": each.text, "source": each.source} for each in settings]
        print(json.dumps(rows, indent=2))
        return
    key_width = max(len(each.key) for each in settings)
    for each in settings:
        print_text(f"{each.key.ljust(key_width)}  {each.text}")
        print_text(f"{' ' * key_width}  from {each.source}")


@app.command("doctor")
def doctor_command() -> None:
    """Check the installation: Python, Java, Spark, settings, definitions, home, catalog, warehouse, and Airflow.

    Each part has one line: `ok`, `warn`, or `fail`, what was found, and what to do. Nothing is changed.
    Exit status 0: no part failed; 1: at least one part makes runs fail.

    Example: `backstream doctor`
    """
    from backstream.workflow.checks.findings import State

    has_failed = False
    for finding in _findings():
        print_text(finding, flush=True)
        has_failed |= finding.state is State.FAIL
    if has_failed:
        raise typer.Exit(1)


def _findings() -> Iterator[Finding]:
    from backstream.workflow.checks.check_installation import check_installation

    has_airflow = find_spec("airflow") is not None
    if has_airflow:
        _provide_connections()
    yield from check_installation(Home.from_environment())
    if has_airflow:
        yield from airflow_findings()


def _provide_connections() -> None:
    """Set catalog and warehouse from Airflow's connections; the check of Airflow reports errors in them."""
    from backstream.orchestration.check_airflow import provide_connections

    logging.disable(logging.WARNING)  # Airflow logs each step of a look-up
    with suppress(SpecError):
        provide_connections()


def airflow_findings() -> Iterator[Finding]:
    """Yield a finding per part of the Airflow of this environment; one if there is no Airflow."""
    if find_spec("airflow") is None:
        from backstream.workflow.checks.findings import fail

        yield fail("airflow", "not installed", "pip install 'backstream[airflow]'")
        return
    from backstream.orchestration.check_airflow import check_airflow

    logging.disable(logging.WARNING)  # Airflow logs each step of a look-up
    yield from check_airflow()
