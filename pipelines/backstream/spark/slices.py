"""Slices: stretches of event time whose events are in the same windows, so that events are counted before windows.

An event of a sliding window is in many windows, but slices hold it once. Only what arrived when the earliest of
its windows had fired is kept apart by its arrival: it can be late for some windows and in time for others.
"""

from __future__ import annotations

import math

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backstream.core.fates import Fate
from backstream.core.windows import Cumulate, Sliding
from backstream.spark.fates import EXPIRED
from backstream.spark.schemas import Step, long
from backstream.spark.thresholds import JudgedBy
from backstream.spark.windows import FixedWindow, window_start_ms

SLICE = "slice_ms"
"""The slice's first millisecond."""
_LATE = "late_{}"


def slice_width_ms(window: FixedWindow) -> int:
    """The widest stretch that no window begins or ends within."""
    if isinstance(window, Sliding):
        return math.gcd(window.size_ms, window.slide_ms)
    return window.step_ms if isinstance(window, Cumulate) else window.size_ms


def late_columns(judged: JudgedBy | None) -> list[str]:
    """What `sliced` adds for records that some window may be late for: their place in arrival order, else null."""
    return [_LATE.format(name) for name in judged.position] if judged else []


def sliced(window: FixedWindow, judged: JudgedBy | None) -> Step:
    """Add `slice_ms`, and `late_columns`.

    Args:
        window: what slices are made for.
        judged: how lateness is told; None: nothing is late, or the record's fate says all.
    """
    slice_ms = window_start_ms(F.col("event_time_ms"), long(window.offset_ms), long(slice_width_ms(window)))

    def step(events: DataFrame) -> DataFrame:
        slices = events.withColumn(SLICE, slice_ms)
        if judged is None:
            return slices
        is_late = judged.is_fired(_earliest_end_ms(window, judged))
        return slices.withColumns({_LATE.format(name): F.when(is_late, F.col(name)) for name in judged.position})

    return step


def _earliest_end_ms(window: FixedWindow, judged: JudgedBy) -> Column:
    """The end of the first window that holds the slice and that the chunk owns."""
    slide_ms = window.slide_ms if isinstance(window, Sliding) else slice_width_ms(window)
    last_end_ms = window_start_ms(F.col(SLICE), long(window.offset_ms + window.size_ms), long(slide_ms))
    return F.greatest(last_end_ms + long(slide_ms), long(judged.thresholds.grid.first_end_ms))


def timing_in(judged: JudgedBy | None) -> Column:
    """Of a slice's records in the window that ends at `window_end_ms`: on_time, late, or expired."""
    if judged is None:
        return F.lit(Fate.ON_TIME)
    end_ms, place = F.col("window_end_ms"), [F.col(name) for name in late_columns(judged)]
    is_fired, is_gone = judged.is_fired(end_ms, place), judged.is_gone(end_ms, place)
    late = F.when(is_gone, F.lit(EXPIRED)).when(is_fired, F.lit(Fate.LATE)).otherwise(F.lit(Fate.ON_TIME))
    return F.when(place[0].isNull(), F.lit(Fate.ON_TIME)).otherwise(late)
