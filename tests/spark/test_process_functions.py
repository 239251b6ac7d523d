"""Run process functions of a definition, and compare their rows with the reference."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.histories import Row, definition_of, random_history, write_history
from tests.spark.runs import STREAMS, planned, replay_chunk, rows
from tests.spark.user_functions import Silence

from backstream.chunks.replay import replay_chunks
from backstream.definition.loader import parse_definition
from backstream.errors import UserCodeError
from backstream.eventtime.instants import HOUR_MS, MAX_MS, MIN_MS
from backstream.eventtime.process_functions import Context
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.timers import ProcessOperator
from backstream.eventtime.watermark_sources import compute_watermarks
from backstream.eventtime.watermarks import WatermarkEvent, Watermarks
from backstream.runs.manifest import Manifest, sum_fates
from backstream.runs.plan import Mode, Plan
from backstream.spark.engine import SparkEngine

pytestmark = pytest.mark.slow

MODULE = "tests.spark.user_functions"
COLUMNS = {"what": "string", "total": "bigint", "records": "int", "watermark_ms": "bigint"}
HOURS = {"kind": "tumbling", "size": "1h"}


def with_process(folder: Path, name: str = "Silence", **sections: Any) -> dict[str, Any]:
    process = {"class": f"{MODULE}:{name}", "columns": COLUMNS, **sections.pop("process", {})}
    content = definition_of(folder / "data", window=HOURS, **sections)
    del content["aggregates"], content["lateness"]
    return content | {"process": process}


Told = dict[tuple[str, int, int], tuple[Any, ...]]
"""The values of a row by key, time, and index."""


def published(manifests: Sequence[Manifest]) -> Told:
    """Return the published rows by their place, after a check that each is in its window."""
    told: Told = {}
    for row in rows(list(manifests), ""):
        at_ms, start_ms, end_ms = (
            int(row[name].timestamp() * 1000) for name in ("event_time", "window_start", "window_end")
        )
        assert start_ms <= at_ms < end_ms == start_ms + HOUR_MS
        place = row["key"], at_ms, row["row_index"]
        assert place not in told
        told[place] = tuple(row[name] for name in COLUMNS)
    return dict(sorted(told.items()))


class WithoutDuplicates(Silence):
    """The function without the records that a definition removes; these still move the watermark."""

    def process_element(self, record: Mapping[str, Any], context: Context) -> None:
        """Process a record unless it is a duplicate."""
        if not record["is_duplicate"]:
            super().process_element(record, context)


def reference(history: Sequence[Row], content: Mapping[str, Any], plan: Plan) -> tuple[Told, Told]:
    """Return the rows and the side outputs of the range, by the plain algorithm."""
    definition = parse_definition(content, "test")
    arrived = sorted(history, key=lambda row: (row[1], row[3], row[2]))
    partitions = sorted({row[2] for row in arrived})
    is_marked = definition.watermark.marker is not None
    records = [
        Record(row[1], partitions.index(row[2]), row[4], row[0], row[5], is_marked and row[5] == 3)
        for row in arrived
    ]
    first_at = {row: number for number, row in reversed(list(enumerate(arrived)))}
    firsts = {id(records[number]) for number in first_at.values()}
    if plan.mode is Mode.REPLAY:
        clock = SourceClock(
            records[0].arrival_time_ms, definition.watermark.emit_interval, records[-1].arrival_time_ms
        )
        watermarks = compute_watermarks(records, definition.watermark.spec(), clock, range(len(partitions)))
    else:
        end = WatermarkEvent(MAX_MS, len(records) - 1, 0)
        watermarks = Watermarks(events=[end], in_force_ms=[MIN_MS] * len(records))

    def fields(record: Record) -> dict[str, Any]:
        return {"value": record.value, "is_duplicate": id(record) not in firsts}

    emitted = ProcessOperator(WithoutDuplicates, fields).run(records, watermarks).emitted
    told: tuple[Told, Told] = ({}, {})
    for key, of_key in emitted.items():
        indexes: Counter[Any] = Counter()
        for at_ms, tag, row in of_key:
            index = indexes[at_ms, tag]
            indexes[at_ms, tag] += 1
            if plan.since_ms <= at_ms < plan.until_ms:
                told[tag is not None][str(key), at_ms, index] = (*([tag] if tag else []), *row.values())
    return dict(sorted(told[0].items())), dict(sorted(told[1].items()))


@pytest.mark.parametrize(
    "stream", ["bounded", "recompute", "punctuated", "time lag, idle", "custom", "after each record"]
)
def test_rows_and_side_outputs_are_those_of_the_reference(
    spark: SparkSession, tmp_path: Path, stream: str
) -> None:
    history = random_history(seed=len(stream), rows=250)
    write_history(tmp_path / "data", history)
    content = with_process(tmp_path, **STREAMS.get(stream, {}))
    mode = Mode.RECOMPUTE if stream == "recompute" else Mode.REPLAY
    plan = planned(tmp_path, content, mode, since=0, until=3)

    manifests = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    told, side = reference(history, content, plan)
    assert published(manifests) == told
    assert len({row[0] for row in told.values()}) == 2
    outputs = {
        (row["key"], int(row["event_time"].timestamp() * 1000), row["row_index"]): (
            row["tag"],
            *json.loads(row["row"]).values(),
        )
        for row in rows(manifests, "side_outputs")
    }
    assert dict(sorted(outputs.items())) == side
    assert len(side) > 10 or stream != "bounded"


def test_every_record_of_a_window_is_behind_a_row_or_in_a_skipped_window(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = random_history(seed=3, rows=200)
    write_history(tmp_path / "data", history)
    plan = planned(tmp_path, with_process(tmp_path), Mode.REPLAY, since=0, until=3)

    manifests = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    counted = Counter[tuple[str, int]]()
    for suffix, count in (("", "record_count"), ("skipped_windows", "record_count__final")):
        for row in rows(manifests, suffix):
            counted[row["key"], int(row["window_start"].timestamp() * 1000)] += row[count]
    unique = set(history)
    in_range = Counter(
        (row[4], row[0] - row[0] % HOUR_MS) for row in unique if plan.since_ms <= row[0] < plan.until_ms
    )
    assert +counted == in_range
    assert {fate for fates in sum_fates(manifests).values() for fate in fates} == {"on_time", "late", "duplicate"}


@pytest.mark.parametrize(("name", "process"), [("Silence", {}), ("Pause", {"state_reach": "1d"})])
def test_rows_do_not_depend_on_the_chunks(
    spark: SparkSession, tmp_path: Path, name: str, process: dict[str, Any]
) -> None:
    write_history(tmp_path / "data", random_history(seed=4, rows=200))
    days = planned(tmp_path, with_process(tmp_path, name, process=process), Mode.REPLAY, since=0, until=3)
    whole = with_process(tmp_path, name, backfill={"chunk": "3d"})
    together = planned(tmp_path, whole, Mode.REPLAY, since=0, until=3)

    alone = [replay_chunk(spark, days, chunk) for chunk in days.chunks]

    rows_alone = published(alone)
    assert rows_alone == published(list(replay_chunks(SparkEngine(spark), together, together.chunks)))
    assert [len(published([manifest])) > 10 for manifest in alone] == [True] * 3


FAILURES = {
    "record": ("at the record of 2024-", "KeyError: 'x'", "rate_of", "  record: {'key': 'x', 'arrived_at': "),
    "timer": ("at the timer of 2024-", "KeyError: 'EUR'", "rate_of", None),
    "column": (
        "at the record of 2024-",
        "ValueError: process.columns does not declare 'sum'",
        "emit({",
        "  record: ",
    ),
}


@pytest.mark.parametrize("how", FAILURES)
def test_an_error_shows_the_trace_of_the_user_with_the_place(
    spark: SparkSession, tmp_path: Path, how: str
) -> None:
    write_history(tmp_path / "data", random_history(seed=6, rows=3, days=1))
    content = with_process(tmp_path, "Broken", process={"kwargs": {"how": how}})
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=1)
    place, error, line, record = FAILURES[how]

    with pytest.raises(UserCodeError) as failed:
        replay_chunk(spark, plan, plan.chunks[0])

    first, *trace = str(failed.value).splitlines()
    assert first.startswith(f"process function {MODULE}:Broken failed in chunk 0000 of {plan.run_id}, {place}")
    assert first.endswith(f": {error}")
    assert "user_functions.py" in trace[0]
    assert any(line in text for text in trace)
    assert not any("backstream/spark" in text for text in trace)
    assert record is None or any(text.startswith(record) for text in trace)


def test_a_value_of_another_type_is_named(spark: SparkSession, tmp_path: Path) -> None:
    write_history(tmp_path / "data", random_history(seed=6, rows=1, days=1))
    content = with_process(tmp_path, "Broken", process={"kwargs": {"how": "type"}})
    plan = planned(tmp_path, content, Mode.RECOMPUTE, since=0, until=1)

    with pytest.raises(UserCodeError) as failed:
        replay_chunk(spark, plan, plan.chunks[0])

    first, chunk, place = str(failed.value).splitlines()
    assert first == (
        f"process function {MODULE}:Broken emitted a row whose column 'total' must be int64, got 'seven'"
    )
    assert chunk == f"  chunk 0000 of {plan.run_id}"
    assert place.startswith("  key 'x', time 2024-03-01T")
