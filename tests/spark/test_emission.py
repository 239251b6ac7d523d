"""Test emission per record, and per micro-batch as in Structured Streaming."""

from __future__ import annotations

import os
import random
from bisect import bisect_left
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backstream.conformance import reference_engine
from backstream.conformance.cases import parse_case
from backstream.conformance.reference_engine import StreamResult
from backstream.errors import PlanError, SpecError
from backstream.eventtime.emission import Emission, EmissionModel, Topology
from backstream.eventtime.instants import MAX_MS, MIN_MS
from backstream.eventtime.records import Fate, Record, SourceClock
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy
from backstream.eventtime.watermark_sources import compute_watermarks
from backstream.eventtime.window_operator import fire_windows
from backstream.eventtime.windows import Tumbling
from backstream.spark.watermarks import join
from backstream.spark.watermarks.join import add_watermarks
from backstream.spark.watermarks.user_generators import timeline_of_events
from backstream.watermarks import cells as cells_module
from backstream.watermarks.cells import timeline_of_maxima

pytestmark = pytest.mark.slow


def test_the_first_record_after_a_silence_ends_idleness_though_it_is_old() -> None:
    #  arrival      0    10   1000  1001      1002  1003
    #  partition    0    1    1     0         1     0
    #  event time   100  100  500   50 (old)  600   60
    # Partition 0 is idle from tick 5 on. Its old record wakes it, so that 600 is held back by its 99.
    arrivals = [(0, 0, 100), (10, 1, 100), (1_000, 1, 500), (1_001, 0, 50), (1_002, 1, 600), (1_003, 0, 60)]
    case = {
        "name": "mine",
        "strategy": {"kind": "monotonous", "interval_ms": 100, "idle_timeout_ms": 300},
        "emission": "on_event",
        "window": {"kind": "tumbling", "size_ms": 10},
        "records": [
            {"arrival_ms": at, "partition": partition, "key": "a", "ts": event_ms}
            for at, partition, event_ms in arrivals
        ],
    }

    (outcome,) = reference_engine.run_cases([parse_case(case)])

    assert isinstance(outcome, StreamResult)
    assert outcome.watermarks == [(99, 1), (499, 2), (MAX_MS, 5)]


@pytest.mark.parametrize("interval_ms", [0, 500])
@pytest.mark.parametrize("most", [0, 1_000])
def test_many_rises_between_ticks_are_found_by_sorting(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, interval_ms: int, most: int
) -> None:
    monkeypatch.setattr(join, "_MAX_RISES_IN_BLOCK", most)
    chance = random.Random(3)  # noqa: S311 - a test's stream, not a secret
    arrivals = sorted(1_700_000_000_000 + chance.randrange(5_000) for _ in range(400))
    records = [Record(at, chance.randrange(2), "", at - chance.randrange(300)) for at in arrivals]
    table = pa.table(
        {
            "arrival_time_ms": arrivals,
            "arrival_seq": list(range(len(records))),
            "source_partition": [str(each.source_partition) for each in records],
            "event_time_ms": [each.event_time_ms for each in records],
        }
    )
    clock = SourceClock(arrivals[0] - 700, interval_ms, arrivals[-1])
    strategy = WatermarkStrategy(StrategyKind.BOUNDED, 20, interval_ms, idle_timeout_ms=600)
    emission = Emission(strategy, model=EmissionModel.RECORD)
    events = spark.createDataFrame(table)

    # Without ticks a silent partition would never be idle, and hold everything back.
    silent = ["2"] if interval_ms else []
    timeline = timeline_of_events(events, emission, clock, silent)
    met = events.transform(add_watermarks(spark, timeline, clock)).orderBy("arrival_seq").collect()

    theirs = compute_watermarks(records, emission, clock, range(2 + len(silent)))
    assert [row.watermark_ms for row in met] == theirs.in_force_ms
    assert timeline.all_rises_ms().tolist() == [event.watermark_ms for event in theirs.events]
    assert timeline.max_rises_per_tick() > 3


