from __future__ import annotations

import pandas as pd

from backstream.charts.bar_charts import LateChart, late_chart
from backstream.definition.run_sections import Limits
from backstream.eventtime.instants import HOUR_MS, instant_ms
from backstream.eventtime.intervals import Interval

SINCE_MS = instant_ms("2026-03-01", "since")


def chart(limits: Limits, *rows: tuple[int, int, int, int]) -> LateChart | None:
    """Return a chart of rows of hour, events, late, and dropped; all these hours are expected."""
    frame = pd.DataFrame(rows, columns=["hour", "events", "late", "dropped"])
    starts_ms = SINCE_MS + frame.pop("hour").astype("int64") * HOUR_MS
    starts = pd.to_datetime(starts_ms, unit="ms", utc=True).dt.as_unit("ms")
    windows = frame.assign(
        window_start=starts,
        last_start=starts,
        windows=1,
        is_expected=True,
        in_range=True,
    )
    return late_chart(windows, Interval(SINCE_MS, SINCE_MS + 4 * HOUR_MS), HOUR_MS, limits, 10)


def test_the_chart_shows_the_shares_of_each_window_and_marks_windows_without_events() -> None:
    found = chart(Limits(warn=0.05, fail=0.25), (0, 100, 10, 5), (1, 0, 0, 0), (3, 200, 0, 0))

    assert found is not None
    assert [bar.parts for bar in found.chart.bars] == [
        (("dropped", 0.05), ("late", 0.1)),
        (("void", 0.3),),
        (),
        (("dropped", 0.0), ("late", 0.0)),
    ]
    assert [bar.title for bar in found.chart.bars] == [
        "2026-03-01 00:00 UTC: 10 % late, 5 % dropped of 100 events",
        "2026-03-01 01:00 UTC: no events in 1 expected window",
        "2026-03-01 02:00 UTC: no events, none expected",
        "2026-03-01 03:00 UTC: 0 % late, 0 % dropped of 200 events",
    ]


def test_the_limits_and_the_share_of_the_run_are_lines() -> None:
    found = chart(Limits(warn=0.05, fail=0.25), (0, 100, 10, 5), (1, 100, 0, 0))

    assert found is not None
    assert [(line.style, line.at, line.label) for line in found.chart.lines] == [
        ("soft", 0.05, "soft limit 5 %"),
        ("hard", 0.25, "hard limit 25 %"),
        ("run", 0.075, "whole run 7.5 %"),
    ]
    assert found.beyond == ()


def test_a_limit_far_above_the_bars_is_named_and_not_drawn() -> None:
    found = chart(Limits(warn=0.05, fail=0.5), (0, 100, 3, 0))

    assert found is not None
    assert [line.style for line in found.chart.lines] == ["soft", "run"]
    assert found.beyond == ("hard limit 50 %",)


def test_without_events_there_is_no_chart() -> None:
    assert chart(Limits(warn=0.05, fail=0.25), (0, 0, 0, 0)) is None
