"""`[filter]` keeps records from windows after they have moved the watermark, on each engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from backstream.chunks.replay import replay_chunks
from backstream.conformance.workers import ConformanceRunner
from backstream.definition.loader import load_definition
from backstream.errors import SpecError
from backstream.eventtime.instants import epoch_ms, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import TimeWindow
from backstream.native.raw_input import RawInput, Target
from backstream.runs.home import Home
from backstream.runs.manifest import sum_fates
from backstream.runs.plan import Mode, Plan
from backstream.source.raw_types import require_raw_columns
from backstream.workflow.checks.check_sample import check_sample
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
from backstream.workflow.recomputation.windows import recompute_windows
from backstream.workflow.runners import Runner, SparkRunner

NOON_MS = instant_ms("2026-03-02T12:00Z", "noon")
WINDOWS: Mapping[str, str] = {
    "tumbling": 'kind = "tumbling"\nsize = "10s"',
    "sliding": 'kind = "sliding"\nsize = "10s"\nslide = "5s"',
    "session": 'kind = "session"\ngap = "5s"',
}
RECORDS = (
    (1, "click"),
    (25, "view"),  # moves the watermark, so that the first window fires
    (5, "click"),  # is dropped for this reason
    (22, "click"),
    (3, "view"),
    (26, None),  # doesn't meet the condition, and connects no sessions
    (29, "click"),
)
"""Seconds since noon and kind, in arrival order."""
REPLAYED = {
    "tumbling": [(0, 10, 1), (20, 30, 2)],
    "sliding": [(-5, 5, 1), (0, 10, 1), (20, 30, 2), (25, 35, 1)],
    "session": [(1, 6, 1), (22, 27, 1), (29, 34, 1)],
}
"""The start and the end of each window in seconds since noon, and its records."""
RECOMPUTED = {
    "tumbling": [(0, 10, 2), (20, 30, 2)],
    "sliding": [(-5, 5, 1), (0, 10, 2), (5, 15, 1), (15, 25, 1), (20, 30, 2), (25, 35, 1)],
    "session": [(1, 10, 2), (22, 27, 1), (29, 34, 1)],
}


def write_definition(folder: Path, window: str, engine: str, condition: str = "page.kind = 'click'") -> Path:
    lines = (
        {"at": NOON_MS + 1000 * second, "seen": NOON_MS + 40_000 + 1000 * number, "k": "a", "page": {"kind": kind}}
        for number, (second, kind) in enumerate(RECORDS)
    )
    (folder / "records.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    definition = folder / "clicks.toml"
    definition.write_text(
        f"""
name = "clicks"
watermark = {{ strategy = "flink_sql" }}
filter = {{ where = "{condition}" }}
aggregates = {{ clicks = "count(*)" }}
backfill = {{ engine = "{engine}", publish = "live" }}
[window]
{WINDOWS[window]}
[source]
path = "{folder}/records.json"
format = "json"
event_time = "at"
event_time_unit = "ms"
arrival_time = "seen"
arrival_time_unit = "ms"
key = ["k"]
columns = {{ at = "bigint", seen = "bigint", k = "string", page = "struct<kind: string>" }}
"""
    )
    return definition


def plan_day(definition: Path, mode: Mode, runner: Runner) -> Plan:
    home = Home(definition.parent / "home")
    prepare_source(definition, home, runner)
    day = Interval(instant_ms("2026-03-02", "day"), instant_ms("2026-03-03", "day"))
    return plan_run(PlanRequest(definition, day, mode=mode, trigger="test", home=home))


def in_seconds(row: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple((epoch_ms(row[name]) - NOON_MS) // 1000 for name in ("window_start", "window_end"))


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("engine", ["native", "spark"])
def test_filtered_records_move_the_watermark_and_are_in_no_window(
    spark: SparkSession, tmp_path: Path, engine: str, window: str
) -> None:
    runner = ConformanceRunner(lambda: spark) if engine == "native" else SparkRunner(lambda: spark)
    plan = plan_day(write_definition(tmp_path, window, engine), Mode.REPLAY, runner)
    manifests = list(replay_chunks(runner.engine(), plan, plan.chunks))
    rows = [row for each in manifests for file in each.files[""] for row in pq.read_table(file.path).to_pylist()]
    assert sorted((*in_seconds(row), row["clicks"]) for row in rows) == REPLAYED[window]
    assert dict(sum_fates(manifests)["all"]) == {"on_time": 3, "dropped": 1, "filtered": 3}
    assert sum(each.events_read for each in manifests) == len(RECORDS)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("engine", ["native", "spark"])
def test_a_recompute_leaves_out_the_same_records(
    spark: SparkSession, tmp_path: Path, engine: str, window: str
) -> None:
    runner = ConformanceRunner(lambda: spark) if engine == "native" else SparkRunner(lambda: spark)
    plan = plan_day(write_definition(tmp_path, window, engine), Mode.RECOMPUTE, runner)
    manifests = list(replay_chunks(runner.engine(), plan, plan.chunks))
    rows = [row for each in manifests for file in each.files[""] for row in pq.read_table(file.path).to_pylist()]
    assert sorted((*in_seconds(row), row["clicks"]) for row in rows) == RECOMPUTED[window]
    assert dict(sum_fates(manifests)["all"]) == {"on_time": 4, "filtered": 3}


@pytest.mark.parametrize("window", WINDOWS)
def test_the_reference_explains_filtered_records(spark: SparkSession, tmp_path: Path, window: str) -> None:
    for mode, expected in ((Mode.REPLAY, REPLAYED[window]), (Mode.RECOMPUTE, RECOMPUTED[window])):
        plan = plan_day(write_definition(tmp_path, window, "auto"), mode, SparkRunner(lambda: spark))
        raw = RawInput.from_plan(plan, "explain")
        targets = [
            Target(TimeWindow(NOON_MS + 1000 * start, NOON_MS + 1000 * end), ("a",)) for start, end, _ in expected
        ]
        found = recompute_windows(raw, targets)
        assert [each.record_count for each in found] == [count for _, _, count in expected]
        last = [(each.record.event_ms - NOON_MS, each.fate) for each in found[-1].records]
        assert (26_000, "filtered") in last or window == "session"


def test_check_replays_a_sample_with_a_filter(spark: SparkSession, tmp_path: Path) -> None:
    definition = write_definition(tmp_path, "tumbling", "auto")
    found = check_sample(spark, definition, 100, Home(tmp_path / "home"))
    assert dict(found.fates) == {"on_time": 3, "dropped": 1, "filtered": 3}
    assert [row["clicks"] for row in found.rows.to_pylist()] == [2, 2]


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("kind = 'click'", "filter.where names 'kind', which is not a column, in \"kind = 'click'\""),
        ("page.kind", "filter.where must be true or false, got string from 'page.kind'"),
        ("page.kind = ", "filter.where is not SQL"),
    ],
)
def test_a_wrong_condition_is_reported_before_a_run(tmp_path: Path, condition: str, problem: str) -> None:
    definition = load_definition(write_definition(tmp_path, "tumbling", "auto", condition))
    with pytest.raises(SpecError) as caught:
        require_raw_columns(definition, definition.source.columns, "clicks.toml")
    assert str(caught.value).startswith(problem)
