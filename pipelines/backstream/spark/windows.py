"""Window assignment as column expressions; integer milliseconds, and `pmod`, since `%` truncates below zero."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backstream.core.windows import Cumulate, Sliding, Tumbling
from backstream.spark.schemas import Step, integer_quotient

FixedWindow = Tumbling | Sliding | Cumulate
"""Windows that depend on the event time alone; sessions depend on other events."""


@dataclass(frozen=True, slots=True)
class WindowColumns:
    """A window's parameters as columns: literals in a run, a row's own where many streams are played at once.

    `step_ms` is the slide, a cumulating window's step, or a tumbling window's size.
    """

    kind: type[FixedWindow]
    size_ms: Column
    step_ms: Column
    offset_ms: Column

    @classmethod
    def of(cls, window: FixedWindow) -> WindowColumns:
        """The parameters of one window as literals."""
        values = (window.size_ms, step_ms(window), window.offset_ms)
        return cls(type(window), *(F.lit(value).cast("long") for value in values))


def step_ms(window: FixedWindow) -> int:
    """How far apart windows start (cumulating ones: end)."""
    if isinstance(window, Tumbling):
        return window.size_ms
    return window.slide_ms if isinstance(window, Sliding) else window.step_ms


def window_start_ms(event_time_ms: Column, offset_ms: Column, size_ms: Column) -> Column:
    """Twin of `core.windows.window_start_ms`, without wrapping at 64 bits."""
    return event_time_ms - F.pmod(event_time_ms - offset_ms, size_ms)


def latest_window_ms(window: WindowColumns) -> tuple[Column, Column]:
    """Start and end of the latest window that could hold `event_time_ms`.

    With slide > size the event may lie past that end, in a hole.
    """
    every_ms = window.step_ms if window.kind is Sliding else window.size_ms
    start_ms = window_start_ms(F.col("event_time_ms"), window.offset_ms, every_ms)
    return start_ms, start_ms + window.size_ms


def windowed(window: WindowColumns) -> Step:
    """One row per record and window that holds it, with `window_start_ms` and `window_end_ms`."""
    start_ms, end_ms = latest_window_ms(window)

    def step(events: DataFrame) -> DataFrame:
        latest = events.withColumns({"window_start_ms": start_ms, "window_end_ms": end_ms})
        if window.kind is Tumbling:
            return latest
        return _slid(latest, window) if window.kind is Sliding else _cumulated(latest, window)

    return step


def _slid(latest: DataFrame, window: WindowColumns) -> DataFrame:
    """The latest window and those before it, back by one slide after the other while they hold the event."""
    room_ms = F.col("window_end_ms") - F.lit(1) - F.col("event_time_ms")
    back = F.explode(F.sequence(F.lit(0).cast("long"), integer_quotient(room_ms, window.step_ms)))
    exploded = latest.where(room_ms >= F.lit(0)).withColumn("back", back)
    back_ms = F.col("back") * window.step_ms
    moved = {name: F.col(name) - back_ms for name in ("window_start_ms", "window_end_ms")}
    return exploded.withColumns(moved).drop("back")


def _cumulated(latest: DataFrame, window: WindowColumns) -> DataFrame:
    """The shortest window that holds the event, and each longer one up to the full size."""
    elapsed_ms = F.col("event_time_ms") - F.col("window_start_ms")
    first = integer_quotient(elapsed_ms, window.step_ms) + F.lit(1)
    steps = F.explode(F.sequence(first, integer_quotient(window.size_ms, window.step_ms)))
    exploded = latest.withColumn("steps", steps)
    return exploded.withColumn("window_end_ms", F.col("window_start_ms") + F.col("steps") * window.step_ms).drop(
        "steps"
    )
