"""A dataset with lists, derived columns, and a condition: from the plan to the difference after late data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from tests.spark.histories import DAY_ONE_MS, Row, definition_of, random_history, write_history
from tests.spark.runs import planned

from backstream.chunks.replay import replay_chunks
from backstream.lake.catalog import open_catalog_for_reading
from backstream.lake.reader import content_hash, load_rows
from backstream.runs.home import Home
from backstream.runs.plan import Mode, Plan
from backstream.runs.results import Audit, Verdict
from backstream.spark.engine import SparkEngine
from backstream.workflow.audit import audit_run
from backstream.workflow.history import describe_difference, diff_run
from backstream.workflow.publish import create_run_tables, publish_run

AGGREGATES = {"events": "count(*)", "values": "collect_set(value)", "total": "sum(value)"}
QUALITY = {
    "late_ratio": {"warn": 1.0, "fail": 1.0},
    "dropped_ratio": {"warn": 1.0, "fail": 1.0},
    "missing_ratio": {"warn": 1.0, "fail": 1.0},
    "rows_ratio": 0.1,
}


def run(spark: SparkSession, folder: Path, aggregates: dict[str, str]) -> tuple[Plan, Audit]:
    """Plan, run, audit, and publish three days; return the plan and the audit."""
    content = definition_of(
        folder / "data",
        window={"kind": "tumbling", "size": "3h"},
        aggregates=aggregates,
        derive_after={"mean": "total / events"},
        having={"condition": "events > 3"},
        quality=QUALITY,
        backfill={"chunk": "1d", "engine": "auto"},
    )
    plan = planned(folder, content, Mode.REPLAY, since=0, until=3)
    create_run_tables(plan)
    list(replay_chunks(SparkEngine(spark), plan, plan.chunks))
    audit = audit_run(plan)
    publish_run(plan)
    return plan, audit


def expected_sets(history: list[Row]) -> dict[tuple[str, int], set[int]]:
    """Return the values by key and window start, with more than three records."""
    records: dict[tuple[str, int], set[Row]] = {}
    for row in history:
        records.setdefault((row[4], row[0] - row[0] % 10_800_000), set()).add(row)
    return {place: {row[5] for row in rows} for place, rows in records.items() if len(rows) > 3}


def published_lists(folder: Path) -> dict[tuple[str, int], list[int]]:
    rows = load_rows(Home(folder / "home"), "events").to_pylist()
    return {(row["key"], int(row["window_start"].timestamp() * 1000)): row["values"] for row in rows}


def element_ids(folder: Path, suffix: str) -> dict[str, int]:
    """Return the ids of list elements as the table of the lake has them."""
    with open_catalog_for_reading(Home(folder / "home")) as catalog:
        schema = catalog.load_table(("backstream", f"events{suffix}")).schema()
    return {
        field.name: field.field_type.element_id
        for field in schema.fields
        if hasattr(field.field_type, "element_id")
    }


def ids_in_files(plan: Plan, suffix: str) -> dict[str, Any]:
    files = [*plan.staging(suffix).rglob("*.parquet")]
    assert files
    found = {}
    for file in files:
        for field in pq.read_schema(file):
            if hasattr(field.type, "value_field"):
                found[field.name] = int(field.type.value_field.metadata[b"PARQUET:field_id"])
    return found


def test_lists_are_published_compared_and_kept_when_columns_are_added(spark: SparkSession, tmp_path: Path) -> None:
    history = [row for row in random_history(7, rows=240) if row[0] >= DAY_ONE_MS]
    write_history(tmp_path / "data", history[:200])

    plan, audit = run(spark, tmp_path, AGGREGATES)

    assert audit.verdict in (Verdict.PASS, Verdict.WARN)
    assert published_lists(tmp_path) == {
        place: sorted(each) for place, each in expected_sets(history[:200]).items()
    }
    assert ids_in_files(plan, "") == element_ids(tmp_path, "") == plan.element_ids[""]
    assert ids_in_files(plan, "panes") == element_ids(tmp_path, "__panes") == plan.element_ids["panes"]
    withheld = load_rows(Home(tmp_path / "home"), "events__withheld")
    rows = load_rows(Home(tmp_path / "home"), "events")
    events = sum(rows["record_count"].to_pylist()) + sum(withheld["record_count"].to_pylist())
    assert events == len(set(history[:200]))

    write_history(tmp_path / "data/later", history[200:])
    again, _ = run(spark, tmp_path, AGGREGATES | {"origins": "collect_set(origin)", "least": "min(value)"})

    assert published_lists(tmp_path) == {place: sorted(each) for place, each in expected_sets(history).items()}
    assert again.element_ids[""]["values"] == plan.element_ids[""]["values"]
    assert ids_in_files(again, "") == element_ids(tmp_path, "") == again.element_ids[""]
    assert set(again.element_ids[""]) == {"values", "origins"}
    text = describe_difference(diff_run(Home(tmp_path / "home"), again.run_id, limit=5))
    assert "values" in text
    assert len(content_hash(load_rows(Home(tmp_path / "home"), "events"))) == 64
