"""Compare custom watermark generators on Spark with the reference."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from backstream.errors import SpecError
from backstream.eventtime.emission import Emission, Topology
from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.watermark_generators import CustomWatermarks, StrategyKind, WatermarkStrategy
from backstream.eventtime.watermark_sources import compute_watermarks
from backstream.examples.generators import SmoothedLag
from backstream.spark.watermarks.join import add_watermarks
from backstream.spark.watermarks.user_generators import timeline_of_events
from backstream.watermarks import user_generators
from backstream.watermarks.timeline import WatermarkTimeline

pytestmark = pytest.mark.slow

HOSTILE = '''
class Moody:
    """A generator that emits at some records and ticks, sometimes falling, and partly follows the clock."""

    def __init__(self, every, lag_ms=30):
        self.every, self.lag_ms, self.count, self.greatest_ms = every, lag_ms, 0, None

    def on_event(self, record):
        self.count += 1
        self.greatest_ms = max(self.greatest_ms or record.event_time_ms, record.event_time_ms)
        if self.count % self.every == 0:
            return record.event_time_ms - self.lag_ms

    def on_periodic_emit(self, now_ms):
        if self.greatest_ms is not None and now_ms // 10 % 3:
            return min(self.greatest_ms, now_ms) - 2 * self.lag_ms


class Failing(Moody):
    def on_event(self, record):
        if record.event_time_ms == 20:
            raise KeyError("JFK")


class Careless(Moody):
    def on_periodic_emit(self, now_ms):
        return now_ms / 2


class Deaf:
    def on_event(self, record):
        return None
'''


@pytest.fixture(scope="module")
def users_module(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return a module outside of the package that driver and workers can import."""
    folder = tmp_path_factory.mktemp("users")
    module: Path = folder / "users_generators.py"
    module.write_text(HOSTILE)
    spark.sparkContext.addPyFile(str(module))
    sys.path.insert(0, str(folder))
    yield module.stem
    sys.path.remove(str(folder))


def custom(
    target: str, options: dict[str, int], topology: Topology = Topology.SPLITS, idle_timeout_ms: int = 0
) -> Emission:
    strategy = WatermarkStrategy(StrategyKind.CUSTOM, 0, 10, idle_timeout_ms, generator=target, options=options)
    return Emission(strategy, topology)


def frame(spark: SparkSession, records: list[Record]) -> DataFrame:
    table = pa.table(
        {
            "arrival_time_ms": [each.arrival_time_ms for each in records],
            "arrival_seq": list(range(len(records))),
            "source_partition": ["ABC"[each.source_partition] for each in records],
            "event_time_ms": [each.event_time_ms for each in records],
            "marker_ms": pa.array([each.marker for each in records], pa.int64()),
        }
    )
    return spark.createDataFrame(table)


def random_stream(chance: random.Random) -> list[Record]:
    """Return a stream of two partitions with silent periods, old events, and frequent markers."""
    base_ms, span_ms = chance.choice([0, 1_700_000_000_000]), chance.choice([200, 3_000])
    arrivals = sorted(base_ms + chance.randrange(span_ms) for _ in range(chance.randint(1, 60)))
    late_ms = chance.choice([80, 700])
    return [
        Record(at, chance.randrange(2), "", at - chance.randrange(late_ms), marker=marker)
        for at in arrivals
        for marker in [chance.choice([None, None, at - chance.randrange(late_ms)])]
    ]


def in_force_ms(heard: WatermarkTimeline, records: list[Record], clock: SourceClock) -> list[int]:
    """Return the watermark at each record, by the definition of `WatermarkTimeline`."""
    met = []
    for number, record in enumerate(records):
        block = clock.ticks_before(record.arrival_time_ms)
        place = (record.arrival_time_ms, number, "ABC"[record.source_partition])
        positions = heard.marker_positions or [None] * len(heard.watermark_ms)
        rises = zip(heard.watermark_ms.tolist(), heard.visible_from.tolist(), positions, strict=True)
        seen = [
            rise_ms
            for rise_ms, visible, position in rises
            if visible <= block or (position is not None and visible == block + 1 and position < place)
        ]
        met.append(max(seen, default=MIN_MS))
    return met


def results(chance: random.Random, module: str) -> tuple[str, dict[str, int]]:
    return chance.choice(
        [
            (f"{module}:Moody", {"every": chance.choice([1, 2, 5])}),
            ("backstream.examples.generators:SmoothedLag", {"records": chance.choice([1, 3, 20])}),
            ("backstream.examples.generators:Heartbeat", {}),
        ]
    )


@pytest.mark.parametrize("topology", list(Topology))
@pytest.mark.parametrize("idle_timeout_ms", [0, 45])
def test_custom_generators_on_spark_emit_the_watermarks_of_the_reference(
    spark: SparkSession, users_module: str, topology: Topology, idle_timeout_ms: int
) -> None:
    chance = random.Random(f"{topology}{idle_timeout_ms}")  # noqa: S311 - a test's streams, not secrets
    for _ in range(8):
        records = random_stream(chance)
        target, options = results(chance, users_module)
        emission = custom(target, options, topology, idle_timeout_ms)
        clock = SourceClock(records[0].arrival_time_ms, 10, records[-1].arrival_time_ms + chance.choice([0, 300]))

        expected = chance.choice([[], ["C"]])

        ours = timeline_of_events(frame(spark, records), emission, clock, expected)

        partitions = sorted({each.source_partition for each in records} | {2 for _ in expected})
        theirs = compute_watermarks(records, emission, clock, partitions)
        assert ours.all_rises_ms().tolist() == [event.watermark_ms for event in theirs.events], (target, options)
        assert in_force_ms(ours, records, clock) == theirs.in_force_ms


