"""Compute two arrival positions per window: when it fires, and when its state is removed.

Consecutive windows often have the same positions, e.g., in a month without records. They are one stretch, so that
the memory grows with the records, and not with the windows that are possible.

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

from backstream.errors import SpecError
from backstream.eventtime.instants import MAX_MS, MIN_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import SourceClock
from backstream.eventtime.windows import FixedWindow
from backstream.native.task import TaskFiringTimes, TaskPositions
from backstream.spark.schemas import (
    ARRIVAL_ORDER,
    IntervalColumns,
    int64_literal,
    integer_quotient,
    plan_literals,
    table_literals,
)
from backstream.spark.watermarks.timeline import WatermarkTimeline

Longs = npt.NDArray[np.int64]

_MAX_INT = 2**31 - 1
_MAX_LISTED_WINDOWS = 100_000
"""The number of windows up to which each has its own positions (3 MB), however few have records."""
_LISTED_PER_STRETCH = 96
"""The number of such windows that need as much memory as one stretch in a tree."""
_MAX_LISTED_BY_CLOCK = 50_000_000
"""The number of windows that may have positions of their own, if the watermark follows the clock (2 GB)."""
_NODES = "nodes"
_NODE_BITS, _MAX_ROOT_BITS = 6, 12
_NODE_SIZE = 1 << _NODE_BITS


@dataclass(frozen=True, slots=True)
class WindowGrid:
    """The ends of windows that start in an interval: `first_end_ms + number * step_ms`, for `count` numbers."""

    first_end_ms: int
    step_ms: int
    count: int

    @classmethod
    def from_window(cls, window: FixedWindow, interval: Interval) -> WindowGrid:
        """Return the windows that start in the interval; cumulating windows end at every step."""
        period_ms = window.start_step_ms
        first_ms = interval.start_ms + (window.offset_ms - interval.start_ms) % period_ms
        starts = max(0, -(-(interval.end_ms - first_ms) // period_ms))
        return cls(first_ms + window.first_size_ms, window.end_step_ms, starts * window.windows_per_start)

    @property
    def ends_ms(self) -> Longs:
        """All window ends, ascending."""
        return self.list_ends_ms(np.arange(self.count, dtype=np.int64))

    def list_ends_ms(self, numbers: Longs) -> Longs:
        """Return the ends of some windows."""
        return self.first_end_ms + numbers * self.step_ms

    def list_stretches(self, *changes: Longs) -> Longs:
        """Return the first windows of all stretches, ascending; all windows if that takes less memory.

        Args:
            changes: the numbers of windows whose positions may differ from those of the window before.
        """
        inside = np.unique(np.concatenate([np.zeros(1, dtype=np.int64), *changes]))
        inside = inside[(inside >= 0) & (inside < self.count)]
        is_listed = self.count <= max(_MAX_LISTED_WINDOWS, _LISTED_PER_STRETCH * len(inside))
        return np.arange(self.count, dtype=np.int64) if is_listed else inside

    def find_numbers(self, ends_ms: Interval) -> range:
        """Return the numbers of the windows that end in an interval."""
        first, stop = (
            -((self.first_end_ms - at_ms) // self.step_ms) for at_ms in (ends_ms.start_ms, ends_ms.end_ms)
        )
        return range(min(max(first, 0), self.count), min(max(stop, 0), self.count))

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
        number = integer_quotient(window_end_ms - self.first_end_ms, F.lit(self.step_ms))
        return number.cast("int" if self.count <= _MAX_INT else "long")

    def end_ms(self, number: Column) -> Column:
        """Return the end of the window with this number."""
        return number * int64_literal(self.step_ms) + self.first_end_ms


@dataclass(frozen=True, slots=True)
class ArrivalPositions:
    """Positions in arrival order, one per stretch of windows.

    A record is after a position if it is greater in that order.

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

    def for_task(self, part: slice) -> TaskPositions:
        """Return some of the positions for a task."""
        times_ms = self.arrival_time_ms[part].tolist()
        if self.arrival_seq is None:
            return TaskPositions(times_ms)
        return TaskPositions(times_ms, self.arrival_seq[part].tolist(), list(self.source_partition[part]))


