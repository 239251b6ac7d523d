from __future__ import annotations

import pandas as pd

from backstream.charts.completeness_map import ChartRange, day_hour_grid, find_gaps, legend_levels, time_grid
from backstream.eventtime.instants import HOUR_MS, instant_ms
from backstream.eventtime.intervals import Interval

SINCE_MS = instant_ms("2026-03-01", "since")


def windows(*rows: tuple[str, int, int, int], is_count_known: bool = True) -> pd.DataFrame:
    """Return windows from rows of source partition, hour since the start, expected events, and events."""
    frame = pd.DataFrame(rows, columns=["source_partition", "hour", "expected_events", "events"])
    starts_ms = SINCE_MS + frame.pop("hour") * HOUR_MS
    is_expected = frame["expected_events"] > 0
    return frame.assign(
        window_start=pd.to_datetime(starts_ms, unit="ms", utc=True).dt.as_unit("ms"),
        window_end=pd.to_datetime(starts_ms + HOUR_MS, unit="ms", utc=True).dt.as_unit("ms"),
        last_start=pd.to_datetime(starts_ms, unit="ms", utc=True).dt.as_unit("ms"),
        windows=1,
        is_expected=is_expected,
        is_present=frame["events"] > 0,
        in_range=True,
        is_count_known=is_count_known,
        completeness=frame["events"] / frame["expected_events"].clip(lower=1),
        late=0,
        dropped=0,
    )


def shown(hours: int) -> ChartRange:
    return ChartRange(Interval(SINCE_MS, SINCE_MS + hours * HOUR_MS), HOUR_MS)


def test_each_level_of_completeness_has_its_class() -> None:
    rows = [("a", hour, 100, events) for hour, events in enumerate((100, 99, 90, 89, 75, 74, 50, 49, 1, 0, 101))]

    grid = time_grid(windows(*rows, ("a", 11, 0, 3)), shown(12), 100)

    assert grid is not None
    assert [cell.level for cell in grid.cells] == [
        *("c5", "c4", "c4", "c3", "c3", "c2", "c2", "c1", "c1", "c0", "cx", "cx"),
    ]
    assert legend_levels((grid,))[-2:] == (("c0", "no events"), ("cx", "more than expected"))


def test_without_a_timetable_the_share_of_windows_counts() -> None:
    rows = [("a", hour, 1, 0 if hour == 2 else 50) for hour in range(4)]

    grid = time_grid(windows(*rows, is_count_known=False), shown(4), 1)

    assert grid is not None
    (cell,) = grid.cells
    assert (cell.level, cell.title) == ("c3", "a, 2026-03-01 00:00 UTC: 150 events, 1 of 4 windows empty")


def test_days_become_columns_and_hours_rows() -> None:
    (grid,) = day_hour_grid(windows(("a", 0, 5, 5), ("a", 49, 5, 0)), shown(72))

    assert [(cell.column, cell.row, cell.level) for cell in grid.cells] == [(0, 0, "c5"), (2, 1, "c0")]
    assert (grid.columns, grid.rows) == (3, 24)


def test_two_days_or_too_many_source_partitions_make_no_grid_of_days() -> None:
    assert day_hour_grid(windows(("a", 0, 5, 5)), shown(48)) == ()
    assert day_hour_grid(windows(*((f"p{at}", 0, 5, 5) for at in range(10))), shown(72)) == ()


def test_only_the_least_complete_source_partitions_are_shown_when_there_are_too_many() -> None:
    rows = [(f"p{at:02d}", 0, 100, 100 - (at == 41)) for at in range(50)]

    grid = time_grid(windows(*rows), shown(1), 10)

    assert grid is not None
    assert grid.rows == 40
    assert "p41" in [label for _, label in grid.y.ticks]


def test_a_gap_continues_across_windows_that_are_not_expected() -> None:
    #  hour        0  1  2  3  4  5
    #  expected    x  x  -  x  x  x
    #  came        x  .  .  .  x  .
    rows = [("a", 0, 5, 5), ("a", 1, 5, 0), ("a", 3, 7, 0), ("a", 4, 5, 5), ("a", 5, 5, 0), ("b", 5, 4, 0)]

    found = find_gaps(windows(*rows))

    assert [(gap.source_partition, (gap.since_ms - SINCE_MS) // HOUR_MS) for gap in found] == [
        ("a", 1),
        ("a", 5),
        ("b", 5),
    ]
    assert (found[0].windows, found[0].expected_events, (found[0].until_ms - SINCE_MS) // HOUR_MS) == (2, 12, 4)