def timeline_without_spark(
    records: list[Record], emission: Emission, clock: SourceClock, partitions: list[int]
) -> WatermarkTimeline:
    """Return the result of `timeline_of_events` without Spark."""
    new_generator = CustomWatermarks(emission.strategy.generator, emission.strategy.options)
    groups: dict[object, list[dict[str, object]]] = {}
    for number, record in enumerate(records):
        name = "ABC"[record.source_partition]
        row = {
            "arrival_time_ms": record.arrival_time_ms,
            "arrival_seq": number,
            "source_partition": name,
            "event_time_ms": record.event_time_ms,
            "marker_ms": record.marker,
        }
        groups.setdefault(None if emission.topology is Topology.OPERATOR else name, []).append(row)
    outputs = [
        row
        for rows in groups.values()
        for row in user_generators._Partition.from_names(  # noqa: SLF001 - the half that workers run
            new_generator, emission, clock, sorted({str(row["source_partition"]) for row in rows})
        ).run(pa.Table.from_pylist(rows))
    ]
    table = pa.Table.from_pylist(outputs, user_generators.OUTPUT)
    names = ["ABC"[partition] for partition in partitions]
    return user_generators.merge_outputs(table, emission, clock, names, new_generator)


@pytest.mark.parametrize("topology", list(Topology))
@pytest.mark.parametrize("idle_timeout_ms", [0, 20, 45])
def test_both_halves_make_what_the_reference_makes(
    users_module: str, topology: Topology, idle_timeout_ms: int
) -> None:
    chance = random.Random(f"{topology}{idle_timeout_ms}")  # noqa: S311 - a test's streams, not secrets
    for _ in range(200):
        records = random_stream(chance)
        target, options = results(chance, users_module)
        emission = custom(target, options, topology, idle_timeout_ms)
        clock = SourceClock(records[0].arrival_time_ms, 10, records[-1].arrival_time_ms + chance.choice([0, 300]))
        partitions = sorted({each.source_partition for each in records} | chance.choice([set(), {2}]))

        ours = timeline_without_spark(records, emission, clock, partitions)

        theirs = compute_watermarks(records, emission, clock, partitions)
        assert ours.all_rises_ms().tolist() == [event.watermark_ms for event in theirs.events], (target, options)
        assert in_force_ms(ours, records, clock) == theirs.in_force_ms


def test_records_look_their_watermark_up(spark: SparkSession, users_module: str) -> None:
    records = random_stream(random.Random(5))  # noqa: S311 - a test's stream, not a secret
    clock = SourceClock(records[0].arrival_time_ms, 10, records[-1].arrival_time_ms)
    emission = custom(f"{users_module}:Moody", {"every": 2}, idle_timeout_ms=45)
    events = frame(spark, records)

    met = events.transform(add_watermarks(spark, timeline_of_events(events, emission, clock), clock))

    result = [row.watermark_ms for row in met.orderBy("arrival_seq").collect()]
    assert result == compute_watermarks(records, emission, clock, [0, 1]).in_force_ms
    assert len(set(result)) > 5


def test_a_generator_may_be_given_as_it_is(spark: SparkSession) -> None:
    records = random_stream(random.Random(6))  # noqa: S311 - a test's stream, not a secret
    clock = SourceClock(records[0].arrival_time_ms, 10, records[-1].arrival_time_ms)
    emission = Emission(WatermarkStrategy(StrategyKind.NONE, interval_ms=10))

    ours = timeline_of_events(frame(spark, records), emission, clock, new_generator=SmoothedLag)

    theirs = compute_watermarks(records, emission, clock, [0, 1], SmoothedLag)
    assert ours.all_rises_ms().tolist() == [event.watermark_ms for event in theirs.events]
    assert len(theirs.events) > 3


TICK = "1970-01-01T00:00:00.010Z"
STREAM = [Record(0, 0, "", 10), Record(15, 1, "", 20), Record(40, 0, "", 30)]


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        (
            "Failing",
            {"every": 1},
            "failed in on_event at the record of partition {}, arrival 1970-01-01T00:00:00.015Z: KeyError('JFK')",
        ),
        (
            "Careless",
            {"every": 1},
            "must return a 64-bit int or None from on_periodic_emit, got 5.0 at the tick of {tick}",
        ),
        ("Deaf", {}, "must have the method on_periodic_emit"),
        ("Moody", {"evry": 1}, "does not take the options {{'evry': 1}}: missing a required argument: 'every'"),
        ("Missing", {}, "cannot be imported: users_generators has no class 'Missing'"),
    ],
)
def test_both_engines_report_the_same_error_of_a_generator(
    spark: SparkSession, users_module: str, name: str, options: dict[str, int], says: str
) -> None:
    emission, clock = custom(f"{users_module}:{name}", options), SourceClock(0, 10, 40)

    with pytest.raises(SpecError) as on_spark:
        timeline_of_events(frame(spark, STREAM), emission, clock)
    with pytest.raises(SpecError) as on_reference:
        compute_watermarks(STREAM, emission, clock, [0, 1])

    says = f"watermark generator users_generators:{name} {says}"
    assert (str(on_spark.value), str(on_reference.value)) == (
        says.format("B", tick=TICK),
        says.format(1, tick=TICK),
    )