@dataclass(frozen=True)
class FiringTimes:
    """Arrival positions per window of a grid: when the window fires, and when its state is removed.

    `numbers` are the first windows of the stretches. The windows up to the next one have the same positions.
    """

    grid: WindowGrid
    numbers: Longs
    fired: ArrivalPositions
    cleaned_up: ArrivalPositions

    @classmethod
    def from_timeline(
        cls,
        timeline: WatermarkTimeline,
        grid: WindowGrid,
        clock: SourceClock,
        allowed_lateness_ms: int,
        needed: Interval | None = None,
    ) -> FiringTimes:
        """Return the firing times of the windows of a grid from the watermarks of a stream.

        Args:
            timeline: the watermarks.
            grid: the windows.
            clock: the clock of the source.
            allowed_lateness_ms: the allowed lateness.
            needed: the ends of the windows that may have records; None: all. Others may get wrong positions.

        Raises:
            SpecError: when too many windows have positions of their own.
        """
        numbers = _list_stretches(timeline, grid, allowed_lateness_ms, needed)
        max_ms = grid.list_ends_ms(numbers) - 1
        # If the sum exceeds 64 bits, only +inf removes the window.
        cleanup_ms = np.where(max_ms > MAX_MS - allowed_lateness_ms, MAX_MS, max_ms + allowed_lateness_ms)
        fired, cleaned_up = (_find_positions(timeline, at_ms, clock) for at_ms in (max_ms, cleanup_ms))
        return cls(grid, numbers, fired, cleaned_up)

    @property
    def is_listed(self) -> bool:
        """True if each window is a stretch."""
        return len(self.numbers) == self.grid.count

    def for_task(self, low: int = 0, high: int | None = None) -> TaskFiringTimes:
        """Return the firing times of the windows `[low, high)` for a task; by default of all windows."""
        end = self.grid.count if high is None else high
        first = max(0, int(np.searchsorted(self.numbers, low, side="right")) - 1)
        part = slice(first, int(np.searchsorted(self.numbers, end, side="left")))
        numbers = np.maximum(self.numbers[part], low).tolist()
        return TaskFiringTimes(numbers, end, self.fired.for_task(part), self.cleaned_up.for_task(part))

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
        return F.timestamp_millis(F.nullif(self._value(f"{name}_ms", number), int64_literal(MAX_MS)))

    def _is_after(self, name: str, number: Column, position: Sequence[Column] | None) -> Column:
        time_ms, *rest = position or [F.col(column) for column in ARRIVAL_ORDER]
        window_ms = self._value(f"{name}_ms", number)
        if getattr(self.values, name).are_ticks:
            return time_ms >= window_ms
        seq, partition = rest
        window_seq = self._value(f"{name}_seq", number)
        window_partition = self._value(f"{name}_partition", number)
        is_later_in_ms = (seq > window_seq) | ((seq == window_seq) & (partition > window_partition))
        return (time_ms > window_ms) | ((time_ms == window_ms) & is_later_in_ms)

    def _value(self, name: str, number: Column) -> Column:
        """Return a value of the stretch that contains a window; null outside of the grid."""
        return F.get(self._arrays[name], number if self.values.is_listed else self._find_stretch(number))

    def _find_stretch(self, number: Column) -> Column:
        """Return the position of the stretch that contains a window, by a walk from node to node of a tree."""
        nodes, shift = self._arrays[_NODES], self._tree.root_shift
        found = F.get(nodes, F.shiftright(number, shift).cast("int"))
        while shift:
            shift -= _NODE_BITS
            digit = F.shiftright(number, shift).bitwiseAND(F.lit(_NODE_SIZE - 1)).cast("int")
            found = F.get(nodes, found + digit)
        return F.when(number.between(F.lit(0), F.lit(self.values.grid.count - 1)), found)

    @cached_property
    def _tree(self) -> _StretchTree:
        return _StretchTree.from_numbers(self.values.numbers, self.values.grid.count)

    @cached_property
    def _arrays(self) -> dict[str, Column]:
        columns: dict[str, pa.Array] = {} if self.values.is_listed else {_NODES: pa.array(self._tree.nodes)}
        for name in ("fired", "cleaned_up"):
            positions: ArrivalPositions = getattr(self.values, name)
            columns[f"{name}_ms"] = pa.array(positions.arrival_time_ms)
            if positions.arrival_seq is not None:
                columns[f"{name}_seq"] = pa.array(positions.arrival_seq)
                columns[f"{name}_partition"] = pa.array(list(positions.source_partition), pa.string())
        return table_literals(self._spark, columns)


