"""Give Spark the firing times of windows as columns, so that a record is classified by comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from backstream.eventtime.instants import MAX_MS
from backstream.spark.schemas import (
    ARRIVAL_ORDER,
    IntervalColumns,
    Step,
    int64_literal,
    integer_quotient,
    plan_literals,
    table_literals,
)
from backstream.watermarks.firing_times import ArrivalPositions, FiringTimes, WindowGrid
from backstream.watermarks.timeline import Longs

_MAX_INT = 2**31 - 1
_NODES = "nodes"
_NODE_BITS, _MAX_ROOT_BITS = 6, 12
_NODE_SIZE = 1 << _NODE_BITS


@dataclass(frozen=True, slots=True)
class GridColumns:
    """A `WindowGrid` as columns; `requested` are the event times of the requested windows."""

    first_end_ms: Column
    step_ms: int
    count: int
    requested: IntervalColumns

    @classmethod
    def from_grid(cls, spark: SparkSession, grid: WindowGrid) -> Self:
        """Return the columns of a grid, with all its windows."""
        (columns,) = cls.from_ranges(spark, grid, [range(grid.count)])
        return columns

    @classmethod
    def from_ranges(cls, spark: SparkSession, grid: WindowGrid, parts: Sequence[range]) -> list[Self]:
        """Return the columns of a grid once per range of window numbers, with the windows of that range."""
        spans = [grid.span(numbers) for numbers in parts]
        bounds_ms = [bound_ms for span in spans for bound_ms in (span.start_ms, span.end_ms)]
        first_end_ms, *columns = plan_literals(spark, grid.first_end_ms, *bounds_ms)
        intervals = [IntervalColumns(*bounds) for bounds in zip(columns[::2], columns[1::2], strict=True)]
        return [cls(first_end_ms, grid.step_ms, grid.count, requested) for requested in intervals]

    def number(self, window_end_ms: Column) -> Column:
        """Return the number of the window with this end; outside of the grid it is below 0, or `count` or more."""
        number = integer_quotient(window_end_ms - self.first_end_ms, F.lit(self.step_ms))
        return number.cast("int" if self.count <= _MAX_INT else "long")

    def end_ms(self, number: Column) -> Column:
        """Return the end of the window with this number."""
        return number * int64_literal(self.step_ms) + self.first_end_ms


class FiringTimeColumns:
    """Firing times as columns. Spark gets the arrays once, as the only row of a scalar subquery."""

    def __init__(self, spark: SparkSession, values: FiringTimes) -> None:
        self._spark, self.values = spark, values

    @property
    def position(self) -> tuple[str, ...]:
        """The columns of a record's arrival position that a comparison needs."""
        return ARRIVAL_ORDER[:1] if self.values.are_ticks else ARRIVAL_ORDER

    @cached_property
    def grid(self) -> GridColumns:
        """The grid that numbers the windows."""
        return GridColumns.from_grid(self._spark, self.values.grid)

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

    def add_undecided(self, first: Column, last: Column) -> Step:
        """Add `is_undecided`: lost logs would show if the record is late for a window, from `first` to `last`."""
        windows = pa.table(
            {
                "undecided_ms": pa.array(self.values.undecided, pa.int64()),
                "windows": [{"start": each.start, "stop": each.stop} for each in self.values.undecided.values()],
            }
        )
        by_arrival = F.broadcast(self._spark.createDataFrame(windows))
        is_undecided = (last >= F.col("windows.start")) & (first < F.col("windows.stop"))

        def step(events: DataFrame) -> DataFrame:
            joined = events.join(by_arrival, F.col("arrival_time_ms") == F.col("undecided_ms"), "left")
            marked = joined.withColumn("is_undecided", F.coalesce(is_undecided, F.expr("false")))
            return marked.drop("undecided_ms", "windows")

        return step

    def ever_fires(self, number: Column) -> Column:
        """Return whether the window fires at all: always, unless the stream has no end."""
        if self.values.fires_at_end:
            return F.lit(True)  # noqa: FBT003 - a column
        return self._value("fired_ms", number) < int64_literal(MAX_MS)

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
