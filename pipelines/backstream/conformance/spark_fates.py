"""Classify the records of conformance cases by the watermark in force.

A run knows the arrival at which each window fires and is cleaned up, because its records share one stream. Each
case has its own stream, so that its records are compared with the watermark. Both follow the same rule:
`spark.windows.fates.timing_of`. Only cases near the limits of 64 bits, where sums wrap around, have another one.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from backstream.eventtime.records import Fate
from backstream.spark.schemas import Step, int64_literal
from backstream.spark.windows.assignment import (
    WindowColumns,
    latest_window_start,
    wrapping_difference,
    wrapping_sum,
    wrapping_windows,
)
from backstream.spark.windows.fates import EXPIRED, fate_in_gap, saturating_sum_ms, timing_of


def add_fates(window: WindowColumns, allowed_lateness_ms: Column) -> Step:
    """Add `fate`, which the latest window of the record decides.

    Needs `event_time_ms` and `watermark_ms`.
    """
    if window.may_overflow:
        return lambda events: events.withColumn("fate", _wrapped_fate(window, allowed_lateness_ms))
    _, end_ms = latest_window_start(window)
    fate = _timing(end_ms - F.lit(1), allowed_lateness_ms, Fate.DROPPED)
    is_in_gap = F.col("event_time_ms") >= end_ms
    fate = F.when(is_in_gap, fate_in_gap(allowed_lateness_ms)).otherwise(fate)
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
    timing = _timing(max_timestamp_ms, allowed_lateness_ms, EXPIRED)
    return lambda assigned: assigned.withColumn("timing", timing)


def _timing(max_timestamp_ms: Column, allowed_lateness_ms: Column, after_cleanup: str) -> Column:
    watermark_ms = F.col("watermark_ms")
    cleanup_ms = saturating_sum_ms(max_timestamp_ms, allowed_lateness_ms)
    return timing_of(watermark_ms >= max_timestamp_ms, watermark_ms >= cleanup_ms, after_cleanup)
