"""What lateness means per window: from which arrival on a record finds it fired, and from which gone.

The watermark only rises, so for a window two instants of the source's clock decide about all records: the first
tick at which the watermark reaches the window's last millisecond, and the first at which it reaches that plus the
allowed lateness. A record is then judged by comparing its arrival with two numbers of its window: no watermark
per record, no join, no sort.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from backstream.eventtime.instants import MAX_MS, MIN_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import SourceClock
from backstream.eventtime.windows import Cumulate, Sliding
from backstream.spark.schemas import (
    ARRIVAL_ORDER,
    IntervalColumns,
    int64_literal,
    integer_quotient,
    plan_literals,
    table_literals,
)
from backstream.spark.watermarks.timeline import WatermarkTimeline
from backstream.spark.windows.assignment import FixedWindow

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class WindowGrid:
    """The ends of the windows that start in a chunk: `first_end_ms + number * step_ms`, `count` of them."""

    first_end_ms: int
    step_ms: int
    count: int

    @classmethod
    def from_window(cls, window: FixedWindow, interval: Interval) -> WindowGrid:
        """The windows that start in the interval; cumulating ones end at every step."""
        every_ms = window.slide_ms if isinstance(window, Sliding) else window.size_ms
        first_ms = interval.start_ms + (window.offset_ms - interval.start_ms) % every_ms
        starts = max(0, -(-(interval.end_ms - first_ms) // every_ms))
        if isinstance(window, Cumulate):
            return cls(first_ms + window.step_ms, window.step_ms, starts * (window.size_ms // window.step_ms))
        return cls(first_ms + window.size_ms, every_ms, starts)

    @property
    def ends_ms(self) -> Longs:
        """All of them, ascending."""
        return self.first_end_ms + np.arange(self.count, dtype=np.int64) * self.step_ms

    def stretch(self, numbers: range) -> Interval:
        """From one step before the first of these ends to the last: all that tumbling windows hold."""
        before_ms = self.first_end_ms - self.step_ms
        return Interval(before_ms + numbers.start * self.step_ms, before_ms + numbers.stop * self.step_ms)

    def as_columns(self, spark: SparkSession) -> GridColumns:
        """The same as columns."""
        (columns,) = self.as_shared_columns(spark, [range(self.count)])
        return columns

    def as_shared_columns(self, spark: SparkSession, parts: Sequence[range]) -> list[GridColumns]:
        """As columns that ask for some of its tumbling windows, by number, and again for others."""
        spans = [self.stretch(numbers) for numbers in parts]
        bounds_ms = [bound_ms for span in spans for bound_ms in (span.start_ms, span.end_ms)]
        first_end_ms, *columns = plan_literals(spark, self.first_end_ms, *bounds_ms)
        asked = [IntervalColumns(*bounds) for bounds in zip(columns[::2], columns[1::2], strict=True)]
        return [GridColumns(first_end_ms, self.step_ms, self.count, each) for each in asked]


@dataclass(frozen=True, slots=True)
class GridColumns:
    """A `WindowGrid` in a plan; `asked` is the stretch of the tumbling windows that are asked for."""

    first_end_ms: Column
    step_ms: int
    count: int
    asked: IntervalColumns

    def number(self, window_end_ms: Column) -> Column:
        """A window's number; below 0 or beyond `count` for one that is not in the grid."""
        return integer_quotient(window_end_ms - self.first_end_ms, F.lit(self.step_ms)).cast("int")

    def end_ms(self, number: Column) -> Column:
        """The end of the window with that number."""
        return number * int64_literal(self.step_ms) + self.first_end_ms


@dataclass(frozen=True, slots=True)
class ArrivalPositions:
    """Places in arrival order, one per window: a record comes after one iff it is greater in that order.

    A tick comes before the records of its millisecond: it has the sequence -inf. Where the watermark moves with a
    record, the place is that record's. `MAX_MS`: no record comes after it, only the end of input.
    """

    arrival_time_ms: Longs
    arrival_seq: Longs | None = None
    source_partition: Sequence[str] = ()

    @property
    def are_ticks(self) -> bool:
        """Whether all places are ticks, so that the arrival time alone decides."""
        return self.arrival_seq is None


