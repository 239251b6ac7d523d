"""Compare watermarks from a stream slice and the arrival index with those of the whole stream."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.spark.histories import Expected, definition_of, random_history, write_history
from tests.spark.runs import WINDOWS, fates, panes, planned

from backstream.chunks import lateness
from backstream.chunks.replay import replay_chunks
from backstream.definition.loader import parse_definition
from backstream.eventtime.emission import Emission
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy
from backstream.runs.plan import Mode
from backstream.source.arrival_index import ArrivalIndex, BucketGrid
from backstream.spark.engine import SparkEngine
from backstream.watermarks.cells import timeline_of_maxima
from backstream.watermarks.stream_slices import StreamSlice
from backstream.watermarks.timeline import WatermarkTimeline

pytestmark = pytest.mark.slow

PARTITIONS = ("a", "b", "c")
INDEX = ("path", "source_partition", "arrival_bucket")


def stream(chance: random.Random) -> list[Record]:
    """Return a stream with bursts and silent periods per partition. A few events are very late."""
    records = []
    for partition in chance.sample(range(len(PARTITIONS)), chance.randint(1, len(PARTITIONS))):
        arrival_ms = chance.randint(-50, 300)
        lag_ms = chance.choice([0, 0, 300])
        gaps_ms = chance.choice([(0, 1, 2, 5, 5, 20, 60, 200), (2, 60, 90, 95)])
        for _ in range(chance.randint(1, 60)):
            arrival_ms += chance.choice(gaps_ms)
            event_ms = arrival_ms - lag_ms - chance.choice([0, 0, 3, 10, 80, 400]) + chance.choice([0, 0, 0, 30])
            records.append(Record(arrival_ms, partition, "", event_ms))
    return sorted(records, key=lambda record: record.arrival_time_ms)


def index_of(records: Iterable[Record], width_ms: int) -> ArrivalIndex:
    """Return the index that Spark would compute, with one file per hundred milliseconds of arrival."""
    groups: dict[tuple[str, str, int], list[Record]] = {}
    for record in records:
        arrival_ms = record.arrival_time_ms
        place = (str(arrival_ms // 100), PARTITIONS[record.source_partition], arrival_ms // width_ms)
        groups.setdefault(place, []).append(record)
    table = dict(zip(INDEX, map(pa.array, zip(*groups, strict=True)), strict=True))
    for time in ("event", "arrival"):
        result = [[getattr(record, f"{time}_time_ms") for record in each] for each in groups.values()]
        table |= {f"first_{time}_ms": pa.array(map(min, result)), f"last_{time}_ms": pa.array(map(max, result))}
    return ArrivalIndex(pa.table(table))


def cells_of(records: Iterable[Record], clock: SourceClock) -> pa.Table:
    """Return the cells of the records."""
    greatest_ms: dict[tuple[str, int], int] = {}
    for record in records:
        cell = PARTITIONS[record.source_partition], clock.ticks_before(record.arrival_time_ms)
        greatest_ms[cell] = max(greatest_ms.get(cell, record.event_time_ms), record.event_time_ms)
    columns = {"source_partition": pa.string(), "block": pa.int64(), "event_time_ms": pa.int64()}
    schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])
    results = [dict(zip(columns, (*cell, event_ms), strict=True)) for cell, event_ms in greatest_ms.items()]
    return pa.Table.from_pylist(results, schema)


def wrongly_met(chance: random.Random) -> tuple[list[Record], int]:
    """Return the events of an interval with a wrong watermark in the part, and the number of unread records."""
    records, interval_ms, idle_ms = stream(chance), chance.choice([1, 3, 7, 40]), chance.choice([0, 0, 25, 100])
    kind = chance.choice([StrategyKind.BOUNDED, StrategyKind.MONOTONOUS])
    emission = Emission(WatermarkStrategy(kind, chance.choice([0, 5, 40]), interval_ms, idle_ms))
    width_ms = chance.choice([10, idle_ms]) if idle_ms else chance.choice([5, 30, 100])
    clock = SourceClock(
        records[0].arrival_time_ms - chance.choice([0, 2]), interval_ms, records[-1].arrival_time_ms
    )
    start_ms = chance.randint(-100, 1_500)
    interval = Interval(start_ms, start_ms + chance.choice([20, 100]))
    buckets = BucketGrid(60, 0, 0, width_ms)

    part = StreamSlice.from_index(index_of(records, width_ms), interval, buckets, emission, clock)
    read = [record for record in records if record.arrival_time_ms // width_ms in part.buckets]

    whole = timeline_of_maxima(cells_of(records, clock), emission, clock, PARTITIONS)
    result = timeline_of_maxima(
        part.with_prefix(cells_of(read, clock), range(clock.last_tick + 1)), emission, clock, PARTITIONS
    )
    assert {str(record.arrival_time_ms // 100) for record in read} <= part.paths
    wrong = [each for each in inside(records, interval) if not same(each, clock, whole, result)]
    return wrong, len(records) - len(read)


def inside(records: Sequence[Record], interval: Interval) -> list[Record]:
    return [each for each in records if interval.start_ms <= each.event_time_ms < interval.end_ms]


def same(record: Record, clock: SourceClock, *each: WatermarkTimeline) -> bool:
    block = pa.array([clock.ticks_before(record.arrival_time_ms)]).to_numpy()
    return len({int(result.at_block(block)[0]) for result in each}) == 1


@pytest.mark.parametrize("seed", range(4))
def test_a_part_meets_the_watermarks_of_the_whole(seed: int) -> None:
    chance, unread = random.Random(seed), 0  # noqa: S311 - test data
    for number in range(500):
        wrong, skipped = wrongly_met(chance)
        assert wrong == [], f"stream {number} of seed {seed}"
        unread += skipped
    assert unread > 10_000


def test_what_the_last_tick_saw_is_read_even_some_buckets_back() -> None:
    clock, emission = SourceClock(2, 40, 100), Emission(WatermarkStrategy(StrategyKind.MONOTONOUS, 0, 40))
    records = [Record(2, 0, "", 1), Record(41, 0, "", 1_000), Record(44, 0, "", 900), Record(70, 0, "", 7)]

    part = StreamSlice.from_index(index_of(records, 5), Interval(7, 8), BucketGrid(60, 0, 0, 5), emission, clock)
    read = [record for record in records if record.arrival_time_ms // 5 in part.buckets]

    result = timeline_of_maxima(
        part.with_prefix(cells_of(read, clock), range(clock.last_tick + 1)), emission, clock, ["a"]
    )
    assert result.at_block(pa.array([1]).to_numpy()).tolist() == [999]  # the tick at 42 came between the two


def test_a_session_late_in_a_long_history_is_replayed_without_reading_all_of_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = random_history(seed=11, rows=900, days=9)
    write_history(tmp_path / "data", history)
    watermark = {
        "strategy": "bounded_out_of_orderness",
        "delay": "10m",
        "emit_interval": "30s",
        "idle_timeout": "6h",
    }
    content = definition_of(tmp_path / "data", window=WINDOWS["session"], watermark=watermark)
    plan = planned(tmp_path, content, Mode.REPLAY, since=6, until=7)
    expected = Expected(history, parse_definition(content, "test"), plan.range)
    parts = []

    def record_part(*arguments: object) -> StreamSlice:
        parts.append(StreamSlice.from_index(*arguments))  # type: ignore[arg-type]
        return parts[-1]

    recorder = type("Recorder", (), {"from_index": staticmethod(record_part)})
    monkeypatch.setattr(lateness, "StreamSlice", recorder)
    manifests = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    (part,) = parts
    assert len(part.buckets) < 24 * 6
    assert part.prefix_rows.num_rows > 24 * 3
    assert fates(manifests) == expected.fates()
    assert panes(manifests) == expected.values()
