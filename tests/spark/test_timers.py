"""Compare timers of a custom process function on Spark with the reference."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.test_parity import random_case

from backstream.conformance import reference_engine
from backstream.conformance.cases import EngineResult, parse_case
from backstream.conformance.spark_engine import new_engine
from backstream.errors import BackstreamError
from backstream.eventtime.emission import Emission
from backstream.eventtime.instants import MAX_MS
from backstream.eventtime.process_functions import Context, ProcessFunction
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.timers import run_process
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy
from backstream.eventtime.watermark_sources import compute_watermarks
from backstream.spark.timers import TimerInput, replay_timers_of_streams
from backstream.spark.watermarks.compress import ClockColumns, compress_events, timeline_of_maxima
from backstream.spark.watermarks.join import add_watermarks
from backstream.spark.watermarks.timeline import WatermarkTimeline


@dataclass
class Inactivity:
    """A function that fires if a key is silent: every record deletes the timer and sets a new one."""

    silence_ms: int = 60
    pending_ms: int | None = None
    seen: list[int] = field(default_factory=list)

    def process_element(self, record: Mapping[str, Any], context: Context) -> None:
        """Set a timer."""
        if self.pending_ms is not None and record["value"] != 3:
            context.timer_service.delete(self.pending_ms)
        self.seen.append(context.timestamp_ms)
        self.pending_ms = max(self.seen) + self.silence_ms
        context.timer_service.register(self.pending_ms)

    def on_timer(self, timestamp_ms: int, context: Context) -> None:
        """Handle the timer."""
        if len(self.seen) > 2 and len(self.seen) < 6:
            self.seen.append(timestamp_ms)
            context.timer_service.register(timestamp_ms + 7 * len(self.seen))


class Failing:
    """A function that fails at its first timer."""

    def process_element(self, record: Mapping[str, Any], context: Context) -> None:
        """Set a timer."""
        context.timer_service.register(context.timestamp_ms)

    def on_timer(self, timestamp_ms: int, context: Context) -> None:
        """React to it."""
        msg = "no such rate"
        raise LookupError(msg)


EMISSION = Emission(WatermarkStrategy(StrategyKind.BOUNDED, delay_ms=20, interval_ms=10, idle_timeout_ms=40))


def random_stream(seed: int) -> list[Record]:
    chance = random.Random(seed)  # noqa: S311 - a test's stream, not a secret
    arrivals = sorted(chance.randrange(2_000) for _ in range(150))
    return [
        Record(at, chance.randrange(2), chance.choice("abc"), at - chance.randrange(90), chance.randrange(5))
        for at in arrivals
    ]


def as_table(records: list[Record]) -> pa.Table:
    return pa.table(
        {
            "arrival_time_ms": [each.arrival_time_ms for each in records],
            "arrival_seq": list(range(len(records))),
            "source_partition": [str(each.source_partition) for each in records],
            "event_time_ms": [each.event_time_ms for each in records],
            "user": [each.key for each in records],
            "value": [each.value for each in records],
        }
    )


def with_timers(chance: random.Random, case: dict[str, Any]) -> dict[str, Any]:
    """Return the case with the process function of the recordings: timers at fixed delays, some deleted."""
    delays_ms = [chance.choice([-100, 0, 1, 50, 2**63 - 10]) for _ in range(chance.randint(1, 3))]
    again = {"on_timer_period_ms": chance.choice([0, 5, 70]), "max_repeat": chance.choice([0, 2, 5])}
    for record in case["records"]:
        if chance.random() < 0.3:
            record["delete_timers"] = [record["ts"] + chance.choice([0, 1, 50])]
    return case | {"timers": {"delays_ms": delays_ms, **again}}


def fired(outcomes: Sequence[EngineResult | BackstreamError]) -> list[list[tuple[int, int, str, int, int]]]:
    return [outcome.timers or [] for outcome in outcomes if isinstance(outcome, EngineResult)]


def replay_timers(
    events: DataFrame,
    keys: Sequence[str],
    new_function: Callable[[], ProcessFunction],
    timeline: WatermarkTimeline,
) -> DataFrame:
    one = {0: TimerInput(timeline.all_rises_ms(), new_function)}
    return replay_timers_of_streams(events.withColumn("stream", F.lit(0)), "stream", keys, one).drop("stream")


@pytest.mark.parametrize("seed", [1, 2])
def test_a_users_function_fires_as_on_the_reference(spark: SparkSession, seed: int) -> None:
    records = random_stream(seed)
    clock = SourceClock(0, 10, records[-1].arrival_time_ms)
    events = spark.createDataFrame(as_table(records))
    known = timeline_of_maxima(
        compress_events(events, ClockColumns.from_clock(clock)).toArrow(), EMISSION, clock, ["0", "1"]
    )

    in_force_ms = events.transform(add_watermarks(spark, known, clock))
    ours = replay_timers(in_force_ms, ["user"], Inactivity, known).collect()

    theirs = run_process(records, compute_watermarks(records, EMISSION, clock, [0, 1]), Inactivity).firings
    assert len(theirs) > 20
    assert sorted(tuple(row) for row in ours) == sorted(
        (each.watermark_ms, each.key, each.timestamp_ms, each.by, each.after) for each in theirs
    )
    assert max(row.watermark_ms for row in ours) == MAX_MS


def test_both_engines_fire_the_same_timers_on_random_streams(spark: SparkSession) -> None:
    chance = random.Random(21)  # noqa: S311 - cases, not secrets
    cases = [parse_case(with_timers(chance, random_case(chance, number))) for number in range(120)]

    ours, theirs = fired(new_engine(spark)(cases)), fired(reference_engine.run_cases(cases))

    assert ours == theirs
    assert (len(theirs), sum(map(len, theirs)) > 1_000) == (len(cases), True)


def test_several_keys_are_given_as_a_tuple_and_a_failure_names_them(spark: SparkSession) -> None:
    records = [Record(0, 0, "a", 5), Record(30, 0, "a", 50)]
    clock = SourceClock(0, 10, 30)
    events = spark.createDataFrame(as_table(records))
    known = timeline_of_maxima(
        compress_events(events, ClockColumns.from_clock(clock)).toArrow(), EMISSION, clock, ["0"]
    )

    in_force_ms = events.transform(add_watermarks(spark, known, clock))
    with pytest.raises(PythonException) as failed:
        replay_timers(in_force_ms, ["user", "value"], Failing, known).collect()
    assert (
        "process function Failing failed at the timer of 1970-01-01T00:00:00.005Z, key ('a', 1):"
        " LookupError('no such rate')" in str(failed.value)
    )
