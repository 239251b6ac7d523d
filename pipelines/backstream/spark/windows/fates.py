"""Cut event time into slices, and classify records by the firing times of their windows.

All events of a slice are in the same windows. So events are counted once per slice, and not once per window. If an
event arrived after its earliest window had fired, it can be late for some windows and on time for others. The
slices keep the arrival positions of such events (`late_columns`).
"""

from __future__ import annotations

import math

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backstream.eventtime.instants import MAX_MS
from backstream.eventtime.records import Fate
from backstream.eventtime.windows import Cumulate, Sliding
from backstream.spark.schemas import Step, int64_literal
from backstream.spark.watermarks.firing_times import FiringTimeColumns
from backstream.spark.windows.assignment import (
    FixedWindow,
    WindowColumns,
    latest_window_start,
    window_start_column,
    wrapping_difference,
    wrapping_sum,
    wrapping_windows,
)

SLICE = "slice_ms"
"""The column of the first millisecond of a slice."""
_LATE = "late_{}"


def slice_width_of(window: FixedWindow) -> int:
    """Return the largest width of a slice: no window begins or ends inside of a slice."""
    if isinstance(window, Sliding):
        return math.gcd(window.size_ms, window.slide_ms)
    return window.step_ms if isinstance(window, Cumulate) else window.size_ms


def window_end_columns(window: FixedWindow, time_ms: Column) -> tuple[Column, Column]:
    """Return the first and the last end of the windows of an instant; in a gap, the last is not after it."""
    size_ms, offset_ms = int64_literal(window.size_ms), int64_literal(window.offset_ms)
    if isinstance(window, Sliding):
        slide_ms = int64_literal(window.slide_ms)
        first_ms = window_start_column(time_ms, offset_ms + size_ms, slide_ms) + slide_ms
        return first_ms, window_start_column(time_ms, offset_ms, slide_ms) + size_ms
    width_ms = int64_literal(slice_width_of(window))
    return window_start_column(time_ms, offset_ms, width_ms) + width_ms, window_start_column(
        time_ms, offset_ms, size_ms
    ) + size_ms


def late_columns(judged: FiringTimeColumns | None) -> list[str]:
    """Return the columns that `add_slices` adds: the arrival position if a window may be fired, else null."""
    return [_LATE.format(name) for name in judged.position] if judged else []


def add_slices(window: FixedWindow, judged: FiringTimeColumns | None) -> Step:
    """Add `slice_ms`, and `late_columns`.

    Args:
        window: the windows.
        judged: their firing times; None if no record is late, or if the fate of a record is enough.
    """
    slice_ms = window_start_column(
        F.col("event_time_ms"), int64_literal(window.offset_ms), int64_literal(slice_width_of(window))
    )

    def step(events: DataFrame) -> DataFrame:
        slices = events.withColumn(SLICE, slice_ms)
        if judged is None:
            return slices
        earliest_ms, _ = window_end_columns(window, F.col(SLICE))
        is_late = judged.is_fired(F.greatest(judged.grid.number(earliest_ms), F.lit(0)))
        return slices.withColumns({_LATE.format(name): F.when(is_late, F.col(name)) for name in judged.position})

    return step


def timing_column(judged: FiringTimeColumns | None) -> Column:
    """Return the timing of a slice's records in the window that ends at `window_end_ms`: a value of `timing`."""
    if judged is None:
        return F.lit(Fate.ON_TIME)
    number, position = judged.grid.number(F.col("window_end_ms")), [F.col(name) for name in late_columns(judged)]
    is_fired, is_cleaned_up = judged.is_fired(number, position), judged.is_cleaned_up(number, position)
    late = F.when(is_cleaned_up, F.lit(EXPIRED)).when(is_fired, F.lit(Fate.LATE)).otherwise(F.lit(Fate.ON_TIME))
    return F.when(position[0].isNull(), F.lit(Fate.ON_TIME)).otherwise(late)


