"""Compute many local times at once: the firing of windows, and watermarks in local time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from backstream.eventtime.instants import DAY_MS, HOUR_MS, MAX_MS
from backstream.eventtime.time_zones import TimeZone
from backstream.source.local_times import list_local_ms
from backstream.watermarks.timeline import Longs, WatermarkTimeline, to_int64


def list_triggers_ms(zone: TimeZone | None, ends_ms: Longs) -> Longs:
    """Return `TimeZone.trigger_ms` of the last millisecond of each window."""
    last_ms = ends_ms - 1
    if zone is None:
        return last_ms
    first_ms = _list_instants_ms(zone, last_ms)
    if zone.has_daylight_saving:
        later_ms = _list_instants_ms(zone, np.minimum(last_ms, MAX_MS - DAY_MS) + HOUR_MS)
        is_missing, is_repeated = later_ms == first_ms, later_ms - first_ms > HOUR_MS
        first_ms = np.where(is_missing, first_ms - first_ms % HOUR_MS, first_ms + is_repeated * HOUR_MS)
    return np.where(last_ms >= MAX_MS - DAY_MS, last_ms, first_ms)


def _list_instants_ms(zone: TimeZone, local_ms: Longs) -> Longs:
    """Return `TimeZone.instant_ms` of each local time."""
    return local_ms - to_int64(zone.offsets_ms)[np.searchsorted(to_int64(zone.returns_ms), local_ms, side="right")]


def localize_watermarks(timeline: WatermarkTimeline, zone: TimeZone | None) -> WatermarkTimeline:
    """Return the watermarks as the last local times of windows that they fire.

    So sessions are compared with them as in UTC. There is no such time if windows fire out of order.

    Raises:
        SpecError: when the watermarks follow the clock for too long to list each of them.
    """
    if zone is None:
        return timeline
    timeline = timeline.expand()
    instants_ms = timeline.watermark_ms
    local_ms = list_local_ms(zone, instants_ms)
    for at_ms, before_ms, after_ms in zip(zone.changes_ms, zone.offsets_ms, zone.offsets_ms[1:], strict=False):
        if after_ms < before_ms:
            # Windows that end in the repeated time fire in its second half with daylight saving time, else in its
            # first half.
            shift_ms = before_ms - after_ms
            start_ms = at_ms - shift_ms if zone.has_daylight_saving else at_ms
            is_still = (instants_ms >= start_ms) & (instants_ms < start_ms + shift_ms)
            still_ms = at_ms + (after_ms if zone.has_daylight_saving else before_ms)
            local_ms = np.where(is_still, still_ms - 1, local_ms)
    return replace(timeline, watermark_ms=local_ms)
