"""Compute two arrival positions per window: when it fires, and when its state is removed.

The watermark never falls. So two ticks of the source's clock per window classify all its records: the first tick
at which the watermark reaches the max timestamp of the window, and the first at which it reaches the max timestamp
plus the allowed lateness. Spark compares the arrival of a record with these two numbers. It needs no watermark per
record, no join, and no sort.
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
    """The ends of windows that start in an interval: `first_end_ms + number * step_ms`, for `count` numbers."""

    first_end_ms: int
    step_ms: int
    count: int

    @classmethod
    def from_window(cls, window: FixedWindow, interval: Interval) -> WindowGrid:
        """Return the windows that start in the interval; cumulating windows end at every step."""
        period_ms = window.slide_ms if isinstance(window, Sliding) else window.size_ms
        first_ms = interval.start_ms + (window.offset_ms - interval.start_ms) % period_ms
        starts = max(0, -(-(interval.end_ms - first_ms) // period_ms))
        if isinstance(window, Cumulate):
            return cls(first_ms + window.step_ms, window.step_ms, starts * (window.size_ms // window.step_ms))
        return cls(first_ms + window.size_ms, period_ms, starts)

    @property
    def ends_ms(self) -> Longs:
        """All window ends, ascending."""
        return self.first_end_ms + np.arange(self.count, dtype=np.int64) * self.step_ms

    def stretch(self, numbers: range) -> Interval:
        """Return the interval of these tumbling windows: from one step before the first end to the last end."""
        before_ms = self.first_end_ms - self.step_ms
        return Interval(before_ms + numbers.start * self.step_ms, before_ms + numbers.stop * self.step_ms)

    def as_columns(self, spark: SparkSession) -> GridColumns:
        """Return the grid as columns, with all its tumbling windows."""
        (columns,) = self.as_shared_columns(spark, [range(self.count)])
        return columns

    def as_shared_columns(self, spark: SparkSession, parts: Sequence[range]) -> list[GridColumns]:
        """Return the grid as columns once per range of window numbers, with the tumbling windows of that range."""
        intervals = [self.stretch(numbers) for numbers in parts]
        bounds_ms = [bound_ms for interval in intervals for bound_ms in (interval.start_ms, interval.end_ms)]
        first_end_ms, *columns = plan_literals(spark, self.first_end_ms, *bounds_ms)
        interval_columns = [IntervalColumns(*bounds) for bounds in zip(columns[::2], columns[1::2], strict=True)]
        return [GridColumns(first_end_ms, self.step_ms, self.count, requested) for requested in interval_columns]


@dataclass(frozen=True, slots=True)
class GridColumns:
    """A `WindowGrid` as columns; `asked` is the interval of the requested tumbling windows."""

    first_end_ms: Column
    step_ms: int
    count: int
    asked: IntervalColumns

    def number(self, window_end_ms: Column) -> Column:
        """Return the number of the window with this end; outside of the grid it is below 0, or `count` or more."""
        return integer_quotient(window_end_ms - self.first_end_ms, F.lit(self.step_ms)).cast("int")

    def end_ms(self, number: Column) -> Column:
        """Return the end of the window with this number."""
        return number * int64_literal(self.step_ms) + self.first_end_ms


@dataclass(frozen=True, slots=True)
class ArrivalPositions:
    """Positions in arrival order, one per window: a record is after a position if it is greater in that order.

    A tick precedes the records of its millisecond, so it has the sequence -inf. If a record moves the watermark,
    the position is that of the record. `MAX_MS` means that only the end of input is after it.
    """

    arrival_time_ms: Longs
    arrival_seq: Longs | None = None
    source_partition: Sequence[str] = ()

    @property
    def are_ticks(self) -> bool:
        """True if all positions are ticks, so that only the arrival time is compared."""
        return self.arrival_seq is None


@dataclass(frozen=True)
class FiringTimes:
    """Arrival positions per window of a grid: when the window fires, and when its state is removed."""

    grid: WindowGrid
    fired: ArrivalPositions
    cleaned_up: ArrivalPositions

    @classmethod
    def from_timeline(
        cls, timeline: WatermarkTimeline, grid: WindowGrid, clock: SourceClock, allowed_lateness_ms: int
    ) -> FiringTimes:
        """Return the firing times of the windows of a grid from the watermarks of a stream."""
        max_ms = grid.ends_ms - 1
        # If the sum exceeds 64 bits, only +inf removes the window.
        cleanup_ms = np.where(max_ms > MAX_MS - allowed_lateness_ms, MAX_MS, max_ms + allowed_lateness_ms)
        return cls(grid, _find_positions(timeline, max_ms, clock), _find_positions(timeline, cleanup_ms, clock))

    def as_columns(self, spark: SparkSession) -> FiringTimeColumns:
        """Return the firing times as columns."""
        return FiringTimeColumns(spark, self)


class FiringTimeColumns:
    """Firing times as columns. Spark gets the arrays once, as the only row of a scalar subquery."""

    def __init__(self, spark: SparkSession, values: FiringTimes) -> None:
        self._spark, self.values = spark, values

    @property
    def position(self) -> tuple[str, ...]:
        """The columns of a record's arrival position that a comparison needs."""
        are_ticks = self.values.fired.are_ticks and self.values.cleaned_up.are_ticks
        return ARRIVAL_ORDER[:1] if are_ticks else ARRIVAL_ORDER

    @cached_property
    def grid(self) -> GridColumns:
        """The grid that numbers the windows."""
        return self.values.grid.as_columns(self._spark)

    def is_fired(self, number: Column, position: Sequence[Column] | None = None) -> Column:
        """Return whether the window fired before the record arrived; null for a number outside of the grid.

        Args:
            number: the number of the window in the grid.
            position: values of the columns of `position`; None to use the record's own columns.
        """
        return self._is_after("fired", number, position)

    def is_cleaned_up(self, number: Column, position: Sequence[Column] | None = None) -> Column:
        """Return whether the window's state was removed before the record arrived; null outside of the grid."""
        return self._is_after("cleaned_up", number, position)

    def fired_at(self, number: Column) -> Column:
        """Return when the window fired on time by the source's clock; null if only the end of input fired it."""
        return self._instant("fired", number)

    def cleaned_up_at(self, number: Column) -> Column:
        """Return when the state of the window was removed by the source's clock."""
        return self._instant("cleaned_up", number)

    def _instant(self, name: str, number: Column) -> Column:
        return F.timestamp_millis(F.nullif(F.get(self._arrays[f"{name}_ms"], number), int64_literal(MAX_MS)))

    def _is_after(self, name: str, number: Column, position: Sequence[Column] | None) -> Column:
        time_ms, *rest = position or [F.col(column) for column in ARRIVAL_ORDER]
        window_ms = F.get(self._arrays[f"{name}_ms"], number)
        if getattr(self.values, name).are_ticks:
            return time_ms >= window_ms
        seq, partition = rest
        window_seq = F.get(self._arrays[f"{name}_seq"], number)
        window_partition = F.get(self._arrays[f"{name}_partition"], number)
        is_later_in_ms = (seq > window_seq) | ((seq == window_seq) & (partition > window_partition))
        return (time_ms > window_ms) | ((time_ms == window_ms) & is_later_in_ms)

    @cached_property
    def _arrays(self) -> dict[str, Column]:
        columns: dict[str, pa.Array] = {}
        for name in ("fired", "cleaned_up"):
            positions: ArrivalPositions = getattr(self.values, name)
            columns[f"{name}_ms"] = pa.array(positions.arrival_time_ms)
            if positions.arrival_seq is not None:
                columns[f"{name}_seq"] = pa.array(positions.arrival_seq)
                columns[f"{name}_partition"] = pa.array(list(positions.source_partition), pa.string())
        return table_literals(self._spark, columns)


def _find_positions(timeline: WatermarkTimeline, event_times_ms: Longs, clock: SourceClock) -> ArrivalPositions:
    """Return the arrival position at which the watermark first reaches each event time."""
    if not any(timeline.marker_positions):
        ticks = timeline.first_tick_at(event_times_ms)
        is_end = ticks == MAX_MS
        ticks_ms = clock.start_ms + np.where(is_end, 0, ticks) * clock.interval_ms
        return ArrivalPositions(np.where(is_end, MAX_MS, ticks_ms))
    positions = [*timeline.arrival_positions(clock), (MAX_MS, MIN_MS, "")]
    reached = [positions[rise] for rise in timeline.first_rise_at(event_times_ms).tolist()]
    times_ms, seqs, partitions = zip(*reached, strict=True)
    return ArrivalPositions(np.array(times_ms), np.array(seqs), partitions)
