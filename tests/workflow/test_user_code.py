"""Check, publish, and renew the rows of a job and of a process function, as any other rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.histories import DAY_ONE_MS, Row, definition_of, random_history, write_history
from tests.spark.runs import planned, rows, toml_value

from backstream.chunks.replay import replay_chunks
from backstream.eventtime.instants import HOUR_MS
from backstream.lake.diff import ADDED, CHANGED
from backstream.lake.reader import load_rows
from backstream.quality.gx_adapter import import_library
from backstream.runs.home import Home
from backstream.runs.plan import Mode, Plan
from backstream.runs.results import Audit, Publication
from backstream.spark.engine import SparkEngine
from backstream.workflow.audit import audit_run
from backstream.workflow.history import diff_run
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.late_data.stale import find_stale_days
from backstream.workflow.publish import create_run_tables, publication_text, publish_run
from backstream.workflow.report import report_run
from backstream.workflow.runners import SparkRunner

pytestmark = pytest.mark.slow

MODULE = "tests.spark.user_functions"
LIMITS = {name: {"warn": 1, "fail": 1} for name in ("late_ratio", "dropped_ratio", "missing_ratio")}
JOB = {
    "window": {"kind": "tumbling", "size": "1h"},
    "job": {
        "function": f"{MODULE}:busy_only",
        "kwargs": {"least": 3},
        "columns": {"events": "bigint", "total": "bigint"},
        "reads": ["value"],
    },
}
SESSION_JOB = JOB | {"window": {"kind": "session", "gap": "40m"}, "backfill": {"publish": "live"}}
PROCESS = {
    "window": {"kind": "tumbling", "size": "1h"},
    "process": {
        "class": f"{MODULE}:Silence",
        "columns": {"what": "string", "total": "bigint", "records": "int", "watermark_ms": "bigint"},
    },
}


def run(spark: SparkSession, folder: Path, sections: dict[str, Any]) -> tuple[Plan, Publication]:
    content = definition_of(folder / "data", **sections) | {"quality": LIMITS}
    del content["aggregates"]
    if "process" in sections:
        del content["lateness"]
    plan = planned(folder, content, Mode.REPLAY, since=0, until=3)
    create_run_tables(plan)
    list(replay_chunks(SparkEngine(spark), plan, plan.chunks))
    import_library()
    audit_run(plan)
    publication = publish_run(plan)
    report_run(plan)
    return plan, publication


def add_late_file(folder: Path, history: Sequence[Row]) -> None:
    """Write a record of the first day that arrived after all others."""
    last = max(row[1] for row in history)
    write_history(folder / "data/late", [(DAY_ONE_MS + HOUR_MS, last + HOUR_MS, "A", 10_000, "x", 0)])


@pytest.mark.parametrize("sections", [JOB, SESSION_JOB], ids=["tumbling", "live sessions"])
def test_the_rows_of_a_job_are_checked_published_and_renewed(
    spark: SparkSession, tmp_path: Path, sections: dict[str, Any]
) -> None:
    history = random_history(seed=9, rows=300)
    write_history(tmp_path / "data", history)

    plan, first = run(spark, tmp_path, sections)

    assert Audit.read(plan.folder.audit_result).verdict.may_publish
    assert load_rows(plan.home, "events").num_rows == first.rows > 10
    skipped = load_rows(plan.home, "events__skipped_windows").to_pylist()
    records = sum(row["record_count__final"] for row in skipped)
    line = f"skipped    {len(skipped):,} windows with {records:,} records, see events__skipped_windows"
    assert line in publication_text(plan)
    assert f"no row for {len(skipped)} windows" in plan.folder.report.read_text()
    add_late_file(tmp_path, history)
    stale = find_stale_days(tmp_path / "events.toml", plan.home)
    assert [day.day_ms for day in stale.days] == [DAY_ONE_MS]
    _, second = run(spark, tmp_path, sections)
    assert second.replaced_rows == first.rows


def test_the_rows_of_a_process_function_are_checked_published_and_renewed(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = random_history(seed=9, rows=300)
    write_history(tmp_path / "data", history)

    plan, first = run(spark, tmp_path, PROCESS)

    published = load_rows(plan.home, "events").to_pylist()
    assert len(published) == first.rows > 50
    assert all(row["window_start"] <= row["event_time"] < row["window_end"] for row in published)
    outputs = load_rows(plan.home, "events__side_outputs").to_pylist()
    assert {(row["tag"], *json.loads(row["row"])) for row in outputs} == {("late", "value", "watermark_ms")}
    add_late_file(tmp_path, history)
    stale = find_stale_days(tmp_path / "events.toml", plan.home)
    assert [day.reasons[0].partition(":")[0] for day in stale.days] == [
        "the state of the process function would change"
    ] * len(stale.days)
    assert len(stale.days) == 3
    again, second = run(spark, tmp_path, PROCESS)
    assert second.replaced_rows == first.rows
    changes = diff_run(again.home, again.run_id, limit=0).changes.windows
    # The late record has the value 0 and emits two rows. At the end, its key is silent an hour after it.
    assert changes[ADDED] == 3
    assert changes[CHANGED] < second.rows


ORDERS = [
    {
        "at": "2024-03-01T05:10:00Z",
        "arrived": "2024-03-01T05:11:00Z",
        "key": "x",
        "value": 1,
        "payload": {"amount": 5},
    },
    {
        "at": "2024-03-01T05:50:00Z",
        "arrived": "2024-03-01T05:51:00Z",
        "key": "x",
        "value": 2,
        "payload": {"amount": 7},
    },
]
JSON_SOURCE = {
    "format": "json",
    "event_time": "at",
    "arrival_time": "arrived",
    "key": ["key"],
    "columns": {
        "at": "timestamp",
        "arrived": "timestamp",
        "key": "string",
        "value": "bigint",
        "payload": "struct<amount:bigint>",
    },
}


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        (
            {"process": {"class": f"{MODULE}:Columns", "columns": {"what": "string", "total": "bigint"}}},
            [("arrived,at,key,payload,value", 1), ("arrived,at,key,payload,value", 2)],
        ),
        (
            {
                "job": {
                    "function": f"{MODULE}:nested_totals",
                    "reads": ["payload.amount"],
                    "columns": {"total": "bigint"},
                }
            },
            [(12,)],
        ),
    ],
    ids=["all columns", "a field"],
)
def test_code_reads_the_columns_of_a_prepared_source(
    spark: SparkSession, tmp_path: Path, section: dict[str, Any], expected: list[tuple[Any, ...]]
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/orders.json").write_text("".join(f"{json.dumps(order)}\n" for order in ORDERS))
    content = {
        "name": "events",
        "source": {"path": str(tmp_path / "data"), **JSON_SOURCE},
        "window": {"kind": "tumbling", "size": "1h"},
        **section,
    }
    path = tmp_path / "events.toml"
    path.write_text("".join(f"{key} = {toml_value(value)}\n" for key, value in content.items()))
    prepare_source(path, Home(tmp_path / "home"), SparkRunner(lambda: spark))
    plan = planned(tmp_path, content, Mode.RECOMPUTE, since=0, until=1)

    manifests = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    names = next(iter(section.values()))["columns"]
    assert sorted(tuple(row[name] for name in names) for row in rows(manifests, "")) == expected
