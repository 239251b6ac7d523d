"""A notebook runs, reads, compares and rolls back as the command line does."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.workflow.history import at, write_clicks, write_definition
from tests.workflow.publishing import stage_counts

import backstream
from backstream.errors import LedgerError, SpecError
from backstream.runs.home import Home
from backstream.workflow.resume import find_interrupted_run

HEAVY = {"great_expectations", "numpy", "pandas", "pyarrow", "pyiceberg", "pyspark", "sqlalchemy"}
LOADED = "import json, sys; {}; print(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
HOURS = range(24)
FIRST = [(at(f"1 {hour:02}:10"), at(f"1 {hour:02}:10"), "A", hour, "home") for hour in HOURS]
LATE = [(at("1 05:30"), at("2 09:00"), "A", 24, "home"), (at("1 07:00"), at("2 09:01"), "A", 25, "cart")]


@pytest.fixture
def clicks(tmp_path: Path) -> Path:
    """A definition over one click per hour of 1 March 2024."""
    write_clicks(tmp_path / "data/first.parquet", FIRST)
    return write_definition(tmp_path)


def loaded(statement: str) -> set[str]:
    """The packages that a process has loaded after a statement."""
    command = [sys.executable, "-c", LOADED.format(statement)]
    return set(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def counts(rows: pa.Table) -> Mapping[tuple[str, datetime], int]:
    """The number of clicks per page and window start."""
    return {(row["page"], row["window_start"]): row["clicks"] for row in rows.to_pylist()}


@pytest.mark.parametrize("statement", ["import backstream", "import backstream; backstream.run; backstream.read"])
def test_the_import_is_light(statement: str) -> None:
    assert loaded(statement) & HEAVY == set()


def test_the_package_has_the_functions_of_the_api_and_no_other_name() -> None:
    assert all(inspect.getdoc(getattr(backstream, name)) for name in backstream.__all__)
    assert {"RunResult", "load_definition", "run", "verify"} < set(backstream.__all__)
    with pytest.raises(AttributeError, match=r"^module 'backstream' has no attribute 'nothing'$"):
        _ = backstream.nothing


def test_a_range_is_run_read_compared_and_rolled_back(spark: SparkSession, tmp_path: Path, clicks: Path) -> None:
    home = tmp_path / "home"
    five, seven = (datetime(2024, 3, 1, hour, tzinfo=UTC) for hour in (5, 7))
    once = {("home", datetime(2024, 3, 1, hour, tzinfo=UTC)): 1 for hour in HOURS}

    first = backstream.run(clicks, "2024-03-01", "2024-03-02", home=home)
    assert counts(backstream.read("clicks", home=home)) == once
    assert repr(first) == f"RunResult(run_id='{first.run_id}', verdict='pass', rows=24)"
    assert "published  24 rows to table clicks, replacing 0" in str(first)
    assert first.report.exists()
    phases = {file.name for file in Home(home).run("clicks", first.run_id).phases.iterdir()}
    assert phases == {"start_spark", "replay", "audit", "publish"}

    write_clicks(tmp_path / "data/late.parquet", LATE)
    plan = backstream.plan(clicks, date(2024, 3, 1), date(2024, 3, 2), reason="late clicks", home=home)
    second = backstream.execute(plan)
    assert second.run_id == plan.run_id
    assert counts(backstream.read("clicks", home=home)) == once | {("home", five): 2, ("cart", seven): 1}
    assert counts(backstream.read("clicks", as_of=first.run_id, home=home)) == once
    assert backstream.read("clicks", since=seven, home=home).num_rows == 18

    assert backstream.publish(plan.run_id, home=home).rows == 25
    changes = backstream.diff(second.run_id, home=home).changes
    assert dict(changes.windows) == {"added": 1, "removed": 0, "changed": 1}
    assert "25 rows published, replacing 24 rows" in backstream.run_report(second.run_id, "md", home=home)
    assert json.loads(backstream.run_report(clicks, "json", home=home))

    backstream.roll_back(second.run_id, reason="too early", home=home)
    assert counts(backstream.read("clicks", home=home)) == once
    assert spark.range(1).count() == 1, "a session that was active before the run stays"


def test_the_command_line_finds_an_interrupted_run_of_a_notebook(tmp_path: Path, clicks: Path) -> None:
    home = tmp_path / "home"
    plan = backstream.plan(clicks, "2024-03-01", "2024-03-02", home=home)
    stage_counts(plan, FIRST)

    interrupted = find_interrupted_run(clicks, plan.range, None, Home(home))

    assert interrupted is not None
    assert interrupted.plan.run_id == plan.run_id
    assert plan.run_id.startswith("python.")


def test_a_definition_is_found_by_its_name(tmp_path: Path, clicks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTREAM_DEFINITIONS", str(tmp_path))

    assert backstream.load_definition("clicks") == backstream.load_definition(clicks)
    assert backstream.plan("clicks", "2024-03-01", "2024-03-02", home=tmp_path / "home").dataset == "clicks"


def test_wrong_arguments_are_refused_by_their_names(tmp_path: Path, clicks: Path) -> None:
    with pytest.raises(SpecError, match=r"^mode must be recompute or replay, got 'batch'$"):
        backstream.plan(clicks, "2024-03-01", "2024-03-02", mode="batch", home=tmp_path)
    with pytest.raises(
        SpecError, match=r"^since must name its time zone, got the local time '2024-03-01T00:00:00'"
    ):
        backstream.plan(clicks, datetime(2024, 3, 1), "2024-03-02", home=tmp_path)  # noqa: DTZ001 - the error
    with pytest.raises(SpecError, match=r"^form must be html or md or json, got 'pdf'$"):
        backstream.run_report(clicks, "pdf", home=tmp_path)
    with pytest.raises(LedgerError):
        backstream.read("clicks", home=tmp_path)


def test_a_sample_of_no_row_is_refused() -> None:
    with pytest.raises(SpecError, match="sample must be at least 1 row, got -5"):
        backstream.verify("a-run", sample=-5)
