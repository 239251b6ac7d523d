from __future__ import annotations

from typing import Any

from backstream.eventtime.instants import HOUR_MS
from backstream.report.failing_rows import group_failing_rows
from backstream.runs.results import Check, CheckOutcome, Severity


def groups(column: str, *rows: dict[str, Any]) -> list[tuple[str, tuple[str, ...]]]:
    check = Check("name", "expect", Severity.WARNING, CheckOutcome.WARN, column=column, failing=rows)
    return [(group.source_partition, group.rows) for group in group_failing_rows(check, HOUR_MS)]


def missing(partition: str, hour: int) -> dict[str, Any]:
    start = f"2026-03-01T{hour:02d}:00Z"
    return {"source_partition": partition, "window_start": start, "is_present": False}


def test_windows_that_follow_each_other_are_one_span_and_a_hole_between_them_ends_it() -> None:
    rows = [missing("a", 4), missing("b", 4), missing("a", 5), missing("a", 7)]

    assert groups("is_present", *rows) == [
        ("a", ("2026-03-01 04:00 to 2026-03-01 06:00: 2 windows", "2026-03-01 07:00")),
        ("b", ("2026-03-01 04:00",)),
    ]


def test_windows_with_different_measures_stay_apart() -> None:
    rows = [missing("a", 4) | {"late_ratio": 0.5}, missing("a", 5) | {"late_ratio": 0.4}]

    assert groups("late_ratio", *rows) == [("a", ("2026-03-01 04:00: 50 %", "2026-03-01 05:00: 40 %"))]


def test_a_source_partition_without_windows_shows_its_measure() -> None:
    assert groups("unmatched", {"source_partition": "a", "unmatched": -5_432}) == [("a", ("-5,432",))]


def test_a_row_that_names_no_instant_is_still_shown() -> None:
    row = {"source_partition": "a", "window_start": "soon", "unmatched": 5}

    assert groups("unmatched", row) == [("a", ("5",))]
