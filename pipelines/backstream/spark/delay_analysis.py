"""The critical delays of all records of a range, in one aggregation: twin of the formulas of `core.advice`."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from backstream.definition.model import Definition
from backstream.eventtime.delay_analysis import CriticalDelays, FiringDelays
from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import SourceClock
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy
from backstream.eventtime.watermarks import Emission
from backstream.runs.plan import InputFile
from backstream.spark import source
from backstream.spark.schemas import IntervalColumns, Step, int64_literal
from backstream.spark.source import EventFiles as Stream
from backstream.spark.watermarks.join import add_watermarks
from backstream.spark.watermarks.partial_streams import timeline_of_files
from backstream.spark.watermarks.resolve import list_expected_partitions
from backstream.spark.watermarks.timeline import WatermarkTimeline
from backstream.spark.windows.assignment import (
    FixedWindow,
    WindowColumns,
    end_step_ms,
    latest_window_start,
    window_start_column,
)

MOST_ROWS = 1_000_000
"""Of a histogram on the driver. A spread of critical delays over a quarter of an hour, at every millisecond of it,
is exact; beyond, delays are counted in steps of 10 ms, 100 ms, and so on."""

OVERDUE, DROPPED, BEHIND, SLICE = "overdue", "dropped", "behind", "slice"
_NEVER = -1
"""A critical delay of what happens at no delay."""


@dataclass(frozen=True, slots=True)
class AnalysisRange:
    """A range of recorded events, and the stream it is part of.

    `near` spans every event time that a window of the range can hold, and `near_paths` name the files that may
    have some. `files` are all of the stream, since a watermark rests on all that arrived before. `columns` are
    what is read of them, with Spark SQL types.
    """

    definition: Definition
    window: FixedWindow
    clock: SourceClock
    interval: Interval
    near: Interval
    files: Sequence[InputFile]
    near_paths: Sequence[str]
    columns: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DelayHistograms:
    """What the range tells about delays."""

    overdue: CriticalDelays
    dropped: CriticalDelays
    behind: CriticalDelays
    firings: FiringDelays


def measure_delays(
    spark: SparkSession,
    recorded: AnalysisRange,
    tell: Callable[[str], None] = lambda _: None,
    most: int = MOST_ROWS,
) -> DelayHistograms:
    """What every delay would have done to the records of a range.

    Args:
        spark: the session.
        recorded: the range and its stream.
        tell: called with the name of each of the two passes over the data as it begins.
        most: how many rows of a histogram the driver takes.
    """
    tell("watermarks")
    found = _undelayed(spark, recorded)
    tell("critical delays")
    lateness_ms = recorded.definition.lateness.allowed
    counts = (
        _records(spark, recorded)
        .transform(add_watermarks(spark, found, recorded.clock))
        .transform(add_critical_delays(recorded.window, lateness_ms, recorded.interval))
    )
    table, histogram_step_ms = collect_counts(counts, most)
    kinds = {kind: _pairs(table, kind) for kind in (OVERDUE, DROPPED, BEHIND, SLICE)}
    records = sum(count for _, count in kinds[OVERDUE])
    delays = {kind: [pair for pair in kinds[kind] if pair[0] >= 0] for kind in (OVERDUE, DROPPED)}
    return DelayHistograms(
        CriticalDelays.from_counts(delays[OVERDUE], records, histogram_step_ms),
        CriticalDelays.from_counts(delays[DROPPED], records, histogram_step_ms),
        CriticalDelays.from_counts(kinds[BEHIND], sum(count for _, count in kinds[BEHIND]), histogram_step_ms),
        _firings(found, recorded, [start_ms for start_ms, _ in kinds[SLICE]]),
    )


def _undelayed(spark: SparkSession, recorded: AnalysisRange) -> WatermarkTimeline:
    """The watermarks of the whole stream if the delay were 0."""
    definition = recorded.definition

    def readable(paths: Sequence[str]) -> DataFrame:
        events = source.load_files(spark, paths, source.read_schema(recorded.columns)).transform(
            source.normalize_events(definition)
        )
        # What punctuated watermarks are marked by means nothing here.
        return events.where(F.col(source.REASON).isNull()).drop(source.MARKER)

    stream, expected = Stream(spark, recorded.files, readable), list_expected_partitions(definition)
    return timeline_of_files(stream, without_delay(definition), recorded.clock, expected)


def without_delay(definition: Definition) -> Emission:
    """The definition's own source, with bounded generators and a delay of 0."""
    section = definition.watermark
    strategy = WatermarkStrategy(StrategyKind.BOUNDED, 0, section.emit_interval, section.idle_timeout)
    return replace(section.spec(), strategy=strategy)


def _records(spark: SparkSession, recorded: AnalysisRange) -> DataFrame:
    """The readable records that windows of the range can hold, each once."""
    is_near = IntervalColumns.from_interval(spark, recorded.near).hold(F.col("event_time_ms"))
    events = (
        source.load_files(spark, recorded.near_paths, source.read_schema(recorded.columns))
        .transform(source.normalize_events(recorded.definition))
        .where(F.col(source.REASON).isNull() & is_near)
        .transform(source.mark_duplicates(recorded.definition.source.deduplicate_on))
    )
    return events.where(~F.col("is_duplicate"))


