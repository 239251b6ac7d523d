"""Describe a row of an audit frame as text: its values, limits, and dates, and what a check expected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from backstream.eventtime.instants import instant_text
from backstream.text import count_of, share_text

Row = Mapping[str, Any]
_Texts = Callable[[Row, str], tuple[str, str]]
"""A function from a row and the limit of its check to the expected and the found value."""
_ROW_NAMES = {
    "windows": ("window", "windows"),
    "results": ("window start", "window starts"),
    "partitions": ("source partition", "source partitions"),
    "run": ("run", "runs"),
    "bands": ("window", "windows"),
}
"""The names of one row and of several rows, by frame."""
_ROUNDING = 1e-6  # no table has a share of rows closer to 1 than this, except for 1 itself


def expected_and_found(row: Row, column: str, kwargs: Mapping[str, Any], frame: str) -> tuple[str, str]:
    """Return the expected and the found value of a failing row, e.g., `at most 5 %` and `12 of 50 events`.

    Args:
        row: the row of the frame, with all columns.
        column: the column that the check reads.
        kwargs: the arguments of the expectation.
        frame: `windows`, `partitions`, `run`, `results`, or `bands`.
    """
    limit = expectation_text({name: value for name, value in kwargs.items() if name != "mostly"}, frame)
    describe = _TEXTS.get((frame, column)) or _TEXTS.get(("", column))
    if describe:
        return describe(row, limit)
    allowed = kwargs.get("value_set")
    expected = " or ".join(cell_text(value, column) for value in allowed) if allowed else limit
    return expected or "a value that meets the check", cell_text(_plain(row[column]), column)


def _missing_window(row: Row, _: str) -> tuple[str, str]:
    known = row["is_count_known"]
    return count_of(int(row["expected_events"]), "event") if known else "at least 1 event", "no event"


def _share_of(*fates: str) -> _Texts:
    def describe(row: Row, limit: str) -> tuple[str, str]:
        count, events = sum(int(row[fate]) for fate in fates), int(row["events"])
        return limit, f"{count:,} of {count_of(events, 'event')} ({share_text(count, events)})"

    return describe


def _events_with_fate(row: Row, _: str) -> tuple[str, str]:
    events = int(row["events"])
    return f"{count_of(events, 'event')} with a fate", f"{events - int(row['unaccounted']):,} with a fate"


def _on_grid(row: Row, _: str) -> tuple[str, str]:
    return "a full window on the grid", f"{_instant(row['window_start'])} to {_instant(row['window_end'])}"


def _completeness(row: Row, limit: str) -> tuple[str, str]:
    return limit, f"{int(row['events']):,} of {count_of(int(row['expected_events']), 'expected event')}"


def _missing_row(row: Row, _: str) -> tuple[str, str]:
    return "a row", f"no row for {count_of(int(row['events']), 'event')}"


def _records_in_rows(row: Row, _: str) -> tuple[str, str]:
    return f"{count_of(int(row['events']), 'record')} in rows", f"{int(row['records']):,} in rows"


def _usual_events(row: Row, _: str) -> tuple[str, str]:
    low, high, weeks = (int(row[name]) for name in ("events_low", "events_high", "weeks"))
    expected = f"{low:,} to {count_of(high, 'event')} as in {count_of(weeks, 'past week')}"
    return expected, count_of(int(row["events"]), "event")


def _instant(value: Any) -> str:
    return instant_text(int(value.timestamp() * 1_000))


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


_TEXTS: Mapping[tuple[str, str], _Texts] = {
    ("windows", "is_present"): _missing_window,
    ("", "late_ratio"): _share_of("late", "dropped"),
    ("", "dropped_ratio"): _share_of("dropped"),
    ("windows", "unaccounted"): _events_with_fate,
    ("windows", "is_aligned"): _on_grid,
    ("windows", "in_range"): lambda row, _: ("a window of the range", _instant(row["window_start"])),
    ("windows", "is_expected"): lambda row, _: ("no event", count_of(int(row["events"]), "event")),
    ("windows", "copies"): lambda row, _: ("1 row", count_of(int(row["copies"]), "row")),
    ("windows", "surplus"): lambda row, _: (
        f"at most {count_of(int(row['expected_events']), 'event')}",
        count_of(int(row["events"]), "event"),
    ),
    ("windows", "completeness"): _completeness,
    ("partitions", "is_delivered"): lambda row, _: (
        f"events in {count_of(int(row['windows_expected']), 'window')}",
        "no event",
    ),
    ("partitions", "unmatched"): lambda row, _: (
        f"{count_of(int(row['records']), 'record')} in windows",
        f"{int(row['events']):,} in windows",
    ),
    ("bands", "is_usual_volume"): _usual_events,
    ("bands", "is_usual_lateness"): lambda row, _: (
        f"a late share as in {count_of(int(row['weeks']), 'past week')}",
        share_text(row["late_ratio"]),
    ),
    ("bands", "is_usual_completeness"): lambda row, _: (
        f"a completeness as in {count_of(int(row['weeks']), 'past week')}",
        share_text(row["completeness"]),
    ),
    ("results", "is_fired"): _missing_row,
    ("results", "unmatched_records"): _records_in_rows,
    ("results", "unmatched_panes"): lambda row, _: (
        "the records of its panes",
        f"{count_of(int(row['unmatched_panes']), 'record')} more or less",
    ),
    ("results", "repeated_rows"): lambda row, _: (
        "1 row per key",
        f"{count_of(int(row['repeated_rows']), 'repeated row')}",
    ),
    ("results", "cut_sessions"): lambda row, _: (
        "whole sessions",
        f"{count_of(int(row['cut_sessions']), 'cut session')}",
    ),
}


def cell_text(value: Any, column: str | None) -> str:
    """Return a value in the unit of its column."""
    if (column and column.endswith("_ratio")) or column == "completeness":
        return share_text(float(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def expectation_text(kwargs: Mapping[str, Any], frame: str) -> str:
    """Return the limit of an expectation, e.g., `at most 5 %`, `at least 75 % of windows`, or `every window`."""
    column = kwargs.get("column")
    bounds = [
        f"{bound} {cell_text(kwargs[key], column)}"
        for key, bound in (("min_value", "at least"), ("max_value", "at most"))
        if kwargs.get(key) is not None
    ]
    one, many = _ROW_NAMES[frame]
    if "mostly" in kwargs:
        is_all = kwargs["mostly"] > 1 - _ROUNDING
        bounds.append(f"every {one}" if is_all else f"at least {share_text(kwargs['mostly'])} of {many}")
    return ", ".join(bounds)


def rows_text(failing: int, total: int, frame: str) -> str:
    """Return how many rows fail a check, e.g., `all 1,484 windows pass` or `35 of 1,484 windows fail`."""
    one, many = _ROW_NAMES[frame]
    rows = f"{total:,} {one if total == 1 else many}"
    if not total:
        return f"there is no {one}"
    if not failing:
        return f"the only {one} passes" if total == 1 else f"all {rows} pass"
    return f"{failing:,} of {rows} {'fails' if failing == 1 else 'fail'}"


def days_text(first: datetime, last: datetime) -> str:
    """Return the UTC days from the first to the last instant, e.g., `8-9 February 2013`."""
    start, end = f"{first.day} {first:%B %Y}", f"{last.day} {last:%B %Y}"
    if first.date() == last.date():
        return end
    if (first.year, first.month) == (last.year, last.month):
        return f"{first.day}-{end}"
    return f"{first.day} {first:%B}-{end}" if first.year == last.year else f"{start}-{end}"
