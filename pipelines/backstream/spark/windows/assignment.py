"""Assign windows with column expressions, in integer milliseconds; `pmod`, since `%` truncates below zero."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.windows import Cumulate, Sliding, Tumbling
from backstream.spark.schemas import Step, int64_literal, integer_quotient

FixedWindow = Tumbling | Sliding | Cumulate
"""A window that depends only on the event time; a session depends on other events."""


@dataclass(frozen=True, slots=True)
class WindowColumns:
    """The parameters of a window as columns.

    They are literals in a run, and columns of the row if several streams are replayed in one job. `step_ms` is the
    slide, the step of a cumulating window, or the size of a tumbling window. If `may_overflow`, times are so close
    to the limits of 64 bits that sums wrap around, as in Java. No calendar date is that far away.
    """

    kind: type[FixedWindow]
    size_ms: Column
    step_ms: Column
    offset_ms: Column
    may_overflow: bool = False

    @classmethod
    def from_window(cls, window: FixedWindow) -> WindowColumns:
        """Return the parameters of one window as literals."""
        return cls(
            type(window),
            int64_literal(window.size_ms),
            int64_literal(end_step_ms(window)),
            int64_literal(window.offset_ms),
        )


def end_step_ms(window: FixedWindow) -> int:
    """Return the distance between two window starts, or between two ends of cumulating windows."""
    if isinstance(window, Tumbling):
        return window.size_ms
    return window.slide_ms if isinstance(window, Sliding) else window.step_ms


def wrapping_sum(one: Column, other: Column) -> Column:
    """Return `one + other` as a Java `long`; Spark's own sum fails on overflow under ANSI rules."""
    return F.coalesce(F.try_add(one, other), F.try_add(_far(one), _far(other)))


def wrapping_difference(one: Column, other: Column) -> Column:
    """Return `one - other` as a Java `long`."""
    return F.coalesce(F.try_subtract(one, other), F.try_subtract(_far(one), _far(other)))


def _far(value: Column) -> Column:
    """Return the value 2^63 away, across zero; two such steps are the 2^64 by which a sum wraps around.

    It flips a bit, since Spark would combine the constants of two additions, and they overflow.
    """
    return value.bitwiseXOR(F.lit(MIN_MS))


def window_start_column(event_time_ms: Column, offset_ms: Column, size_ms: Column) -> Column:
    """Return `eventtime.windows.window_start_ms` without wrapping at 64 bits."""
    return event_time_ms - F.pmod(event_time_ms - offset_ms, size_ms)


def latest_window_start(window: WindowColumns) -> tuple[Column, Column]:
    """Return start and end of the latest window that could have `event_time_ms`.

    If the slide is larger than the size, the event may be after that end, in a gap between windows.
    """
    every_ms = window.step_ms if window.kind is Sliding else window.size_ms
    start_ms = window_start_column(F.col("event_time_ms"), window.offset_ms, every_ms)
    return start_ms, start_ms + window.size_ms


def assign_windows(window: WindowColumns) -> Step:
    """Return one row per record and window of the record, with `window_start_ms` and `window_end_ms`."""
    if window.may_overflow:
        return lambda events: _explode_wrapping_windows(events, window)
    start_ms, end_ms = latest_window_start(window)

    def step(events: DataFrame) -> DataFrame:
        latest = events.withColumns({"window_start_ms": start_ms, "window_end_ms": end_ms})
        if window.kind is Tumbling:
            return latest
        return _explode_sliding(latest, window) if window.kind is Sliding else _explode_cumulating(latest, window)

    return step


def _explode_sliding(latest: DataFrame, window: WindowColumns) -> DataFrame:
    """Return the latest window and the earlier ones, one slide apart, that have the event."""
    room_ms = F.col("window_end_ms") - F.lit(1) - F.col("event_time_ms")
    back = F.explode(F.sequence(F.lit(0).cast("long"), integer_quotient(room_ms, window.step_ms)))
    exploded = latest.where(room_ms >= F.lit(0)).withColumn("back", back)
    back_ms = F.col("back") * window.step_ms
    moved = {name: F.col(name) - back_ms for name in ("window_start_ms", "window_end_ms")}
    return exploded.withColumns(moved).drop("back")


def _explode_cumulating(latest: DataFrame, window: WindowColumns) -> DataFrame:
    """Return the shortest window that has the event, and each longer one up to the full size."""
    elapsed_ms = F.col("event_time_ms") - F.col("window_start_ms")
    first = integer_quotient(elapsed_ms, window.step_ms) + F.lit(1)
    steps = F.explode(F.sequence(first, integer_quotient(window.size_ms, window.step_ms)))
    exploded = latest.withColumn("steps", steps)
    return exploded.withColumn("window_end_ms", F.col("window_start_ms") + F.col("steps") * window.step_ms).drop(
        "steps"
    )


def wrapping_windows(window: WindowColumns) -> Column:
    """Return all windows of `event_time_ms` as an array of `start_ms` and `end_ms`, in Java arithmetic."""
    every_ms = window.step_ms if window.kind is Sliding else window.size_ms
    into_ms = F.pmod(wrapping_difference(F.col("event_time_ms"), window.offset_ms), every_ms)
    latest_ms = wrapping_difference(F.col("event_time_ms"), into_ms)
    none, first = int64_literal(0), integer_quotient(into_ms, window.step_ms) + F.lit(1)
    steps = {
        Tumbling: F.array(none),
        Sliding: F.sequence(none, integer_quotient(window.size_ms - F.lit(1) - into_ms, window.step_ms)),
        Cumulate: F.sequence(first, integer_quotient(window.size_ms, window.step_ms)),
    }

    def bounds(step: Column) -> Column:
        start_ms = wrapping_difference(latest_ms, step * window.step_ms) if window.kind is Sliding else latest_ms
        size_ms = step * window.step_ms if window.kind is Cumulate else window.size_ms
        return F.struct(start_ms.alias("start_ms"), wrapping_sum(start_ms, size_ms).alias("end_ms"))

    # Flink's loop over slides compares wrapped times. If only one of the two wraps, no window has the event.
    is_held = latest_ms > wrapping_difference(F.col("event_time_ms"), window.size_ms)
    is_in_gap = (into_ms >= window.size_ms) | ~is_held if window.kind is Sliding else F.expr("false")
    return F.transform(F.when(~is_in_gap, steps[window.kind]), bounds)


def _explode_wrapping_windows(events: DataFrame, window: WindowColumns) -> DataFrame:
    exploded = events.withColumn("window", F.explode(wrapping_windows(window)))
    return exploded.withColumns(
        {"window_start_ms": F.col("window.start_ms"), "window_end_ms": F.col("window.end_ms")}
    ).drop("window")
