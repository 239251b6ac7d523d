"""Test that arrays of local times and firings are those of the rule in plain Python."""

from __future__ import annotations

import numpy as np
import pytest

from backstream.eventtime.instants import HOUR_MS, MAX_MS, MIN_MS, MINUTE_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import SourceClock
from backstream.eventtime.time_zones import TimeZone, load_time_zone
from backstream.eventtime.windows import Tumbling
from backstream.source.local_times import list_local_ms
from backstream.watermarks import firing_times
from backstream.watermarks.firing_times import FiringTimes, WindowGrid
from backstream.watermarks.local_times import list_triggers_ms, localize_watermarks
from backstream.watermarks.timeline import WatermarkTimeline, to_int64

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Pyongyang")


def near_changes(zone: TimeZone) -> list[int]:
    """Return instants of the last years with changes of clocks, some milliseconds and hours around each."""
    steps = [number * 10 * MINUTE_MS + extra for number in range(-20, 20) for extra in (-1, 0, 1)]
    return [at_ms + step for at_ms in zone.changes_ms[-160::20] for step in steps]


def timeline_of(watermarks_ms: list[int]) -> WatermarkTimeline:
    ticks = np.arange(1, len(watermarks_ms) + 1)
    return WatermarkTimeline(to_int64(watermarks_ms), ticks, ticks, True, [None] * len(ticks))  # noqa: FBT003 - a field


@pytest.mark.parametrize("name", ZONES)
def test_arrays_have_the_values_of_the_rule(name: str) -> None:
    zone = load_time_zone(name)
    times_ms = [*near_changes(zone), MIN_MS + 1, MAX_MS]

    assert list_local_ms(zone, to_int64(times_ms[:-2])).tolist() == [
        zone.local_ms(at_ms) for at_ms in times_ms[:-2]
    ]
    assert list_triggers_ms(zone, to_int64(times_ms)).tolist()[:-2] == [
        zone.trigger_ms(at_ms - 1) for at_ms in times_ms[:-2]
    ]
    assert list_local_ms(zone, to_int64([MIN_MS + 1, MAX_MS])).tolist() == [MIN_MS + 1, MAX_MS]


@pytest.mark.parametrize("name", ZONES)
def test_a_local_watermark_reaches_the_ends_that_the_watermark_fires(name: str) -> None:
    zone, compared = load_time_zone(name), 0
    for change_ms in zone.changes_ms[-60::7]:
        if zone.list_disorders(Interval(change_ms, change_ms + 1)):
            continue
        watermarks_ms = sorted(
            {change_ms + number * 20 * MINUTE_MS + add for number in range(-9, 9) for add in (-1, 0)}
        )
        local = localize_watermarks(timeline_of(watermarks_ms), zone).watermark_ms.tolist()
        assert local == sorted(local)
        for end_ms in range(
            zone.local_ms(change_ms) - 3 * HOUR_MS, zone.local_ms(change_ms) + 3 * HOUR_MS, 599_999
        ):
            reached = [zone.trigger_ms(end_ms - 1) <= watermark_ms for watermark_ms in watermarks_ms]
            assert reached == [end_ms - 1 <= local_ms for local_ms in local]
            compared += 1

    assert compared or name in {"Asia/Pyongyang", "Australia/Lord_Howe"}


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("name", ZONES)
def test_windows_fire_at_the_first_tick_whose_watermark_reaches_their_trigger(
    name: str, is_listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_listed:
        monkeypatch.setattr(firing_times, "_MAX_LISTED_WINDOWS", 0)
        monkeypatch.setattr(firing_times, "_LISTED_PER_STRETCH", 0)
    zone = load_time_zone(name)
    change_ms, window = zone.changes_ms[-1], Tumbling(10 * MINUTE_MS, zone=zone)
    watermarks_ms = [change_ms + number * 25 * MINUTE_MS for number in range(-30, 30)]
    near = Interval(change_ms // HOUR_MS * HOUR_MS - 12 * HOUR_MS, change_ms + 30 * HOUR_MS)
    grid, clock = WindowGrid.from_window(window, near), SourceClock(0, 1, len(watermarks_ms) + 1)

    found = FiringTimes.from_timeline(timeline_of(watermarks_ms), grid, clock, 90 * MINUTE_MS)

    stretches = np.searchsorted(found.numbers, np.arange(grid.count), side="right") - 1
    for late_ms, positions in ((0, found.fired), (90 * MINUTE_MS, found.cleaned_up)):
        fired = positions.arrival_time_ms[stretches].tolist()
        for end_ms, at in zip(grid.ends_ms.tolist(), fired, strict=True):
            limit_ms = window.trigger_ms(end_ms) + late_ms
            assert at == next((tick for tick, wm in enumerate(watermarks_ms, 1) if wm >= limit_ms), MAX_MS)