EXPIRED = "expired"
"""The timing of a record that arrived after the state of one of its windows was removed."""


def saturating_sum_ms(value_ms: Column, allowed_lateness_ms: Column) -> Column:
    """Return the sum, or +inf if it overflows: the cleanup time of a window."""
    overflows = value_ms > F.lit(MAX_MS) - allowed_lateness_ms
    return F.when(overflows, F.lit(MAX_MS)).otherwise(value_ms + allowed_lateness_ms)


def add_fates(window: WindowColumns, allowed_lateness_ms: Column) -> Step:
    """Add `fate`, which the latest window of the record decides.

    Needs `event_time_ms` and `watermark_ms`.
    """
    if window.may_overflow:
        return lambda events: events.withColumn("fate", _wrapped_fate(window, allowed_lateness_ms))
    _, end_ms = latest_window_start(window)
    max_timestamp_ms = end_ms - F.lit(1)
    watermark_ms = F.col("watermark_ms")
    is_in_gap = F.col("event_time_ms") >= end_ms
    is_behind = saturating_sum_ms(F.col("event_time_ms"), allowed_lateness_ms) <= watermark_ms
    fate = (
        F.when(is_in_gap, F.when(is_behind, F.lit(Fate.DROPPED)).otherwise(F.lit(Fate.UNASSIGNED)))
        .when(watermark_ms < max_timestamp_ms, F.lit(Fate.ON_TIME))
        .when(watermark_ms < saturating_sum_ms(max_timestamp_ms, allowed_lateness_ms), F.lit(Fate.LATE))
        .otherwise(F.lit(Fate.DROPPED))
    )
    return lambda events: events.withColumn("fate", fate)


def _wrapped_fate(window: WindowColumns, allowed_lateness_ms: Column) -> Column:
    """Return the fate near the limits of 64 bits, where the cleanup time of a window can wrap around."""
    windows, watermark_ms = wrapping_windows(window), F.col("watermark_ms")

    def is_kept(end_ms: Column) -> Column:
        return watermark_ms < saturating_sum_ms(_wrapped_max_timestamp_ms(end_ms), allowed_lateness_ms)

    latest_end_ms = F.array_max(F.transform(windows, lambda window: window.end_ms))
    latest_is_open = watermark_ms < _wrapped_max_timestamp_ms(latest_end_ms)
    another_is_kept = F.exists(windows, lambda window: is_kept(window.end_ms))
    is_behind = wrapping_sum(F.col("event_time_ms"), allowed_lateness_ms) <= watermark_ms
    return (
        F.when(latest_is_open, F.lit(Fate.ON_TIME))
        .when(another_is_kept, F.lit(Fate.LATE))
        .otherwise(F.when(is_behind, F.lit(Fate.DROPPED)).otherwise(F.lit(Fate.UNASSIGNED)))
    )


def _wrapped_max_timestamp_ms(end_ms: Column) -> Column:
    return wrapping_difference(end_ms, int64_literal(1))


def add_timing(allowed_lateness_ms: Column, *, may_overflow: bool = False) -> Step:
    """Add `timing` per record and window: on_time, late, or expired.

    Needs `window_end_ms` and `watermark_ms`.
    """
    end_ms = F.col("window_end_ms")
    max_timestamp_ms = _wrapped_max_timestamp_ms(end_ms) if may_overflow else end_ms - F.lit(1)
    window_is_open = F.col("watermark_ms") < max_timestamp_ms
    window_is_kept = F.col("watermark_ms") < saturating_sum_ms(max_timestamp_ms, allowed_lateness_ms)
    timing = (
        F.when(window_is_open, F.lit(Fate.ON_TIME))
        .when(window_is_kept, F.lit(Fate.LATE))
        .otherwise(F.lit(EXPIRED))
    )
    return lambda assigned: assigned.withColumn("timing", timing)