def cells_of(records: list[Record], clock: SourceClock) -> pa.Table:
    """Return the cells of a stream whose watermark moves only at ticks."""
    cells: dict[tuple[str, int], dict[str, Any]] = {}
    for number, record in enumerate(records):
        at = (str(record.source_partition), clock.ticks_before(record.arrival_time_ms))
        event_ms = max(record.event_time_ms, cells.get(at, {}).get("event_time_ms", MIN_MS))
        position = {"arrival_time_ms": record.arrival_time_ms, "arrival_seq": number, "marker_ms": None}
        cells[at] = {"source_partition": at[0], "block": at[1], "event_time_ms": event_ms, **position}
    return pa.Table.from_pylist(list(cells.values()))


@pytest.mark.parametrize("topology", list(Topology))
@pytest.mark.parametrize("releases_ended", [False, True])
@pytest.mark.parametrize("most", [0, 1_000_000])
def test_time_lag_watermarks_equal_the_reference_without_a_list_of_ticks(
    monkeypatch: pytest.MonkeyPatch, topology: Topology, most: int, *, releases_ended: bool
) -> None:
    monkeypatch.setattr(cells_module, "MAX_WATERMARK_EVENTS", most)
    chance = random.Random(8)  # noqa: S311 - a test's streams, not secrets
    for _ in range(150):
        arrivals = sorted(chance.randrange(chance.choice([50, 900])) * 10 for _ in range(chance.randint(1, 12)))
        records = [Record(at, chance.randrange(2), "", at) for at in arrivals]
        interval_ms = chance.choice([10, 70])
        strategy = WatermarkStrategy(StrategyKind.TIME_LAG, 35, interval_ms, chance.choice([0, 0, 30, 400]))
        emission = Emission(strategy, topology, releases_ended)
        clock = SourceClock(arrivals[0], interval_ms, arrivals[-1] + chance.choice([0, 2_000]))
        partitions = sorted({each.source_partition for each in records} | {2})

        ours = timeline_of_maxima(cells_of(records, clock), emission, clock, [str(each) for each in partitions])

        theirs = compute_watermarks(records, emission, clock, partitions)
        rises = [event.watermark_ms for event in theirs.events]
        assert ours.all_rises_ms().tolist() == rises
        blocks = np.array([clock.ticks_before(record.arrival_time_ms) for record in records])
        assert ours.at_block(blocks).tolist() == theirs.in_force_ms
        requested = np.array([chance.randrange(-100, 12_000) for _ in range(20)])
        numbers = [bisect_left(rises, each) for each in requested.tolist()]
        visible = [clock.ticks_before(event.at_ms) for event in theirs.events[:-1]] + [MAX_MS]
        assert ours.first_tick_at(requested).tolist() == [visible[number] for number in numbers]
        assert ours.expand().first_rise_at(requested).tolist() == numbers


@pytest.mark.parametrize(
    ("kind", "model", "what"),
    [
        (StrategyKind.CUSTOM, EmissionModel.TICK, "custom watermarks"),
        (StrategyKind.BOUNDED, EmissionModel.RECORD, "watermarks per record"),
    ],
)
def test_a_stream_that_was_compressed_too_far_is_refused(
    kind: StrategyKind, model: EmissionModel, what: str
) -> None:
    clock = SourceClock(0, 200, 10)
    with pytest.raises(PlanError) as refused:
        timeline_of_maxima(
            cells_of([Record(0, 0, "", 0)], clock), Emission(WatermarkStrategy(kind), model=model), clock, ["0"]
        )
    assert str(refused.value) == (
        f"cannot compute {what} from one row per tick; use `user_generators.timeline_of_events`"
    )


def test_punctuated_watermarks_without_markers_are_refused(spark: SparkSession) -> None:
    events = spark.createDataFrame(
        cells_of([Record(0, 0, "", 0)], SourceClock(0, 200, 10)).drop_columns("marker_ms")
    )
    with pytest.raises(PlanError) as refused:
        timeline_of_events(events, Emission(WatermarkStrategy(StrategyKind.PUNCTUATED)), SourceClock(0, 200, 10))
    assert str(refused.value) == "punctuated watermarks need the column `marker_ms`"


