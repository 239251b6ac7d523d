"""Test the published table of watermarks: window size 5, bound 2, allowed lateness 1, one record per ms."""

from __future__ import annotations

from backstream.eventtime.emission import Emission
from backstream.eventtime.instants import MAX_MS, MIN_MS
from backstream.eventtime.records import Fate, Record, SourceClock
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy
from backstream.eventtime.watermark_sources import compute_watermarks
from backstream.eventtime.window_operator import fire_windows
from backstream.eventtime.windows import Tumbling

#  arrival        0  1  2  3  4  5  6  7  8  9  10
EVENT_TIMES_MS = [1, 3, 2, 6, 4, 5, 7, 3, 9, 3, 12]


def test_the_published_table_is_reproduced() -> None:
    records = [Record(arrival, 0, "a", event) for arrival, event in enumerate(EVENT_TIMES_MS)]
    strategy = WatermarkStrategy(StrategyKind.BOUNDED, delay_ms=2, interval_ms=1)

    watermarks = compute_watermarks(records, Emission(strategy), SourceClock(0, 1, 11), [0])
    result = fire_windows(records, watermarks, Tumbling(5), allowed_lateness_ms=1)

    # The watermark before each record is the maximum event time so far, minus the bound of 2, minus 1.
    assert watermarks.in_force_ms == [MIN_MS, -2, 0, 0, 3, 3, 3, 4, 4, 6, 6]
    # [0,5) fires after 7 (watermark 4), and again with the late 3. Its state is removed before the last 3
    # (watermark 6).
    assert [
        (pane.window.start_ms, pane.timing.value, [EVENT_TIMES_MS[number] for number in pane.records])
        for pane in result.panes
    ] == [
        (0, "on_time", [1, 3, 2, 4]),
        (0, "late", [1, 3, 2, 4, 3]),
        (5, "on_time", [6, 5, 7, 9]),
        (10, "on_time", [12]),
    ]
    assert [pane.watermark_ms for pane in result.panes] == [4, 4, 9, MAX_MS]
    assert result.fates == [*[Fate.ON_TIME] * 7, Fate.LATE, Fate.ON_TIME, Fate.DROPPED, Fate.ON_TIME]
