from __future__ import annotations

from typing import Any

from tests.report.example_run import audit

from backstream.eventtime.instants import HOUR_MS
from backstream.report.failing_rows import failing_lines, list_failing_rows
from backstream.runs.results import Check, CheckOutcome, Severity, Verdict


def check_of(column: str, *rows: dict[str, Any]) -> Check:
    return Check("late share", "expect", Severity.WARNING, CheckOutcome.WARN, "2 of 9", column, failing=rows)


def rows_of(column: str, *rows: dict[str, Any]) -> list[str]:
    return [str(row) for row in list_failing_rows(check_of(column, *rows), HOUR_MS)]


def missing(partition: str, hour: int) -> dict[str, Any]:
    names = {"source_partition": partition, "window_start": f"2026-03-01T{hour:02d}:00Z", "is_present": False}
    command = "backstream show clicks"
    return names | {"expected": "50 events", "found": "no event", "command": command}


def test_windows_that_follow_each_other_are_one_range_and_a_hole_between_them_ends_it() -> None:
    rows = [missing("a", 4), missing("b", 4), missing("a", 5), missing("a", 7)]

    assert rows_of("is_present", *rows) == [
        "a 2026-03-01 04:00 to 2026-03-01 06:00, 2 windows: expected 50 events, found no event",
        "b 2026-03-01 04:00: expected 50 events, found no event",
        "a 2026-03-01 07:00: expected 50 events, found no event",
    ]


def test_windows_with_different_values_stay_apart() -> None:
    rows = [missing("a", 4) | {"found": "3 events"}, missing("a", 5)]

    assert rows_of("is_present", *rows) == [
        "a 2026-03-01 04:00: expected 50 events, found 3 events",
        "a 2026-03-01 05:00: expected 50 events, found no event",
    ]


def test_a_record_is_named_with_its_file() -> None:
    row = {"file": "a.parquet", "record": "noon", "expected": "a readable record", "found": "null_event_time"}

    assert rows_of("quarantined_ratio", row) == [
        "a.parquet record noon: expected a readable record, found null_event_time"
    ]


def test_a_row_that_names_no_instant_is_still_shown() -> None:
    row = {"source_partition": "a", "window_start": "soon", "expected": "1 row", "found": "2 rows"}

    assert rows_of("copies", row) == ["a soon: expected 1 row, found 2 rows"]


def test_at_most_ten_rows_are_shown() -> None:
    rows = [missing("a", hour) for hour in range(0, 24, 2)]

    assert len(rows_of("is_present", *rows)) == 10


def test_short_messages_have_the_failed_checks_with_their_rows_and_commands() -> None:
    noted = Check("noted", "expect", Severity.INFO, CheckOutcome.INFO, failing=(missing("a", 1),))

    place = "a 2026-03-01 04:00: expected 50 events, found no event"
    command = "backstream show clicks"
    lines = failing_lines(audit(Verdict.WARN, noted, check_of("is_present", missing("a", 4))), HOUR_MS)

    assert [*lines] == ["warn: late share: 2 of 9", f"  {place}  ({command})"]


def test_a_window_has_the_address_of_the_page_with_its_records() -> None:
    file = {"file": "a.parquet", "record": "noon", "expected": "a readable record", "found": "null_event_time"}
    check = check_of("is_present", missing("a", 4), missing("a", 5), file)

    rows = list_failing_rows(check, HOUR_MS, "clicks")
    assert [row.explain_query for row in rows] == ["dag_id=backfill_clicks&window=2026-03-01T04%3A00Z", ""]
    lines = [*failing_lines(audit(Verdict.WARN, check), HOUR_MS, "clicks", "https://airflow")]
    address = "https://airflow/backstream/explain?dag_id=backfill_clicks&window=2026-03-01T04%3A00Z"
    assert [line.partition("  https")[2] for line in lines] == ["", address.partition("https")[2], ""]
