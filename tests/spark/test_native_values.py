"""Compare the values of the native engine with those of Spark, for keys, times, and files of all kinds."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.spark.histories import random_history, write_history
from tests.spark.native_runs import KEYS, cut_finely, native_definition, run_engine, write_records
from tests.spark.runs import WINDOWS

from backstream.definition.loader import parse_definition
from backstream.eventtime.instants import epoch_ms
from backstream.eventtime.intervals import Interval
from backstream.native.supported import read_spec
from backstream.native.task import RestTask, TaskOutput
from backstream.native.task_runner import run_native_task
from backstream.runs.plan import Mode
from backstream.runs.table_schemas import QUARANTINE_TABLE

pytestmark = pytest.mark.slow

DAY = datetime(2024, 3, 1, tzinfo=UTC)
SUMS = {
    "events": "count(*)",
    "ones": "count(1)",
    "some": "count(x)",
    "sum_of_small": "sum(b)",
    "whole": "sum(l)",
    "money": "sum(d)",
    "least": "min(d)",
    "greatest": "max(l)",
    "first_name": "min(s)",
    "last_time": "max(t)",
    "least_double": "min(x)",
    "greatest_double": "max(x)",
    "greatest_float": "max(f)",
    "mean": "avg(i)",
}
DOUBLES = {"total": "x", "mean": "x", "narrow": "f", "of_narrow": "f"}  # of this column
SUMS_OF_DOUBLES = {
    "total": "sum(x)",
    "mean": "avg(x)",
    "narrow": "sum(f)",
    "of_narrow": "avg(f)",
    "least_x": "min(x)",
    "greatest_x": "max(x)",
    "least_f": "min(f)",
    "greatest_f": "max(f)",
}


EACH_WINDOW_AND_MODE = [
    ("tumbling", Mode.RECOMPUTE),
    ("tumbling", Mode.REPLAY),
    ("sliding", Mode.REPLAY),
    ("cumulate", Mode.RECOMPUTE),
    ("session", Mode.REPLAY),
]


@pytest.mark.parametrize(("kind", "mode"), EACH_WINDOW_AND_MODE)
def test_keys_and_values_of_every_type_give_what_they_give_on_spark(
    spark: SparkSession, tmp_path: Path, kind: str, mode: Mode
) -> None:
    write_records(tmp_path / "data", seed=len(kind), since=DAY)
    sections = {"window": WINDOWS[kind], "aggregates": SUMS}

    native, other = (
        run_engine(spark, tmp_path / engine, tmp_path / "data", engine, mode, sections, key=list(KEYS))
        for engine in ("native", "spark")
    )

    assert len(native[""]) > 100
    assert repr(native) == repr(other)  # NaN is not equal to itself


def test_sums_of_doubles_differ_by_no_more_than_the_order_of_adding(spark: SparkSession, tmp_path: Path) -> None:
    write_records(tmp_path / "data", seed=3, since=DAY)
    sections = {"window": WINDOWS["sliding"], "aggregates": SUMS_OF_DOUBLES}

    native, other = (
        run_engine(
            spark, tmp_path / engine, tmp_path / "data", engine, Mode.RECOMPUTE, sections, key=["name", "number"]
        )[""]
        for engine in ("native", "spark")
    )

    ours, theirs = (sorted(result, key=_place) for result in (native, other))
    assert list(map(_place, ours)) == list(map(_place, theirs))
    for name, column in DOUBLES.items():
        for mine, its in zip(ours, theirs, strict=True):
            if its[name] is None:
                assert mine[name] is None
                continue
            # 1e30 and -1e30 cancel each other; the error is in proportion to the largest summand, not to the sum.
            largest = max(map(abs, (its[f"least_{column}"] or 0.0, its[f"greatest_{column}"] or 0.0)))
            error = 1e-12 * largest if math.isfinite(largest) else 0.0
            assert mine[name] == pytest.approx(its[name], rel=1e-12, abs=error, nan_ok=True), (name, mine, its)
    values = [row[name] for row in theirs for name in DOUBLES]
    assert {"nan", "inf", "None"} <= set(map(str, values))


def _place(row: Mapping[str, Any]) -> str:
    """Return the key and the window of a row, as text."""
    return repr([row[name] for name in ("window_start", "window_end", "name", "number")])


def test_times_before_1970_fall_into_the_windows_that_spark_puts_them_in(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_records(tmp_path / "data", seed=9, since=datetime(1969, 12, 30, tzinfo=UTC))
    sections = {
        "window": {"kind": "tumbling", "size": "6h", "offset": "-1ms"},
        "aggregates": {"events": "count(*)"},
    }

    native, other = (
        run_engine(
            spark,
            tmp_path / engine,
            tmp_path / "data",
            engine,
            Mode.REPLAY,
            sections,
            since=-19785,
            key=["name"],
            event_time_range=["1960-01-01", "2100-01-01"],
        )
        for engine in ("native", "spark")
    )

    assert len({row["window_start"].year for row in native[""]}) == 2
    assert native == other


def test_records_that_cannot_be_read_are_counted_and_kept_as_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    write_records(tmp_path / "data", seed=4, since=DAY, broken=True)
    sections = {"window": WINDOWS["tumbling"], "aggregates": {"events": "count(*)"}}

    native, other = (
        run_engine(spark, tmp_path / engine, tmp_path / "data", engine, Mode.REPLAY, sections, key=["name"])
        for engine in ("native", "spark")
    )

    reasons = {row["reason"] for row in native["quarantine"]}
    assert reasons == {"null_event_time", "absurd_event_time", "null_source_partition", "null_sequence"}
    require_equal_runs(native, other)


def test_a_native_task_quarantines_the_records_that_spark_does(spark: SparkSession, tmp_path: Path) -> None:
    write_records(tmp_path / "data", seed=4, since=DAY, broken=True)
    sections = {"window": WINDOWS["tumbling"], "aggregates": {"events": "count(*)"}}
    on_spark = run_engine(spark, tmp_path / "spark", tmp_path / "data", "spark", Mode.RECOMPUTE, sections, key=[])
    files = sorted(map(str, (tmp_path / "data").glob("*.parquet")))
    types = {"happened_at": "timestamp", "arrived_at": "timestamp", "origin": "string", "seq": "bigint"}
    definition = parse_definition(native_definition(tmp_path / "data", window=WINDOWS["tumbling"]), "test")
    columns = [(column.name, column.type, number) for number, column in enumerate(QUARANTINE_TABLE.columns, 1)]
    output = TaskOutput(str(tmp_path / "native/records.parquet"), columns, "run", ["staging_chunk"])
    task = RestTask(
        number=0,
        reading=read_spec(definition, types),
        interval=Interval(epoch_ms(DAY), epoch_ms(DAY + timedelta(days=3))),
        files=files,
        owners=dict.fromkeys(files, 0),
        counts_path=str(tmp_path / "counts.parquet"),
        memory_mb=256,
        quarantine=output,
    )

    (path,) = run_native_task(task).written["quarantine"].paths

    native = pq.read_table(path, partitioning=None).to_pylist()
    assert len(native) > 50
    assert sorted(map(_quarantined, native)) == sorted(map(_quarantined, on_spark["quarantine"]))


def require_equal_runs(native: dict[str, Any], other: dict[str, Any]) -> None:
    quarantines = [sorted(map(_quarantined, run.pop("quarantine"))) for run in (native, other)]
    assert quarantines[0] == quarantines[1]
    assert native == other


def _quarantined(row: Mapping[str, Any]) -> str:
    """Return a row of the table as text; a number in a record may be written in several ways."""
    names = ("reason", "source_partition", "event_time", "arrival_time", "line")
    values = {name: row[name] for name in names} | {"file": row["file"]}
    return repr([values, sorted(json.loads(row["record"]).items())])


def test_files_with_other_columns_and_strange_names_are_read(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "data [1] * ? 'quoted'"
    write_records(folder, seed=6, since=DAY, without=["x"])
    # A second later: which of two copies with the same place in arrival order comes first, nobody can say.
    write_records(folder / "later", seed=7, since=DAY + timedelta(seconds=1), narrow=["l"])
    sections = {"window": WINDOWS["tumbling"], "aggregates": {"some": "count(x)", "whole": "sum(l)"}}

    native, other = (
        run_engine(spark, tmp_path / engine, folder, engine, Mode.RECOMPUTE, sections, key=["name"])
        for engine in ("native", "spark")
    )

    assert any(row["some"] == 0 for row in native[""])
    assert native == other


@pytest.mark.parametrize("mode", [Mode.RECOMPUTE, Mode.REPLAY])
def test_sessions_without_a_readable_record_are_empty_as_on_spark(
    spark: SparkSession, tmp_path: Path, mode: Mode
) -> None:
    write_history(tmp_path / "data", random_history(5, rows=30))
    for file in (tmp_path / "data").rglob("*.parquet"):
        table = pq.read_table(file, partitioning=None)
        nothing = pa.nulls(table.num_rows, pa.int64())
        pq.write_table(table.set_column(table.column_names.index("seq"), "seq", nothing), file)

    native, other = (
        run_engine(spark, tmp_path / engine, tmp_path / "data", engine, mode, {"window": WINDOWS["session"]})
        for engine in ("native", "spark")
    )

    assert native[""] == []
    assert {row["reason"] for row in native["quarantine"]} == {"null_sequence"}
    require_equal_runs(native, other)


@pytest.mark.parametrize(("kind", "has_many_tasks"), [("tumbling", False), ("session", False), ("session", True)])
def test_columns_that_became_wider_are_read_as_on_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, has_many_tasks: bool
) -> None:
    if has_many_tasks:
        cut_finely(monkeypatch)
    write_history(tmp_path / "data", random_history(23, rows=300))
    for number, file in enumerate(sorted((tmp_path / "data").rglob("*.parquet"))):
        table = pq.read_table(file, partitioning=None)
        named = {"A": 1, "B": 2, "C": 3, "x": 1, "y": 2, "z": 3}
        for name in ("origin", "key", "value"):
            values = [named.get(each, each) + number * 1_000 for each in table[name].to_pylist()]
            column = pa.array(values, pa.int32() if number else pa.int8())
            table = table.set_column(table.column_names.index(name), name, column)
        pq.write_table(table, file)
    sections = {"window": WINDOWS[kind], "lateness": {"allowed": "0s"}}

    native, other = (
        run_engine(spark, tmp_path / engine, tmp_path / "data", engine, Mode.REPLAY, sections)
        for engine in ("native", "spark")
    )

    assert native["dropped"]
    assert native == other
