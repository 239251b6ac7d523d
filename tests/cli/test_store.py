"""The commands with the warehouse in an S3 store: a run and its history, and no key anywhere."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pyspark.sql import SparkSession
from tests.cli.test_processes import LENIENT_ABOUT_GAPS
from tests.lake.store import Store
from tests.workflow.history import CLICKS, at, write_clicks, write_definition
from typer.testing import CliRunner

from backstream.cli import app
from backstream.lake.reader import load_rows
from backstream.lake.storage import Warehouse
from backstream.runs.home import Home
from backstream.variables import CATALOG_VARIABLE, HOME_VARIABLE, WAREHOUSE_VARIABLE

pytestmark = pytest.mark.slow

RANGE = ["--since", "2024-03-01", "--until", "2024-03-03", "--mode", "replay"]


class Kept:
    """The session of the tests, which a command must not stop."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None:
        """Others go on with it."""


@pytest.fixture(autouse=True)
def warehouse(s3: Store, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty warehouse in the store; its place."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    monkeypatch.setenv(WAREHOUSE_VARIABLE, s3.new_warehouse())
    monkeypatch.delenv(CATALOG_VARIABLE, raising=False)
    monkeypatch.setattr("backstream.spark.session.local_session", lambda *_, **__: Kept(spark))
    return Warehouse.from_home(Home(tmp_path / "home")).display_text


def said(*arguments: str) -> str:
    """What a command says, which has to succeed; its standard error stands before it."""
    result = CliRunner(env={"COLUMNS": "250", "NO_COLOR": "1", "TERM": "dumb"}).invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.stderr + result.stdout


def clicks(folder: Path) -> dict[str, int]:
    """What a reader sees."""
    published = load_rows(Home(folder / "home"), "clicks").to_pylist()
    return {f"{row['window_start']:%dT%H} {row['page']}": row["clicks"] for row in published}


def test_a_run_and_its_history_lie_in_the_store_and_no_key_is_written_anywhere(
    tmp_path: Path, s3: Store, warehouse: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    first = [(at("1 05:00"), at("1 05:01"), "A", 0, "home"), (at("2 06:40"), at("2 06:50"), "A", 1, "home")]
    write_clicks(tmp_path / "data/a.parquet", first)
    definition = str(write_definition(tmp_path, CLICKS + LENIENT_ABOUT_GAPS))

    output = [said("plan", definition, *RANGE), said("run", definition, *RANGE)]
    assert clicks(tmp_path) == {"01T05 home": 1, "02T06 home": 1}
    write_clicks(tmp_path / "data/b.parquet", [(at("2 06:50"), at("9 00:00"), "A", 2, "home")])
    output += [said("stale", definition), said("run", definition, "--stale")]
    assert clicks(tmp_path) == {"01T05 home": 1, "02T06 home": 2}
    old, new = (each.name for each in sorted(tmp_path.glob("home/runs/clicks/*"), key=by_age))
    output += [said("diff", new), said("show", "clicks", "--as-of", old), said("status"), said("report", new)]
    assert "run cli" in output[4]
    output += [
        said("rollback", new, "--yes"),
        said("vacuum", "clicks"),
        said("vacuum", "clicks", "--keep-runs", "1"),
    ]
    assert clicks(tmp_path) == {"01T05 home": 1, "02T06 home": 1}

    keys = s3.keys(warehouse.removeprefix("s3://"))
    tables = {key.split("/")[3] for key in keys}
    assert {"clicks", "clicks__metrics", "clicks__panes", "clicks__restatements", "runs", "checks"} <= tables
    assert not (tmp_path / "home/warehouse").exists()
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    heard = "\n".join([*output, *(record.getMessage() for record in caplog.records)]).encode()
    secrets = [each.encode() for each in (s3.secret, quote(s3.secret, safe=""), s3.key_id)]
    for content in (*written, *map(s3.content, keys), heard):
        assert not any(secret in content for secret in secrets)


def test_an_error_reports_a_missing_bucket_before_spark_starts(
    tmp_path: Path, s3: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WAREHOUSE_VARIABLE, s3.address("nobodys/p"))
    write_clicks(tmp_path / "data/a.parquet", [(at("1 05:00"), at("1 05:01"), "A", 0, "home")])
    definition = str(write_definition(tmp_path, CLICKS))

    result = CliRunner().invoke(app, ["run", definition, *RANGE])

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "error: no bucket `nobodys` for the warehouse s3://nobodys/p\n"
        f"  endpoint {s3.endpoint}\n\nhint: create it first\n"
    )


def by_age(run: Path) -> int:
    """When a run was planned."""
    return (run / "plan.json").stat().st_mtime_ns
