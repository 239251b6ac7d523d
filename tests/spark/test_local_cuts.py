"""Test that rows of windows in local time don't depend on chunks, around changes of the clocks in Berlin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.histories import DAY_ONE_MS, definition_of, random_history, write_history
from tests.spark.runs import planned, replay_chunk, rows
from tests.spark.test_cuts import TABLES, events_of, sorted_rows

from backstream.chunks.replay import replay_chunks
from backstream.eventtime.instants import DAY_MS, HOUR_MS, epoch_ms
from backstream.runs.manifest import sum_fates
from backstream.runs.plan import Mode, Plan
from backstream.spark.engine import SparkEngine

pytestmark = pytest.mark.slow

SPRING, AUTUMN = 30, 240
"""The days of 2024 at which clocks in Berlin change, counted from the first day of histories."""
WINDOWS: dict[str, dict[str, str]] = {
    "tumbling": {"kind": "tumbling", "size": "1d"},
    "sliding": {"kind": "sliding", "size": "3h", "slide": "30m", "offset": "10m"},
    "session": {"kind": "session", "gap": "35m"},
    "cumulate": {"kind": "cumulate", "size": "1d", "step": "4h"},
}


@pytest.mark.parametrize(
    ("engine", "kind", "day"),
    [
        ("native", "tumbling", SPRING),
        ("native", "sliding", AUTUMN),
        ("native", "cumulate", AUTUMN),
        ("native", "session", AUTUMN),
        pytest.param("native", "session", SPRING, marks=pytest.mark.long),
        pytest.param("native", "sliding", SPRING, marks=pytest.mark.long),
        ("spark", "session", SPRING),
        pytest.param("spark", "cumulate", AUTUMN, marks=pytest.mark.long),
    ],
)
def test_however_a_range_of_local_days_is_cut_the_rows_are_the_same(
    spark: SparkSession, tmp_path: Path, engine: str, kind: str, day: int
) -> None:
    moved_ms = day * DAY_MS - 4 * HOUR_MS
    history = [(row[0] + moved_ms, row[1] + moved_ms, *row[2:]) for row in random_history(seed=day, rows=150)]
    write_history(tmp_path / "data", history)
    sections: dict[str, Any] = {"window": {**WINDOWS[kind], "time_zone": "Europe/Berlin"}}
    if kind == "session":
        sections["lateness"] = {}

    def planned_in(chunk: str) -> Plan:
        (tmp_path / chunk).mkdir()
        backfill = {"chunk": chunk, "engine": engine}
        content = definition_of(tmp_path / "data", backfill=backfill, **sections)
        return planned(tmp_path / chunk, content, Mode.REPLAY, since=day - 1, until=day + 3)

    plan, whole_plan = planned_in("1d"), planned_in("4d")
    alone = [replay_chunk(spark, plan, each) for each in plan.chunks]
    whole = list(replay_chunks(SparkEngine(spark), whole_plan, whole_plan.chunks))

    assert (len(alone), len(whole)) == (4, 1)
    assert sum(map(events_of, whole)) == len(history)
    assert sum_fates(whole) == sum_fates(alone)
    for suffix in TABLES:
        assert sorted_rows(whole, suffix) == sorted_rows(alone, suffix)
    starts_ms = {epoch_ms(row["window_start"]) - DAY_ONE_MS for row in rows(whole, "")}
    assert kind == "session" or {start_ms % (30 * 60_000) for start_ms in starts_ms} <= {0, 600_000}
