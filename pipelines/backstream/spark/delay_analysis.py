"""Compute the critical delays of all records of a range with one aggregation; see `eventtime.delay_analysis`."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from backstream.definition.model import Definition
from backstream.eventtime.delay_analysis import CriticalDelays, FiringDelays
from backstream.eventtime.emission import Emission
from backstream.eventtime.instants import HOUR_MS, MIN_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.outages import Outage
from backstream.eventtime.records import SourceClock
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy
from backstream.eventtime.watermark_holders import ArrivalBucket
from backstream.eventtime.windows import FixedWindow
from backstream.runs.plan import InputFile
from backstream.spark import source
from backstream.spark.schemas import Step, int64_literal
from backstream.spark.source import EventFiles
from backstream.spark.watermarks.join import add_watermarks
from backstream.spark.watermarks.stream_reader import SparkReader
from backstream.spark.windows.assignment import (
    latest_window_start,
    window_start_column,
)
from backstream.watermarks.streams import StreamPart, timeline_of_files
from backstream.watermarks.timeline import WatermarkTimeline

MAX_ROWS = 1_000_000
"""The largest number of rows of a histogram on the driver.

If the critical delays of a range span up to a quarter of an hour, the histogram is exact at 1 ms. Otherwise delays
are counted in steps of 10 ms, 100 ms, and so on.
"""

_OVERDUE, _DROPPED, _BEHIND, _SLICE = "overdue", "dropped", "behind", "slice"
_MAX_STRETCHES = 2_000
"""The largest number of stretches into which the arrivals of a partition are divided."""
_NEVER = -1
"""The critical delay of an effect that occurs with no delay."""


@dataclass(frozen=True, slots=True)
class AnalysisRange:
    """A range of recorded events, and the stream that it is a part of.

    `near` is the interval of all event times that a window of the range can have. `files` are all files of the
    stream, since a watermark depends on all earlier arrivals. `columns` are read from them, with Spark SQL types.
    In each of the `outages`, the records of a partition are assumed to arrive at the end.
    """

    definition: Definition
    window: FixedWindow
    clock: SourceClock
    interval: Interval
    near: Interval
    files: Sequence[InputFile]
    columns: Mapping[str, str]
    outages: Sequence[Outage] = ()


@dataclass(frozen=True, slots=True)
class DelayHistograms:
    """The histograms of critical delays, and the delays of firings."""

    overdue: CriticalDelays
    dropped: CriticalDelays
    behind: CriticalDelays
    firings: FiringDelays


def measure_delays(
    spark: SparkSession,
    recorded: AnalysisRange,
    on_pass: Callable[[str], None] = lambda _: None,
    most: int = MAX_ROWS,
) -> DelayHistograms:
    """Return the effect of every delay on the records of a range.

    Args:
        spark: the session.
        recorded: the range and its stream.
        on_pass: called with the name of each of the two passes over the data when it begins.
        most: the largest number of histogram rows that the driver loads.
    """
    on_pass("watermarks")
    timeline = _undelayed_timeline(spark, recorded)
    on_pass("critical delays")
    lateness_ms = recorded.definition.lateness.allowed
    counts = (
        _load_records(spark, recorded)
        .transform(add_watermarks(spark, timeline, recorded.clock))
        .transform(_add_critical_delays(recorded.window, lateness_ms, recorded.interval))
    )
    table, histogram_step_ms = _collect_counts(counts, most)
    kinds = {kind: _pairs(table, kind) for kind in (_OVERDUE, _DROPPED, _BEHIND, _SLICE)}
    records = sum(count for _, count in kinds[_OVERDUE])
    delays = {kind: [pair for pair in kinds[kind] if pair[0] >= 0] for kind in (_OVERDUE, _DROPPED)}
    return DelayHistograms(
        CriticalDelays.from_counts(delays[_OVERDUE], records, histogram_step_ms),
        CriticalDelays.from_counts(delays[_DROPPED], records, histogram_step_ms),
        CriticalDelays.from_counts(kinds[_BEHIND], sum(count for _, count in kinds[_BEHIND]), histogram_step_ms),
        _firing_delays(timeline, recorded, [start_ms for start_ms, _ in kinds[_SLICE]]),
    )


def _undelayed_timeline(spark: SparkSession, recorded: AnalysisRange) -> WatermarkTimeline:
    """Return the watermarks of the whole stream for a delay of 0."""
    definition = recorded.definition

    def readable(paths: Sequence[str]) -> DataFrame:
        # Markers of punctuated watermarks have no effect here.
        return _load_readable(spark, recorded, paths).drop(source.MARKER)

    stream, schema = EventFiles(spark, recorded.files, readable), source.read_schema(recorded.columns)
    part = StreamPart(recorded.files, recorded.clock, _emission_without_delay(definition))
    expected = definition.quality.named_partitions
    return timeline_of_files(SparkReader(stream, definition, schema), part, expected)


def load_arrival_buckets(spark: SparkSession, recorded: AnalysisRange) -> tuple[list[ArrivalBucket], int]:
    """Return the arrivals of the whole stream by partition and stretch of time, and the length of a stretch."""
    clock = recorded.clock
    width_ms = max(HOUR_MS, (clock.end_ms - clock.start_ms) // _MAX_STRETCHES)
    paths = [file.path for file in recorded.files if file.rows]
    rows = (
        _load_readable(spark, recorded, paths)
        .groupBy("source_partition", F.floor(F.col("arrival_time_ms") / F.lit(width_ms)).alias("stretch"))
        .agg(
            F.min("arrival_time_ms").alias("first_arrival_ms"),
            F.max("arrival_time_ms").alias("last_arrival_ms"),
            F.max("event_time_ms").alias("last_event_ms"),
            F.count(F.lit(1)).alias("events"),
        )
        .select(*ArrivalBucket._fields)
    )
    return [ArrivalBucket(**row) for row in rows.toArrow().to_pylist()], width_ms


def _emission_without_delay(definition: Definition) -> Emission:
    """Return the emission of the definition, with bounded generators and a delay of 0 in all its sources."""
    emission = definition.emission
    if not emission.sources:
        return replace(emission, strategy=_strategy_without_delay(emission.strategy))
    sources = [replace(source, strategy=_strategy_without_delay(source.strategy)) for source in emission.sources]
    return Emission.from_sources(sources, emission.topology)


def _strategy_without_delay(strategy: WatermarkStrategy) -> WatermarkStrategy:
    return WatermarkStrategy(StrategyKind.BOUNDED, 0, strategy.interval_ms, strategy.idle_timeout_ms)


def _load_readable(spark: SparkSession, recorded: AnalysisRange, paths: Sequence[str]) -> DataFrame:
    """Return the readable records of files, with their assumed arrivals."""
    events = (
        source.load_files(spark, paths, source.read_schema(recorded.columns))
        .transform(source.normalize_events(recorded.definition))
        .where(F.col(source.REASON).isNull())
    )
    arrival_ms = F.col("arrival_time_ms")
    for outage in recorded.outages:
        start_ms, end_ms = (int64_literal(bound) for bound in (outage.interval.start_ms, outage.interval.end_ms))
        is_hit = (F.col("source_partition") == F.lit(outage.source_partition)) & (arrival_ms >= start_ms)
        arrival_ms = F.when(is_hit & (arrival_ms < end_ms), end_ms).otherwise(arrival_ms)
    return events.withColumn("arrival_time_ms", arrival_ms) if recorded.outages else events


def _load_records(spark: SparkSession, recorded: AnalysisRange) -> DataFrame:
    """Return the readable records that windows of the range can have, without duplicates."""
    events = EventFiles(spark, recorded.files, partial(_load_readable, spark, recorded))
    return events.unique_events(recorded.definition.source.identity, recorded.near)


def _add_critical_delays(window: FixedWindow, allowed_lateness_ms: int, interval: Interval) -> Step:
    """Count critical delays: rows of `kind`, `value_ms`, and `records`.

    Needs `event_time_ms`, and `watermark_ms` at delay 0. A record is in the range if its latest window starts
    there. The kinds are: late or dropped, dropped, behind the watermark (without records that arrived at watermark
    -inf), and the slices of time that have records of windows of the range.
    """
    start_ms, _ = latest_window_start(window)
    is_in_range = (start_ms >= F.lit(interval.start_ms)) & (start_ms < F.lit(interval.end_ms))
    overdue_ms, dropped_ms, behind_ms = _critical_ms(window, allowed_lateness_ms)
    never = int64_literal(_NEVER)  # greatest() ignores null, the value at watermark -inf
    slice_ms = window_start_column(
        F.col("event_time_ms"), int64_literal(window.offset_ms), int64_literal(window.slice_ms)
    )
    values = {
        _OVERDUE: F.when(is_in_range, F.greatest(overdue_ms, never)),
        _DROPPED: F.when(is_in_range, F.greatest(dropped_ms, never)),
        _BEHIND: F.when(is_in_range, behind_ms),
        _SLICE: slice_ms,
    }
    pairs = [F.struct(F.lit(kind).alias("kind"), value.alias("value_ms")) for kind, value in values.items()]

    def step(events: DataFrame) -> DataFrame:
        rows = events.select(F.inline(F.array(*pairs))).where(F.col("value_ms").isNotNull())
        return rows.groupBy("kind", "value_ms").agg(F.count(F.lit(1)).alias("records"))

    return step


def _critical_ms(window: FixedWindow, allowed_lateness_ms: int) -> tuple[Column, Column, Column]:
    """Return the greatest delays at which the record is late or dropped, dropped, and behind; null at -inf."""
    event_ms, lateness_ms = F.col("event_time_ms"), int64_literal(allowed_lateness_ms)
    undelayed_ms = F.when(F.col("watermark_ms") > F.lit(MIN_MS), F.col("watermark_ms"))
    _, end_ms = latest_window_start(window)
    is_in_gap = event_ms >= end_ms
    behind_ms = undelayed_ms - event_ms
    overdue_ms = undelayed_ms - (end_ms - F.lit(1))
    gap_ms = behind_ms - lateness_ms  # in a gap no record is late, only dropped
    return (
        F.when(is_in_gap, gap_ms).otherwise(overdue_ms),
        F.when(is_in_gap, gap_ms).otherwise(overdue_ms - lateness_ms),
        behind_ms,
    )


def _collect_counts(counts: DataFrame, most: int) -> tuple[pa.Table, int]:
    """Return the counts, and the step of delays in ms: 1 ms if there are at most `most` of them."""
    is_delay = F.col("kind") != F.lit(_SLICE)
    persisted = counts.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        selected, width_ms = persisted, 1
        while selected.where(is_delay).count() > most:
            width_ms *= 10
            selected = _round_delays(persisted, width_ms)
        return selected.toArrow(), width_ms
    finally:
        persisted.unpersist()


def _round_delays(counts: DataFrame, width_ms: int) -> DataFrame:
    """Round critical delays down.

    Slices stay exact, since windows are computed from them. They are as few as the windows of a run.
    """
    floor_ms = window_start_column(F.col("value_ms"), int64_literal(0), int64_literal(width_ms))
    is_slice = F.col("kind") == F.lit(_SLICE)
    rounded = counts.withColumn("value_ms", F.when(is_slice, F.col("value_ms")).otherwise(floor_ms))
    return rounded.groupBy("kind", "value_ms").agg(F.sum("records").alias("records"))


def _pairs(table: pa.Table, kind: str) -> list[tuple[int, int]]:
    rows = table.filter(pa.compute.equal(table["kind"], kind))
    return list(zip(rows["value_ms"].to_pylist(), rows["records"].to_pylist(), strict=True))


def _firing_delays(timeline: WatermarkTimeline, recorded: AnalysisRange, slices_ms: Sequence[int]) -> FiringDelays:
    """Return the ends of all windows of the range with records, and the rises that fire them."""
    windows = {window for slice_ms in slices_ms for window in recorded.window.assign(slice_ms)}
    span = recorded.interval
    ends_ms = {window.end_ms for window in windows if span.start_ms <= window.start_ms < span.end_ms}
    rise_times_ms = (at_ms for at_ms, _, _ in timeline.arrival_positions(recorded.clock))
    watermark_ms = timeline.watermark_ms.tolist()
    return FiringDelays(
        array("q", sorted(ends_ms)), array("q", watermark_ms), array("q", rise_times_ms), recorded.clock.end_ms
    )
