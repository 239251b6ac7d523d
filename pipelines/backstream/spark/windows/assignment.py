"""Assign windows with column expressions, in integer milliseconds; `pmod`, since `%` truncates below zero."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backstream.eventtime.windows import Cumulate, FixedWindow, Sliding
from backstream.spark.schemas import Step, int64_literal, integer_quotient


def window_start_column(event_time_ms: Column, offset_ms: Column, size_ms: Column) -> Column:
    """Return `eventtime.windows.window_start_ms` without wrapping at 64 bits."""
    return event_time_ms - F.pmod(event_time_ms - offset_ms, size_ms)


def latest_window_start(window: FixedWindow) -> tuple[Column, Column]:
    """Return start and end of the latest window that could have `event_time_ms`.

    If the slide is larger than the size, the event may be after that end, in a gap between windows.
    """
    step_ms, offset_ms = int64_literal(window.start_step_ms), int64_literal(window.offset_ms)
    start_ms = window_start_column(F.col("event_time_ms"), offset_ms, step_ms)
    return start_ms, start_ms + int64_literal(window.size_ms)


def assign_windows(window: FixedWindow) -> Step:
    """Return one row per record and window of the record, with `window_start_ms` and `window_end_ms`."""
    start_ms, end_ms = latest_window_start(window)

    def step(events: DataFrame) -> DataFrame:
        latest = events.withColumns({"window_start_ms": start_ms, "window_end_ms": end_ms})
        if isinstance(window, Sliding):
            return _explode_sliding(latest, window)
        return _explode_cumulating(latest, window) if isinstance(window, Cumulate) else latest

    return step


def _explode_sliding(latest: DataFrame, window: Sliding) -> DataFrame:
    """Return the latest window and the earlier ones, one slide apart, that have the event."""
    slide_ms, room_ms = int64_literal(window.slide_ms), F.col("window_end_ms") - F.lit(1) - F.col("event_time_ms")
    back = F.explode(F.sequence(F.lit(0).cast("long"), integer_quotient(room_ms, slide_ms)))
    exploded = latest.where(room_ms >= F.lit(0)).withColumn("back", back)
    back_ms = F.col("back") * slide_ms
    moved = {name: F.col(name) - back_ms for name in ("window_start_ms", "window_end_ms")}
    return exploded.withColumns(moved).drop("back")


def _explode_cumulating(latest: DataFrame, window: Cumulate) -> DataFrame:
    """Return the shortest window that has the event, and each longer one up to the full size."""
    elapsed_ms, step_ms = F.col("event_time_ms") - F.col("window_start_ms"), int64_literal(window.step_ms)
    first, last = integer_quotient(elapsed_ms, step_ms) + F.lit(1), int64_literal(window.size_ms // window.step_ms)
    exploded = latest.withColumn("steps", F.explode(F.sequence(first, last)))
    return exploded.withColumn("window_end_ms", F.col("window_start_ms") + F.col("steps") * step_ms).drop("steps")