def test_years_of_a_time_lag_take_no_time() -> None:
    emission, clock = (
        Emission(WatermarkStrategy(StrategyKind.TIME_LAG, delay_ms=7)),
        SourceClock(0, 200, 1_700_000_000_000),
    )
    records = [Record(0, 0, "", 0), Record(1_699_999_999_999, 0, "", 0)]

    timeline = timeline_of_maxima(cells_of(records, clock), emission, clock, ["0"])

    assert timeline.at_block(np.array([0, 1, 8_499_999_999])).tolist() == [MIN_MS, 193, 1_699_999_999_793]
    assert timeline.first_tick_at(np.array([1_000_000_000])).tolist() == [5_000_001]
    with pytest.raises(SpecError, match="8,500,000,000 watermarks are too many to list"):
        timeline.all_rises_ms()


BATCHES = [[1_000, 2_000], [25_000], [3_000, 26_000], [4_000, 50_000], [5_000, 27_000, 51_000], [6_000, 7_000]]
"""Event times of consecutive batches. 3000 is behind the watermark of the third batch, and not late."""


def structured_streaming(spark: SparkSession, folder: Path, *, delay_ms: int) -> list[dict[str, Any]]:
    """Return the report of each micro-batch of a windowed count over these files."""
    (folder / "in").mkdir()
    for number, batch in enumerate(BATCHES):
        file = folder / "in" / f"{number}.parquet"
        pq.write_table(pa.table({"event_time_ms": pa.array(batch, pa.int64())}), file)
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))  # files are read in this order
    files = spark.readStream.schema("event_time_ms long").option("maxFilesPerTrigger", 1).parquet(f"{folder}/in")
    counted = (
        files.withColumn("at", F.timestamp_millis("event_time_ms"))
        .withWatermark("at", f"{delay_ms} milliseconds")
        # Each event a group of its own, so that rows dropped are events dropped.
        .groupBy(F.window("at", "10 seconds"), "event_time_ms")
        .count()
    )
    query = (
        counted.writeStream.outputMode("append")
        .trigger(availableNow=True)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .format("noop")
        .start()
    )
    query.awaitTermination()
    return [progress["stateOperators"][0] for progress in query.recentProgress]


@pytest.mark.parametrize("delay_ms", [0, 20_000])
def test_micro_batches_drop_what_structured_streaming_drops(
    spark: SparkSession, tmp_path: Path, delay_ms: int
) -> None:
    reported = structured_streaming(spark, tmp_path, delay_ms=delay_ms)

    strategy = WatermarkStrategy(StrategyKind.BOUNDED, delay_ms, interval_ms=100)
    emission = Emission(strategy, model=EmissionModel.MICRO_BATCH)
    arrivals = [(100 * number, event_ms) for number, batch in enumerate(BATCHES) for event_ms in batch]
    records = [Record(at, number % 2, "a", event_ms) for number, (at, event_ms) in enumerate(arrivals)]
    timeline = compute_watermarks(records, emission, SourceClock(0, 100, 600), [0, 1, 2])
    fates = fire_windows(records, timeline, Tumbling(10_000), allowed_lateness_ms=0).fates
    dropped = [0] * len(BATCHES)
    for record, fate in zip(records, fates, strict=True):
        dropped[record.arrival_time_ms // 100] += fate is Fate.DROPPED
    assert [each["numRowsDroppedByWatermark"] for each in reported[: len(BATCHES)]] == dropped
    assert sum(dropped) == (4 if delay_ms == 0 else 2)


def test_each_watermark_follows_its_record_if_emission_is_per_record() -> None:
    #  arrival     0   0   1   1
    #  event time  10  30  20  40
    records = [Record(at, 0, "a", event) for at, event in [(0, 10), (0, 30), (1, 20), (1, 40)]]
    strategy = WatermarkStrategy(StrategyKind.BOUNDED, delay_ms=5, interval_ms=0)

    timeline = compute_watermarks(
        records, Emission(strategy, model=EmissionModel.RECORD), SourceClock(0, 0, 1), [0]
    )

    assert timeline.in_force_ms == [MIN_MS, 4, 24, 24]
    assert [(event.watermark_ms, event.after) for event in timeline.events] == [
        (4, 0),
        (24, 1),
        (34, 3),
        (MAX_MS, 3),
    ]
