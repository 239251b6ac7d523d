"""Fates as columns: what became of each record, and of each record in each of its windows."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from backstream.core.fates import Fate
from backstream.core.instants import MAX_MS
from backstream.spark.schemas import Step
from backstream.spark.windows import WindowColumns, latest_window_ms

EXPIRED = "expired"
"""In one window: the record came when that window was gone."""


def saturated_sum_ms(value_ms: Column, allowed_lateness_ms: Column) -> Column:
    """`value + lateness`, +inf when that overflows: the cleanup time of a window."""
    overflows = value_ms > F.lit(MAX_MS) - allowed_lateness_ms
    return F.when(overflows, F.lit(MAX_MS)).otherwise(value_ms + allowed_lateness_ms)


def fated(window: WindowColumns, allowed_lateness_ms: Column) -> Step:
    """Add `fate`: what became of the record, judged by the latest of its windows.

    Needs `event_time_ms` and `watermark_ms`.
    """
    _, end_ms = latest_window_ms(window)
    max_timestamp_ms = end_ms - F.lit(1)
    watermark_ms = F.col("watermark_ms")
    is_in_hole = F.col("event_time_ms") >= end_ms
    is_behind = saturated_sum_ms(F.col("event_time_ms"), allowed_lateness_ms) <= watermark_ms
    fate = (
        F.when(is_in_hole, F.when(is_behind, F.lit(Fate.DROPPED)).otherwise(F.lit(Fate.UNASSIGNED)))
        .when(watermark_ms < max_timestamp_ms, F.lit(Fate.ON_TIME))
        .when(watermark_ms < saturated_sum_ms(max_timestamp_ms, allowed_lateness_ms), F.lit(Fate.LATE))
        .otherwise(F.lit(Fate.DROPPED))
    )
    return lambda events: events.withColumn("fate", fate)


def timed(allowed_lateness_ms: Column) -> Step:
    """Add `timing` per record and window: on_time, late, or expired.

    Needs `window_end_ms` and `watermark_ms`.
    """
    max_timestamp_ms = F.col("window_end_ms") - F.lit(1)
    window_waits = F.col("watermark_ms") < max_timestamp_ms
    window_is_kept = F.col("watermark_ms") < saturated_sum_ms(max_timestamp_ms, allowed_lateness_ms)
    timing = (
        F.when(window_waits, F.lit(Fate.ON_TIME)).when(window_is_kept, F.lit(Fate.LATE)).otherwise(F.lit(EXPIRED))
    )
    return lambda assigned: assigned.withColumn("timing", timing)
