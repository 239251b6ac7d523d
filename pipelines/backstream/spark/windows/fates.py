"""Cut event time into slices, and classify records by the firing times of their windows.

All events of a slice are in the same windows. So events are counted once per slice, and not once per window. If an
event arrived after its earliest window had fired, it can be late for some windows and on time for others. The
slices keep the arrival positions of such events (`late_columns`).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backstream.eventtime.instants import MAX_MS
from backstream.eventtime.records import Fate
from backstream.eventtime.windows import FixedWindow, Sliding
from backstream.spark.schemas import Step, int64_literal
from backstream.spark.watermarks.firing_time_columns import FiringTimeColumns
from backstream.spark.windows.assignment import (
    window_start_column,
)

SLICE = "slice_ms"
"""The column of the first millisecond of a slice."""
EXPIRED = "expired"
"""The timing of a record that arrived after the state of one of its windows was removed."""
_LATE = "late_{}"


def timing_of(is_fired: Column, is_cleaned_up: Column, after_cleanup: str) -> Column:
    """Return the timing of a record in a window, or its fate by its latest window.

    `eventtime.window_operator` has the rule in plain Python.

    Args:
        is_fired: whether the window had fired before the record arrived; null, which counts as false, for a window
            of another chunk.
        is_cleaned_up: whether the state of the window had been removed.
        after_cleanup: the result for a record after the removal: expired, or dropped.
    """
    late = F.when(is_cleaned_up, F.lit(after_cleanup)).otherwise(F.lit(Fate.LATE))
    return F.when(is_fired, late).otherwise(F.lit(Fate.ON_TIME))


def undecided_fate(timing: Column) -> Column:
    """Return the fate of a record by its timing and `is_undecided`."""
    return (
        F.when(~F.col("is_undecided"), timing)
        .when(timing == F.lit(Fate.ON_TIME), F.lit(Fate.UNDECIDED_COUNTED))
        .when(timing == F.lit(Fate.DROPPED), F.lit(Fate.UNDECIDED_DROPPED))
        .otherwise(timing)
    )


def fate_in_gap(allowed_lateness_ms: Column) -> Column:
    """Return the fate of a record without a window, from `event_time_ms` and `watermark_ms`.

    Flink drops it if the watermark has reached its event time plus the allowed lateness.
    """
    is_behind = _saturating_sum_ms(F.col("event_time_ms"), allowed_lateness_ms) <= F.col("watermark_ms")
    return F.when(is_behind, F.lit(Fate.DROPPED)).otherwise(F.lit(Fate.UNASSIGNED))


def window_end_columns(window: FixedWindow, time_ms: Column) -> tuple[Column, Column]:
    """Return the first and the last end of the windows of an instant; in a gap, the last is not after it."""
    size_ms, offset_ms = int64_literal(window.size_ms), int64_literal(window.offset_ms)
    if isinstance(window, Sliding):
        slide_ms = int64_literal(window.slide_ms)
        first_ms = window_start_column(time_ms, offset_ms + size_ms, slide_ms) + slide_ms
        return first_ms, window_start_column(time_ms, offset_ms, slide_ms) + size_ms
    width_ms = int64_literal(window.slice_ms)
    return window_start_column(time_ms, offset_ms, width_ms) + width_ms, window_start_column(
        time_ms, offset_ms, size_ms
    ) + size_ms


def late_columns(firing_times: FiringTimeColumns | None) -> list[str]:
    """Return the columns that `add_slices` adds: the arrival position if a window may be fired, else null."""
    return [_LATE.format(name) for name in firing_times.position] if firing_times else []


def add_slices(window: FixedWindow, firing_times: FiringTimeColumns | None) -> Step:
    """Add `slice_ms`, and `late_columns`.

    Args:
        window: the windows.
        firing_times: their firing times; None if no record is late, or if the fate of a record is enough.
    """
    slice_ms = window_start_column(
        F.col("event_time_ms"), int64_literal(window.offset_ms), int64_literal(window.slice_ms)
    )

    def step(events: DataFrame) -> DataFrame:
        slices = events.withColumn(SLICE, slice_ms)
        if firing_times is None:
            return slices
        earliest_ms, _ = window_end_columns(window, F.col(SLICE))
        is_late = firing_times.is_fired(F.greatest(firing_times.grid.number(earliest_ms), F.lit(0)))
        return slices.withColumns(
            {_LATE.format(name): F.when(is_late, F.col(name)) for name in firing_times.position}
        )

    return step


def timing_column(firing_times: FiringTimeColumns | None) -> Column:
    """Return the timing of a slice's records in the window that ends at `window_end_ms`: a value of `timing`."""
    if firing_times is None:
        return F.lit(Fate.ON_TIME)
    number = firing_times.grid.number(F.col("window_end_ms"))
    position = [F.col(name) for name in late_columns(firing_times)]
    timing = timing_of(
        firing_times.is_fired(number, position), firing_times.is_cleaned_up(number, position), EXPIRED
    )
    return F.when(position[0].isNull(), F.lit(Fate.ON_TIME)).otherwise(timing)


def _saturating_sum_ms(value_ms: Column, allowed_lateness_ms: Column) -> Column:
    """Return the sum, or +inf if it overflows: the cleanup time of a window."""
    overflows = value_ms > F.lit(MAX_MS) - allowed_lateness_ms
    return F.when(overflows, F.lit(MAX_MS)).otherwise(value_ms + allowed_lateness_ms)
