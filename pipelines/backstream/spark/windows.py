"""Window assignment as column expressions; integer milliseconds, and `pmod`, since `%` truncates below zero."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backstream.core.windows import Cumulate, Sliding, Tumbling
from backstream.spark.schemas import Step

FixedWindow = Tumbling | Sliding | Cumulate
"""Windows that depend on the event time alone; sessions depend on other events."""


def window_start_ms(event_time_ms: Column, offset_ms: int, size_ms: int) -> Column:
    """Twin of `core.windows.window_start_ms`, without wrapping at 64 bits."""
    return event_time_ms - F.pmod(event_time_ms - F.lit(offset_ms), F.lit(size_ms))


def latest_window_ms(window: FixedWindow) -> tuple[Column, Column]:
    """Start and end of the latest window that could hold `event_time_ms`.

    With slide > size the event may lie past that end, in a hole.
    """
    step_ms = window.slide_ms if isinstance(window, Sliding) else window.size_ms
    start_ms = window_start_ms(F.col("event_time_ms"), window.offset_ms, step_ms)
    return start_ms, start_ms + F.lit(window.size_ms)


def windowed(window: FixedWindow) -> Step:
    """One row per record and window that holds it, with `window_start_ms` and `window_end_ms`."""

    def step(events: DataFrame) -> DataFrame:
        start_ms, end_ms = latest_window_ms(window)
        if isinstance(window, Tumbling):
            return events.withColumns({"window_start_ms": start_ms, "window_end_ms": end_ms})
        if isinstance(window, Cumulate):
            return _cumulated(events, window, start_ms)
        return _slid(events, window, start_ms)

    return step


def _slid(events: DataFrame, window: Sliding, last_start_ms: Column) -> DataFrame:
    starts = -(-window.size_ms // window.slide_ms)
    back_ms = F.explode(F.array(*(F.lit(number * window.slide_ms) for number in range(starts))))
    exploded = events.withColumn("window_start_ms", last_start_ms).withColumn("back_ms", back_ms)
    start_ms = F.col("window_start_ms") - F.col("back_ms")
    holds_event = F.col("event_time_ms") < F.col("window_end_ms")
    return (
        exploded.withColumns({"window_start_ms": start_ms, "window_end_ms": start_ms + F.lit(window.size_ms)})
        .where(holds_event)
        .drop("back_ms")
    )


def _cumulated(events: DataFrame, window: Cumulate, start_ms: Column) -> DataFrame:
    steps = window.size_ms // window.step_ms
    end_ms = F.explode(F.array(*(F.lit(number * window.step_ms) for number in range(1, steps + 1))))
    exploded = events.withColumn("window_start_ms", start_ms).withColumn("window_end_ms", end_ms)
    ended = exploded.withColumn("window_end_ms", F.col("window_start_ms") + F.col("window_end_ms"))
    return ended.where(F.col("event_time_ms") < F.col("window_end_ms"))