@dataclass(frozen=True, slots=True)
class _StretchTree:
    """A tree that finds the stretch of a window by the digits of the window's number, each of `_NODE_BITS` bits.

    All nodes are in one array. The root has the start of a node for each `number >> root_shift`. Each node has the
    start of the next one by the next digit, and the last one has the position of the stretch. Windows of the same
    stretch share nodes. Spark has no search in a sorted array, and allows no function over one in a lookup.
    """

    nodes: npt.NDArray[np.int32]
    root_shift: int

    @classmethod
    def from_numbers(cls, numbers: Longs, count: int) -> _StretchTree:
        """Return the tree of the stretches that begin with some windows of `count`."""
        levels = max(0, -(-((count - 1).bit_length() - _MAX_ROOT_BITS) // _NODE_BITS))
        root_shift = shift = levels * _NODE_BITS
        first = np.arange((count - 1 >> shift) + 1, dtype=np.int64) << shift
        low, high = _stretches_of(first, shift, numbers)
        nodes, size = [], len(first)
        while shift:
            is_inner = low != high
            shared, place = np.unique(low[~is_inner], return_inverse=True)
            starts, inner = size + np.arange(is_inner.sum() + len(shared)) * _NODE_SIZE, int(is_inner.sum())
            nodes.append(np.empty(len(low), dtype=np.int64))
            nodes[-1][is_inner], nodes[-1][~is_inner] = starts[:inner], starts[inner:][place]
            shift -= _NODE_BITS
            first = (first[is_inner][:, np.newaxis] + (np.arange(_NODE_SIZE, dtype=np.int64) << shift)).ravel()
            repeated = np.repeat(shared, _NODE_SIZE)
            low, high = (np.concatenate([part, repeated]) for part in _stretches_of(first, shift, numbers))
            first = np.concatenate([first, repeated])  # the windows of a shared node are not looked up again
            size += len(first)
        return cls(np.concatenate([*nodes, low]).astype(np.int32), root_shift)


def _stretches_of(first: Longs, shift: int, numbers: Longs) -> tuple[Longs, Longs]:
    """Return the stretches of the first and the last of `1 << shift` windows each."""
    low, high = (np.searchsorted(numbers, at, side="right") - 1 for at in (first, first + (1 << shift) - 1))
    return low, high


def _list_stretches(
    timeline: WatermarkTimeline, grid: WindowGrid, allowed_lateness_ms: int, needed: Interval | None
) -> Longs:
    """Return the first windows of the stretches of windows that the same watermarks fire and remove."""
    if timeline.steps is not None:  # the watermark follows the clock, so each window has its own position
        numbers = grid.find_numbers(needed) if needed else range(grid.count)
        if len(numbers) > _MAX_LISTED_BY_CLOCK:
            msg = (
                f"the watermark follows the clock, so each of {len(numbers):,} windows that run together fires at"
                f" another time; at most {_MAX_LISTED_BY_CLOCK:,} fit into memory"
                " (watermark.strategy, window.size)\n\n"
                "hint: set a larger window.size or a shorter backfill.chunk, and backfill.max_events_per_job to 0"
            )
            raise SpecError(msg)
        return grid.list_stretches(np.arange(numbers.start, numbers.stop + 1, dtype=np.int64))
    # The first window that a watermark does not reach. A watermark near the limits of 64 bits is beyond the grid.
    bound_ms = MAX_MS // 4
    reached_ms = timeline.watermark_ms.clip(-bound_ms, bound_ms)
    lateness_ms = min(allowed_lateness_ms, bound_ms)
    changes = ((reached_ms + 1 - late_ms - grid.first_end_ms) // grid.step_ms + 1 for late_ms in (0, lateness_ms))
    return grid.list_stretches(*changes)


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
