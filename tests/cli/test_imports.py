"""Small commands load little: what each of them brings along is read in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.workflow.history import CLICKS, write_clicks, write_definition
from tests.workflow.publishing import publish_counts

from backstream.eventtime.instants import DAY_MS, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.lake.ledger import record_run, run_row
from backstream.runs.home import Home
from backstream.runs.status import RunStatus
from backstream.workflow.dataset_state import refresh_dataset_state
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run

CHILD = """
import json, sys
from backstream.cli import app
sys.argv = ["backstream", *sys.argv[1:]]
try:
    app()
except SystemExit as end:
    print(json.dumps([end.code, sorted({name.partition(".")[0] for name in sys.modules})]), file=sys.stderr)
"""
AT_LEAST_ONE_WINDOW = {
    "type": "expect_column_values_to_be_between",
    "description": "there is a window",
    "severity": "critical",
    "kwargs": {"column": "windows", "min_value": 1},
    "meta": {"frame": "run"},
}
HEAVY = {"great_expectations", "numpy", "pandas", "pyarrow", "pyiceberg", "pyspark", "sqlalchemy", "sqlglot"}


def packages(folder: Path, *arguments: str) -> set[str]:
    """The packages that a command of the command line has loaded by its end."""
    environment = {**os.environ, "BACKSTREAM_HOME": str(folder / "home")}
    command = [sys.executable, "-c", CHILD, *arguments]
    child = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    code, found = json.loads(child.stderr.splitlines()[-1])
    assert code == 0, child.stderr
    return set(found)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["run", "--help"], ["report", "--help"], ["show", "--help"]], ids=" ".join
)
def test_help_loads_nothing_of_the_lake_nor_of_spark(tmp_path: Path, arguments: list[str]) -> None:
    assert packages(tmp_path, *arguments) & HEAVY == set()


DAYS = ["days", "clicks.toml", "--since", "2024-03-01", "--until", "2024-03-02"]


def test_an_empty_ledger_is_shown_without_a_library_of_the_lake(tmp_path: Path) -> None:
    assert packages(tmp_path, "status") & HEAVY == set()


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a run that was published and recorded, and with the look at the dataset that ends a run."""
    folder, at = tmp_path_factory.mktemp("published"), datetime(2024, 3, 1, 5, tzinfo=UTC)
    clicks = [(at, at, "A", 0, "home")]
    write_clicks(folder / "data/a.parquet", clicks)
    definition = write_definition(folder, CLICKS + '\n[backfill]\nmax_arrival_delay = "6h"\n')
    since_ms, home = instant_ms("2024-03-01", "since"), Home(folder / "home")
    plan = plan_run(
        PlanRequest(
            definition, Interval(since_ms, since_ms + DAY_MS), trigger="t", is_unsealed_allowed=True, home=home
        )
    )
    publish_counts(plan, clicks)
    record_run(home, run_row(plan, RunStatus.PUBLISHED, (1, 2)))
    refresh_dataset_state(definition, home)
    return folder


@pytest.mark.parametrize("command", [["status"], DAYS], ids=lambda each: each[0])
def test_status_and_days_import_no_library_of_the_lake(published: Path, command: list[str]) -> None:
    assert packages(published, *command) & HEAVY == set()


@pytest.mark.parametrize("command", [["stale", "clicks.toml"], ["show", "clicks"]], ids=lambda each: each[0])
def test_stale_and_show_import_neither_spark_nor_the_quality_gate(published: Path, command: list[str]) -> None:
    assert packages(published, *command) & {"great_expectations", "jinja2", "pyspark"} == set()


def test_stale_does_not_import_pandas_without_new_files(published: Path) -> None:
    assert packages(published, "stale", "clicks.toml") & {"pandas", "pyiceberg"} == set()


def test_great_expectations_checks_a_custom_suite_once_and_a_bundled_one_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = datetime(2024, 3, 1, 5, tzinfo=UTC)
    write_clicks(tmp_path / "data/a.parquet", [(at, at, "A", 0, "home")])
    definition = write_definition(tmp_path)
    plan = ["plan", "clicks.toml", "--since", "2024-03-01", "--until", "2024-03-02"]

    assert "great_expectations" not in packages(tmp_path, *plan)

    (tmp_path / "suites").mkdir()
    (tmp_path / "suites/mine.json").write_text(json.dumps({"name": "mine", "expectations": [AT_LEAST_ONE_WINDOW]}))
    monkeypatch.setenv("BACKSTREAM_EXPECTATIONS", str(tmp_path / "suites"))
    definition.write_text(definition.read_text() + '\n[quality]\nsuite = "mine"\n')

    assert ["great_expectations" in packages(tmp_path, *plan) for _ in range(2)] == [True, False]
