"""Test the chart of events with the band of past weeks."""

from __future__ import annotations

import re

import pandas as pd

from backstream.charts.band_chart import draw_band
from backstream.eventtime.instants import HOUR_MS, instant_ms

START_MS = instant_ms("2026-03-01", "start")


def frame_of(*events: int, is_banded: bool = True) -> pd.DataFrame:
    """Return hourly windows of two source partitions, whose usual events are 8 to 12 together."""
    starts_ms = [START_MS + hour * HOUR_MS for hour in range(len(events)) for _ in "ab"]
    parts = [part for count in events for part in (count // 2, count - count // 2)]
    starts = pd.to_datetime(pd.Series(starts_ms), unit="ms", utc=True)
    low, high = (8.0, 12.0) if is_banded else (0.0, 0.0)
    counts = {"windows": 1, "events": parts, "late": 0, "dropped": 0, "completeness": 1.0}
    band = {"has_band": is_banded, "band_low": low, "band_high": high}
    return pd.DataFrame({"window_start": starts, "last_start": starts} | counts | band)


def test_a_window_outside_its_band_has_a_mark_and_a_text() -> None:
    chart = draw_band(frame_of(10, 12, 30, 8))

    assert chart is not None
    assert (chart.windows, chart.outside) == (4, 1)
    assert len(re.findall("<circle", chart.chart)) == 1
    assert "2026-03-01 02:00 UTC: 30 events, usual are 8 to 12" in chart.chart
    assert len(re.findall('class="band"', chart.chart)) == 1


def test_a_window_without_a_band_interrupts_it_and_is_never_outside() -> None:
    frame = frame_of(10, 500, 10)
    frame.loc[frame["events"] == 250, ["has_band", "band_low", "band_high"]] = [False, 0.0, 0.0]
    chart = draw_band(frame)

    assert chart is not None
    assert (chart.windows, chart.outside) == (2, 0)
    assert len(re.findall('class="band"', chart.chart)) == 2


def test_without_any_band_there_is_no_chart() -> None:
    assert draw_band(frame_of(10, 12, is_banded=False)) is None
    assert draw_band(None) is None
    assert draw_band(frame_of(10, 12).drop(columns="has_band")) is None  # the audit frame of an older version


def test_of_a_long_range_the_part_with_most_windows_outside_is_drawn() -> None:
    quiet, loud = [10] * 24 * 40, [30] * 24 * 3
    chart = draw_band(frame_of(*quiet, *loud, *quiet))

    assert chart is not None
    assert (chart.windows, chart.outside) == (24 * 83, 24 * 3)
    assert chart.shown.end_ms - chart.shown.start_ms == 28 * 24 * HOUR_MS
    assert chart.shown.start_ms <= START_MS + 40 * 24 * HOUR_MS
    assert chart.shown.end_ms >= START_MS + 43 * 24 * HOUR_MS