@dataclass(frozen=True)
class FiringTimes:
    """Per window of a grid, where in arrival order it fires and where it is gone."""

    grid: WindowGrid
    fired: ArrivalPositions
    cleaned_up: ArrivalPositions

    @classmethod
    def from_timeline(
        cls, heard: WatermarkTimeline, grid: WindowGrid, clock: SourceClock, allowed_lateness_ms: int
    ) -> FiringTimes:
        """What a stream's watermarks mean for the windows of a grid."""
        last_ms = grid.ends_ms - 1
        # Nothing is gone before +inf where the lateness is larger than time itself.
        gone_ms = np.where(last_ms > MAX_MS - allowed_lateness_ms, MAX_MS, last_ms + allowed_lateness_ms)
        return cls(grid, _positions(heard, last_ms, clock), _positions(heard, gone_ms, clock))

    def as_columns(self, spark: SparkSession) -> FiringTimeColumns:
        """The same as columns."""
        return FiringTimeColumns(spark, self)


class FiringTimeColumns:
    """Thresholds as columns. The arrays travel once, as the one row of a scalar subquery."""

    def __init__(self, spark: SparkSession, thresholds: FiringTimes) -> None:
        self._spark, self.thresholds = spark, thresholds

    @property
    def position(self) -> tuple[str, ...]:
        """The columns that place a record in arrival order as far as these thresholds ask."""
        are_ticks = self.thresholds.fired.are_ticks and self.thresholds.cleaned_up.are_ticks
        return ARRIVAL_ORDER[:1] if are_ticks else ARRIVAL_ORDER

    @cached_property
    def grid(self) -> GridColumns:
        """The windows that are numbered."""
        return self.thresholds.grid.as_columns(self._spark)

    def is_fired(self, number: Column, position: Sequence[Column] | None = None) -> Column:
        """Whether the record meets a window that has fired; null for a number outside the grid.

        Args:
            number: the window's in the grid.
            position: values of `position` instead of the record's own columns.
        """
        return self._is_after("fired", number, position)

    def is_cleaned_up(self, number: Column, position: Sequence[Column] | None = None) -> Column:
        """Whether the record meets a window that is gone; null for a number outside the grid."""
        return self._is_after("gone", number, position)

    def fired_at(self, number: Column) -> Column:
        """When the window fired on time by the source's clock; null: only the end of input fired it."""
        return self._instant("fired", number)

    def cleaned_up_at(self, number: Column) -> Column:
        """When the window was forgotten by the source's clock."""
        return self._instant("gone", number)

    def _instant(self, name: str, number: Column) -> Column:
        return F.timestamp_millis(F.nullif(F.get(self._arrays[f"{name}_ms"], number), int64_literal(MAX_MS)))

    def _is_after(self, name: str, number: Column, position: Sequence[Column] | None) -> Column:
        time_ms, *rest = position or [F.col(column) for column in ARRIVAL_ORDER]
        at_ms = F.get(self._arrays[f"{name}_ms"], number)
        if getattr(self.thresholds, name).are_ticks:
            return time_ms >= at_ms
        seq, partition = rest
        at_seq = F.get(self._arrays[f"{name}_seq"], number)
        at_partition = F.get(self._arrays[f"{name}_partition"], number)
        is_behind = (seq > at_seq) | ((seq == at_seq) & (partition > at_partition))
        return (time_ms > at_ms) | ((time_ms == at_ms) & is_behind)

    @cached_property
    def _arrays(self) -> dict[str, Column]:
        columns: dict[str, pa.Array] = {}
        for name in ("fired", "gone"):
            places: ArrivalPositions = getattr(self.thresholds, name)
            columns[f"{name}_ms"] = pa.array(places.arrival_time_ms)
            if places.arrival_seq is not None:
                columns[f"{name}_seq"] = pa.array(places.arrival_seq)
                columns[f"{name}_partition"] = pa.array(list(places.source_partition), pa.string())
        return table_literals(self._spark, columns)


def _positions(heard: WatermarkTimeline, event_times_ms: Longs, clock: SourceClock) -> ArrivalPositions:
    """Where the watermark first reaches each event time."""
    if not any(heard.marker_positions):
        blocks = heard.first_tick_at(event_times_ms)
        ticks_ms = clock.start_ms + np.where(blocks == MAX_MS, 0, blocks) * clock.interval_ms
        return ArrivalPositions(np.where(blocks == MAX_MS, MAX_MS, ticks_ms))
    places = [*heard.arrival_positions(clock), (MAX_MS, MIN_MS, "")]
    reached = [places[rise] for rise in heard.first_rise_at(event_times_ms).tolist()]
    times_ms, seqs, partitions = zip(*reached, strict=True)
    return ArrivalPositions(np.array(times_ms), np.array(seqs), partitions)
