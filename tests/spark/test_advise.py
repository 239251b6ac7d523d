"""Compare the delay analysis on Spark with the reference interpreter, run once per delay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession
from tests.spark.histories import Row, days, random_history, write_history

from backstream.definition.model import Definition
from backstream.eventtime.delay_analysis import CriticalDelays, DelayAdvice, FiringDelays
from backstream.eventtime.instants import HOUR_MS, MINUTE_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.outages import Outage
from backstream.eventtime.records import Fate, Record, SourceClock
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy
from backstream.eventtime.watermark_sources import compute_watermarks
from backstream.eventtime.window_operator import fire_windows
from backstream.eventtime.windows import Cumulate, Session, Sliding, Tumbling, window_start_ms
from backstream.runs.home import Home
from backstream.spark.delay_analysis import DelayHistograms, measure_delays
from backstream.workflow.advise import AdviceRequest, AssumedSettings, prepare_advice

pytestmark = pytest.mark.slow

DEFINITION = """\
name = "events"
window = {window}
watermark = {{strategy = "monotonous", {watermark}}}
lateness = {{allowed = "{lateness}"}}
quality = {{expected_partitions = {partitions}}}
aggregates = {{events = "count(*)"}}

[source]
path = "{folder}/data"
event_time = "happened_at"
arrival_time = "arrived_at"
partition = "origin"
sequence = "seq"
key = ["key"]
deduplicate_on = ["origin", "seq"]
"""
RANGE = days(1, 2)
DELAYS_MS = [0, 1, *(minutes * MINUTE_MS for minutes in (1, 5, 13, 40, 90, 200, 300)), 30 * HOUR_MS]


class Stream(NamedTuple):
    """Return a source and its windows as TOML."""

    window: str = '{kind = "tumbling", size = "1h"}'
    watermark: str = 'emit_interval = "30s", idle_timeout = "1h"'
    lateness: str = "1h"
    partitions: str = '"observed"'


STREAMS = {
    "idle": Stream(),
    "never idle": Stream(watermark='emit_interval = "30s"'),
    "no lateness": Stream('{kind = "tumbling", size = "2h", offset = "-15m"}', lateness="0s"),
    "sliding": Stream('{kind = "sliding", size = "150m", slide = "1h"}'),
    "holes": Stream('{kind = "sliding", size = "20m", slide = "1h", offset = "10m"}'),
    "cumulate": Stream('{kind = "cumulate", size = "4h", step = "1h"}'),
    "subtasks": Stream(watermark='emit_interval = "30s", idle_timeout = "1h", topology = "subtasks"'),
    "operator": Stream(watermark='emit_interval = "30s", idle_timeout = "20m", topology = "operator"'),
    "partitions that end": Stream(watermark='emit_interval = "30s", finished_partitions = "release"'),
    "a partition that never delivers": Stream(partitions='["A", "B", "C", "Z"]'),
    "one that never delivers, for ever": Stream(watermark='emit_interval = "30s"', partitions='["A", "Z"]'),
    "after each record": Stream(watermark='emit_interval = "30s", idle_timeout = "1h", emit = "on_event"'),
    "between batches": Stream(watermark='emit_interval = "20m", emit = "micro_batch"'),
    "few ticks": Stream(watermark='emit_interval = "5h", idle_timeout = "1h"'),
}


def advice_request(
    folder: Path, history: Sequence[Row], stream: Stream, assumed: AssumedSettings | None = None
) -> AdviceRequest:
    write_history(folder / "data", history)
    file = folder / "events.toml"
    file.write_text(DEFINITION.format(folder=folder, **stream._asdict()))
    return prepare_advice(file, RANGE.start_ms, RANGE.end_ms, 0.99, Home(folder / "home"), assumed)


class Told(NamedTuple):
    """The effect of a delay on the records of the range, and the waiting time of results."""

    records: int
    dropped: int
    late: int
    behind: int
    mean_wait_ms: int
    median_wait_ms: int


def replayed(history: Sequence[Row], definition: Definition, delay_ms: int) -> Told:
    """Return the result of the reference for one delay."""
    arrived = sorted(history, key=lambda row: (row[1], row[3], row[2]))
    section, window = definition.watermark, definition.window.spec()
    assert not isinstance(window, Session)
    named = () if definition.quality.expected_partitions == "observed" else definition.quality.expected_partitions
    partitions = sorted({*named, *(row[2] for row in arrived)})
    strategy = WatermarkStrategy(StrategyKind.BOUNDED, delay_ms, section.emit_interval, section.idle_timeout)
    clock = SourceClock(arrived[0][1], section.emit_interval, arrived[-1][1])
    records = [Record(row[1], partitions.index(row[2]), "", row[0]) for row in arrived]
    emission = replace(section.spec(), strategy=strategy)
    timeline = compute_watermarks(records, emission, clock, range(len(partitions)))
    fates = fire_windows(records, timeline, window, definition.lateness.allowed).fates
    once = sorted({row: number for number, row in reversed([*enumerate(arrived)])}.values())
    ours = [number for number in once if in_range(latest_start_ms(window, arrived[number][0]))]
    ends_ms = {
        each.end_ms for number in once for each in window.assign(arrived[number][0]) if in_range(each.start_ms)
    }
    waits_ms = [
        next(rise.at_ms for rise in timeline.events if rise.watermark_ms >= end_ms - 1) - end_ms
        for end_ms in ends_ms
    ]
    counts = Counter(fates[number] for number in ours)
    behind = sum(arrived[number][0] <= timeline.in_force_ms[number] for number in ours)
    actual = (len(ours), counts[Fate.DROPPED], counts[Fate.LATE], behind)
    return Told(*actual, round(fmean(waits_ms)), round(median(waits_ms)))


def latest_start_ms(window: Tumbling | Sliding | Cumulate, event_time_ms: int) -> int:
    every_ms = window.slide_ms if isinstance(window, Sliding) else window.size_ms
    return window_start_ms(event_time_ms, window.offset_ms, every_ms)


def in_range(start_ms: int) -> bool:
    return RANGE.start_ms <= start_ms < RANGE.end_ms


@pytest.mark.parametrize("name", STREAMS)
def test_one_pass_gives_for_every_delay_what_a_replay_gives(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    history = random_history(seed=len(name), rows=800)
    wanted = advice_request(tmp_path, history, STREAMS[name])

    result = measure_delays(spark, wanted.recorded)

    edges_ms = {each + more for each in result.overdue.delays_ms[::25] for more in (0, 1)}
    for delay_ms in sorted({*DELAYS_MS, *edges_ms}):
        dropped, overdue = result.dropped.count_affected(delay_ms), result.overdue.count_affected(delay_ms)
        wait = result.firings.wait(delay_ms)
        counts = (result.overdue.records, dropped, overdue - dropped, result.behind.count_affected(delay_ms))
        assert Told(*counts, wait.mean_ms, wait.median_ms) == replayed(history, wanted.definition, delay_ms)


def test_a_hypothesis_gives_what_a_recording_of_it_gives(spark: SparkSession, tmp_path: Path) -> None:
    history, stream = random_history(seed=4, rows=800), Stream(watermark='emit_interval = "30s"')
    last_ms = max(row[1] for row in history)
    outages = [
        Outage("B", Interval(RANGE.start_ms + 5 * HOUR_MS, RANGE.start_ms + 20 * HOUR_MS)),
        Outage("C", Interval(last_ms - 9 * HOUR_MS, last_ms + 2 * HOUR_MS)),  # beyond the end of the recording
    ]
    moved = list(history)
    for outage in outages:
        moved = [(row[0], outage.arrival_ms(row[2], row[1]), *row[2:]) for row in moved]
    assert max(row[1] for row in moved) == last_ms + 2 * HOUR_MS
    assert sum(one != other for one, other in zip(history, moved, strict=True)) > 20
    assumed = AssumedSettings(HOUR_MS, 2 * HOUR_MS, emits_after_each_record=True, outages=outages)
    wanted = advice_request(tmp_path / "recorded", history, stream, assumed)
    assert wanted.assumed.startswith("outage of B from 2024-03-02T05:00Z")
    emitted = 'emit_interval = "30s", idle_timeout = "1h", emit = "on_event"'
    happened = advice_request(tmp_path / "happened", moved, Stream(watermark=emitted, lateness="2h"))

    result, expected = measure_delays(spark, wanted.recorded), measure_delays(spark, happened.recorded)

    assert result == expected
    advice = DelayAdvice("events", RANGE, 0.99, 0, *counts_of(result), lateness_ms=2 * HOUR_MS)
    dropped = {lateness_ms: effect.dropped for lateness_ms, effect in advice.lateness_sweep()}
    assert dropped[2 * HOUR_MS] == result.dropped.count_affected(0) > 0
    assert sorted(dropped.values(), reverse=True) == list(dropped.values())
    assert dropped[max(dropped)] == 0


def counts_of(found: DelayHistograms) -> tuple[CriticalDelays, CriticalDelays, CriticalDelays, FiringDelays]:
    return found.overdue, found.dropped, found.behind, found.firings


def test_these_streams_lose_records_and_the_timeout_matters(spark: SparkSession, tmp_path: Path) -> None:
    history = random_history(seed=4, rows=800)
    idle, never = (
        advice_request(tmp_path / name, history, STREAMS[name]).recorded for name in ("idle", "never idle")
    )

    with_timeout, without = measure_delays(spark, idle), measure_delays(spark, never)

    lost = [
        [each.dropped.count_affected(delay_ms) for delay_ms in DELAYS_MS[:8]] for each in (with_timeout, without)
    ]
    assert all(more > less for more, less in zip(*lost, strict=True))
    assert lost[0] == sorted(lost[0], reverse=True)


def test_too_many_critical_delays_are_counted_in_steps(spark: SparkSession, tmp_path: Path) -> None:
    history = random_history(seed=2, rows=800)
    wanted = advice_request(tmp_path, history, STREAMS["idle"]).recorded

    exact, stepped = measure_delays(spark, wanted), measure_delays(spark, wanted, most=300)

    step_ms = stepped.dropped.step_ms
    assert step_ms > 1
    assert len(stepped.dropped.delays_ms) < len(exact.dropped.delays_ms)
    kinds = [(exact.dropped, stepped.dropped), (exact.overdue, stepped.overdue), (exact.behind, stepped.behind)]
    for delay_ms in range(0, 10 * HOUR_MS, step_ms):
        assert all(one.count_affected(delay_ms) == other.count_affected(delay_ms) for one, other in kinds)
    assert exact.firings == stepped.firings
