"""Test the status of days, from rows of the ledger and scans of the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from backstream.eventtime.instants import DAY_MS, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.lake.ledger import RunRow
from backstream.pages.days import (
    CalendarDay,
    DayStatus,
    DayTotalsOf,
    calendar_days,
    consecutive_days,
    day_span,
    describe_day,
    find_day_spans,
    runs_covering,
)
from backstream.pages.views import calendar_years
from backstream.runs.dataset_state import DatasetState, DayIssue, DayTotals
from backstream.runs.results import Verdict
from backstream.runs.status import RunStatus

FIRST_MS = instant_ms("2024-02-27", "first")


def day(number: int) -> int:
    return FIRST_MS + number * DAY_MS


def row(name: str, first: int, end: int, status: RunStatus = RunStatus.PUBLISHED, verdict: str = "pass") -> RunRow:
    """Return a run of some days, counted from the first."""
    return RunRow(
        run_id=name,
        dataset="flights",
        status=status,
        verdict=Verdict(verdict),
        mode="replay",
        since_ms=day(first),
        until_ms=day(end),
        triggered_by=name,
        reason="",
        definition_hash="d",
        plan_hash="p",
        planned_by_version="0",
        rows=1,
        events_read=1,
        started_at_ms=0,
        finished_at_ms=1,
    )


def figures(number: int, flagged: int) -> DayTotals:
    return DayTotals(day(number), 24, 24 - flagged, 1_000, 950, 38, 12, flagged)


def seen(*notes: DayIssue, end: int = 0, unsealed: tuple[DayIssue, ...] = ()) -> DatasetState:
    return DatasetState("flights", 0, FIRST_MS, day(end), unsealed or None, notes)


def statuses(*newest_first: RunRow, flagged: dict[str, list[int]] | None = None, **told: object) -> list[str]:
    counted = {
        name: {day(number): figures(number, int(number in days)) for number in range(9)}
        for name, days in (flagged or {}).items()
    }
    found = days_of(newest_first, lambda run_id: counted.get(run_id, {}), **{"seen": None, **told})  # type: ignore[arg-type]  # the keywords differ in type
    return [each.status.value for each in found]


def days_of(
    runs: Sequence[RunRow], figures: DayTotalsOf, seen: DatasetState | None, **told: Any
) -> list[CalendarDay]:
    return list(calendar_days(find_day_spans(runs, figures, seen, **told), figures))


def no_figures(_: str) -> Mapping[int, DayTotals]:
    return {}


def test_nothing_is_known_of_nothing() -> None:
    assert statuses() == []


def test_days_between_published_ones_are_missing() -> None:
    assert statuses(row("b", 3, 4), row("a", 0, 2)) == ["pass", "pass", "missing", "pass"]


def test_days_with_events_beyond_the_published_ones_are_not_published_yet_and_missing_once_sealed() -> None:
    still_open = DayIssue(day(3), "open", "no arrival")
    told = seen(end=4, unsealed=(still_open,))
    assert statuses(row("a", 1, 2), seen=told) == ["unpublished", "pass", "missing", "open"]
    found = statuses(row("a", 1, 2), seen=replace(told, unsealed=None))
    assert found == ["unpublished", "pass", "unpublished", "unpublished"]


def test_a_warning_marks_the_days_it_is_about() -> None:
    assert statuses(row("a", 0, 3, verdict="warn"), flagged={"a": [1]}) == ["pass", "warn", "pass"]


def test_a_warning_that_is_about_no_day_alone_marks_all() -> None:
    assert statuses(row("a", 0, 2, verdict="warn"), flagged={"a": []}) == ["warn", "warn"]


def test_what_was_published_in_spite_of_a_fail_is_marked_as_such() -> None:
    assert statuses(row("a", 0, 1, verdict="fail"), flagged={"a": [0]}) == ["fail"]


def test_unpublished_days_of_a_refused_run_are_failed_until_a_later_run_publishes_them() -> None:
    refused = row("b", 1, 3, RunStatus.REFUSED, "fail")
    assert statuses(refused, row("a", 0, 2)) == ["pass", "pass", "failed"]
    assert statuses(row("c", 1, 3), refused, row("a", 0, 2)) == ["pass", "pass", "pass"]


def test_the_loser_of_two_overlapping_runs_leaves_the_days_of_the_winner_as_they_are() -> None:
    loser, winner = row("loser", 1, 3, RunStatus.REFUSED), row("winner", 0, 3, verdict="warn")
    days = days_of([loser, winner], lambda _: {day(2): figures(2, 1)}, None)
    assert [(each.status.value, each.run_id) for each in days] == [
        ("pass", "winner"),
        ("pass", "winner"),
        ("warn", "winner"),
    ]
    assert describe_day(days[1]) == "published, pass, a newer run published nothing"
    assert [each.rejected for each in days] == [None, "loser", "loser"]


def test_a_run_that_was_rolled_back_counts_no_more() -> None:
    undone = [row("rollback-b", 0, 2), row("b", 0, 2, verdict="warn"), row("a", 0, 2)]
    assert statuses(*undone) == ["pass", "pass"]


def test_a_run_whose_rollback_was_rolled_back_counts_again() -> None:
    runs = [row("b", 0, 2, verdict="warn"), row("a", 0, 2)]
    undo, undo_of_undo = row("rollback-b", 0, 2), row("rollback-rollback-b", 0, 2)
    assert statuses(undo_of_undo, undo, *runs) == ["warn", "warn"]
    assert statuses(row("rollback-rollback-rollback-b", 0, 2), undo_of_undo, undo, *runs) == ["pass", "pass"]


def test_stale_wins_over_the_verdict_and_running_over_all() -> None:
    stale = seen(*(DayIssue(day(number), "stale", "late.parquet", 2) for number in (0, 1)), end=2)
    assert statuses(row("a", 0, 2), seen=stale) == ["stale", "stale"]
    running = [Interval(day(1), day(2))]
    assert statuses(row("a", 0, 2), seen=stale, running=running) == ["stale", "running"]


def test_a_day_published_since_the_newest_scan_is_not_stale() -> None:
    #  scan finds day 0 and 1 stale -> plan of day 1 -> its publication -> (the report scans again)
    found = replace(seen(*(DayIssue(day(number), "stale", "late", 2) for number in (0, 1)), end=2), at_ms=4)
    old, again = row("a", 0, 2), replace(row("b", 1, 2), started_at_ms=5, finished_at_ms=9)
    assert statuses(again, old, seen=found) == ["stale", "pass"]
    assert statuses(replace(again, started_at_ms=4), old, seen=found) == ["stale", "stale"]
    day_again = days_of([again, old], no_figures, found)[1]
    assert describe_day(day_again) == "published, pass"


def test_days_of_one_status_that_follow_one_another_are_one_stretch_the_newest_first() -> None:
    refused = replace(row("b", 5, 7, RunStatus.REFUSED, "fail"), finished_at_ms=2)
    spans = find_day_spans([refused, row("c", 7, 8), row("a", 0, 2)], no_figures, seen(end=8))
    found = consecutive_days(spans, [DayStatus.MISSING, DayStatus.FAILED])
    assert [(each.status.value, each.days) for each in found] == [("failed", 2), ("missing", 3)]
    assert found[1].interval == Interval(day(2), day(5))


def test_days_of_one_status_with_others_between_that_nothing_is_known_of_are_two_stretches() -> None:
    tried = [row(name, first, first + 1, RunStatus.FAILED) for name, first in (("c", 8), ("b", 5))]
    found = consecutive_days(find_day_spans([*tried, row("a", 0, 2)], no_figures, None), [DayStatus.FAILED])
    assert [each.interval.start_ms for each in found] == [day(8), day(5)]


def test_a_run_that_published_nothing_makes_no_day_missing() -> None:
    #  events     0 1
    #  published  0
    #  refused              7 8        the source has nothing there, and nobody had known
    tried, published = row("b", 7, 9, RunStatus.REFUSED, "fail"), row("a", 0, 1)
    assert statuses(tried, published) == ["pass", "failed", "failed"]
    assert statuses(tried, published, seen=replace(seen(end=2), at_ms=1)) == ["pass", "unpublished"]


def test_a_run_that_failed_since_the_newest_look_shows_on_its_days() -> None:
    tried = replace(row("b", 2, 3, RunStatus.FAILED), finished_at_ms=5)
    assert statuses(tried, row("a", 0, 2), seen=replace(seen(end=2), at_ms=4)) == ["pass", "pass", "failed"]
    assert statuses(tried, row("a", 0, 2), seen=replace(seen(end=2), at_ms=5)) == ["pass", "pass"]


def test_days_between_published_ones_are_not_missing_where_the_source_has_no_event() -> None:
    assert statuses(row("b", 6, 7), row("a", 0, 1), seen=seen(end=2)) == ["pass", "missing", "pass"]


def test_the_revisions_of_a_day_are_the_runs_whose_range_holds_it() -> None:
    runs = [row("c", 1, 2), row("b", 2, 3), row("a", 0, 2)]
    assert [each.run_id for each in runs_covering(runs, day(1))] == ["c", "a"]


def test_the_grid_has_a_table_per_year_and_a_cell_per_day_of_the_month() -> None:
    days = days_of([row("a", 0, 400)], no_figures, None)
    found = calendar_years(days, "backfill_flights")
    assert [(each.year, len(each.months)) for each in found] == [(2025, 4), (2024, 11)]
    february = found[1].months[0]
    assert february.name == "Feb"
    assert february.cells.count("<td>") == 31
    assert february.cells.count("<a ") == 3
    assert 'href="day?dag_id=backfill_flights&amp;day=2024-02-29"' in february.cells


def test_a_day_in_words() -> None:
    note = DayIssue(FIRST_MS, "stale", "late.parquet", 2)
    told = CalendarDay(FIRST_MS, DayStatus.STALE, "a", figures(0, 3), note)
    assert describe_day(told) == "stale, 21 of 24 windows, 5 % late or dropped, 2 windows stale"


@pytest.mark.parametrize(
    ("first", "end", "text"),
    [(0, 1, "27 Feb 2024"), (0, 5, "27 Feb to 2 Mar 2024"), (-100, 1, "19 Nov 2023 to 27 Feb 2024")],
)
def test_a_span_of_days_in_words(first: int, end: int, text: str) -> None:
    assert day_span(day(first), day(end)) == text