def add_critical_delays(window: FixedWindow, allowed_lateness_ms: int, interval: Interval) -> Step:
    """Count critical delays: rows of `kind`, `value_ms` and `records`.

    Needs `event_time_ms`, and as `watermark_ms` the watermark that the record met at delay 0. A record is of the
    range if its latest window starts there. Kinds are late or dropped, dropped, behind the watermark (no row for a
    record that met -inf), and the slices of time that hold records of any window of the range.
    """
    start_ms, _ = latest_window_start(WindowColumns.from_window(window))
    is_ours = (start_ms >= F.lit(interval.start_ms)) & (start_ms < F.lit(interval.end_ms))
    overdue_ms, dropped_ms, behind_ms = _critical_ms(window, allowed_lateness_ms)
    never = int64_literal(_NEVER)  # greatest() passes over a null, which stands for a record that met -inf
    slice_ms = window_start_column(
        F.col("event_time_ms"), int64_literal(window.offset_ms), int64_literal(_slice_ms(window))
    )
    values = {
        OVERDUE: F.when(is_ours, F.greatest(overdue_ms, never)),
        DROPPED: F.when(is_ours, F.greatest(dropped_ms, never)),
        BEHIND: F.when(is_ours, behind_ms),
        SLICE: slice_ms,
    }
    pairs = [F.struct(F.lit(kind).alias("kind"), value.alias("value_ms")) for kind, value in values.items()]

    def step(events: DataFrame) -> DataFrame:
        rows = events.select(F.inline(F.array(*pairs))).where(F.col("value_ms").isNotNull())
        return rows.groupBy("kind", "value_ms").agg(F.count(F.lit(1)).alias("records"))

    return step


def _critical_ms(window: FixedWindow, allowed_lateness_ms: int) -> tuple[Column, Column, Column]:
    """Greatest delays at which the record is late or dropped, dropped, and behind; null if it met -inf."""
    event_ms, lateness_ms = F.col("event_time_ms"), int64_literal(allowed_lateness_ms)
    met_ms = F.when(F.col("watermark_ms") > F.lit(MIN_MS), F.col("watermark_ms"))
    _, end_ms = latest_window_start(WindowColumns.from_window(window))
    is_in_hole = event_ms >= end_ms
    behind_ms = met_ms - event_ms
    overdue_ms = met_ms - (end_ms - F.lit(1))
    hole_ms = behind_ms - lateness_ms  # in a hole nothing is late, so one is overdue only when dropped
    return (
        F.when(is_in_hole, hole_ms).otherwise(overdue_ms),
        F.when(is_in_hole, hole_ms).otherwise(overdue_ms - lateness_ms),
        behind_ms,
    )


def _slice_ms(window: FixedWindow) -> int:
    """Records of one slice are in the same windows, since no window begins or ends inside it."""
    return math.gcd(window.size_ms, end_step_ms(window))


def collect_counts(counts: DataFrame, most: int) -> tuple[pa.Table, int]:
    """The counts on the driver, and the step in which delays are counted: 1 ms if they are no more than `most`."""
    is_delay = F.col("kind") != F.lit(SLICE)
    kept = counts.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        wanted, width_ms = kept, 1
        while wanted.where(is_delay).count() > most:
            width_ms *= 10
            wanted = _coarser(kept, width_ms)
        return wanted.toArrow(), width_ms
    finally:
        kept.unpersist()


def _coarser(counts: DataFrame, width_ms: int) -> DataFrame:
    """Critical delays rounded down; slices stay: windows, of which a run has a row each, need them."""
    floor_ms = window_start_column(F.col("value_ms"), int64_literal(0), int64_literal(width_ms))
    is_slice = F.col("kind") == F.lit(SLICE)
    rounded = counts.withColumn("value_ms", F.when(is_slice, F.col("value_ms")).otherwise(floor_ms))
    return rounded.groupBy("kind", "value_ms").agg(F.sum("records").alias("records"))


def _pairs(table: pa.Table, kind: str) -> list[tuple[int, int]]:
    mine = table.filter(pa.compute.equal(table["kind"], kind))
    return list(zip(mine["value_ms"].to_pylist(), mine["records"].to_pylist(), strict=True))


def _firings(found: WatermarkTimeline, recorded: AnalysisRange, slices_ms: Sequence[int]) -> FiringDelays:
    """The ends of all windows of the range that hold records, and the rises that fire them."""
    windows = {window for slice_ms in slices_ms for window in recorded.window.assign(slice_ms)}
    span = recorded.interval
    ends_ms = {each.end_ms for each in windows if span.start_ms <= each.start_ms < span.end_ms}
    risen_at_ms = (at_ms for at_ms, _, _ in found.arrival_positions(recorded.clock))
    watermark_ms = found.watermark_ms.tolist()
    return FiringDelays(
        array("q", sorted(ends_ms)), array("q", watermark_ms), array("q", risen_at_ms), recorded.clock.end_ms
    )
