"""Fates as columns: what became of each record, and of each record in each of its windows."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from backstream.core.fates import Fate
from backstream.core.instants import MAX_MS
from backstream.spark.schemas import Step, long
from backstream.spark.windows.assignment import (
    WindowColumns,
    latest_window_ms,
    wrapped_difference,
    wrapped_sum,
    wrapped_windows,
)

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
    if window.may_overflow:
        return lambda events: events.withColumn("fate", _wrapped_fate(window, allowed_lateness_ms))
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


def _wrapped_fate(window: WindowColumns, allowed_lateness_ms: Column) -> Column:
    """Near the limits of 64 bits a window may be gone at once though its record is not behind the watermark."""
    windows, watermark_ms = wrapped_windows(window), F.col("watermark_ms")

    def is_kept(end_ms: Column) -> Column:
        return watermark_ms < saturated_sum_ms(_wrapped_max_timestamp_ms(end_ms), allowed_lateness_ms)

    latest_end_ms = F.array_max(F.transform(windows, lambda each: each.end_ms))
    latest_waits = watermark_ms < _wrapped_max_timestamp_ms(latest_end_ms)
    another_is_kept = F.exists(windows, lambda each: is_kept(each.end_ms))
    is_behind = wrapped_sum(F.col("event_time_ms"), allowed_lateness_ms) <= watermark_ms
    return (
        F.when(latest_waits, F.lit(Fate.ON_TIME))
        .when(another_is_kept, F.lit(Fate.LATE))
        .otherwise(F.when(is_behind, F.lit(Fate.DROPPED)).otherwise(F.lit(Fate.UNASSIGNED)))
    )


def _wrapped_max_timestamp_ms(end_ms: Column) -> Column:
    return wrapped_difference(end_ms, long(1))


def timed(allowed_lateness_ms: Column, *, may_overflow: bool = False) -> Step:
    """Add `timing` per record and window: on_time, late, or expired.

    Needs `window_end_ms` and `watermark_ms`.
    """
    end_ms = F.col("window_end_ms")
    max_timestamp_ms = _wrapped_max_timestamp_ms(end_ms) if may_overflow else end_ms - F.lit(1)
    window_waits = F.col("watermark_ms") < max_timestamp_ms
    window_is_kept = F.col("watermark_ms") < saturated_sum_ms(max_timestamp_ms, allowed_lateness_ms)
    timing = (
        F.when(window_waits, F.lit(Fate.ON_TIME)).when(window_is_kept, F.lit(Fate.LATE)).otherwise(F.lit(EXPIRED))
    )
    return lambda assigned: assigned.withColumn("timing", timing)
