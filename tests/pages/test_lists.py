"""Test the filters of the lists, their pages, and their CSV files."""

from __future__ import annotations

import csv
from typing import Any

import pytest

from backstream.eventtime.instants import DAY_MS, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.pages.csv_files import days_file, runs_file
from backstream.pages.days import CalendarDay, DayStatus
from backstream.pages.filters import NOBODY, Filter, cut_page
from backstream.pages.render import listed_query
from backstream.runs.status import RunStatus
from backstream.workflow.run_state import RunState


def day(number: int) -> int:
    return instant_ms("2013-02-01", "first") + number * DAY_MS


def run(**told: Any) -> RunState:
    """Return a published run of ada over two days."""
    usual: dict[str, Any] = {
        "run_id": "flights-1",
        "dataset": "flights",
        "interval": Interval(day(3), day(5)),
        "mode": "replay",
        "state": RunStatus.PUBLISHED,
        "verdict": "warn",
        "rows": 44,
        "started_ms": day(9),
        "last_sign_ms": day(9),
        "seconds": 1.0,
        "triggered_by": "manual__1",
        "reason": "Late files of JFK",
        "by": "ada",
    }
    return RunState(**usual | told)


@pytest.mark.parametrize(
    ("query", "is_selected"),
    [
        ({}, True),
        ({"status": "published"}, True),
        ({"status": "warn"}, True),
        ({"status": "failed"}, False),
        ({"by": "ada"}, True),
        ({"by": "ad"}, False),
        ({"reason": "late FILES"}, True),
        ({"text": "MANUAL__1"}, True),
        ({"text": "nowhere"}, False),
        ({"status": "published", "text": "nowhere"}, False),
    ],
)
def test_a_run_is_selected_by_all_values_of_the_filter(query: dict[str, str], is_selected: bool) -> None:
    assert Filter.from_query(query).has_run(run()) is is_selected


@pytest.mark.parametrize(
    ("since", "until", "is_selected"),
    [("", "3", False), ("", "4", True), ("5", "", False), ("4", "", True), ("4", "5", True), ("0", "2", False)],
)
def test_a_run_is_selected_if_its_half_open_range_has_a_day_of_the_filter(
    since: str, until: str, is_selected: bool
) -> None:
    #  run      . . . 3 4 | . .      the end is excluded on both sides
    texts = {name: f"2013-02-{int(text) + 1:02d}" for name, text in (("since", since), ("until", until)) if text}
    assert Filter.from_query(texts).has_run(run()) is is_selected


def test_a_run_of_no_user_is_selected_as_scheduled_and_an_invalid_range_by_no_day() -> None:
    assert Filter(by=NOBODY).has_run(run(by=""))
    assert not Filter(since="2013-02-01").has_run(run(interval=None))
    assert Filter(status="failed").has_run(run(interval=None, state=RunStatus.FAILED))


def test_a_value_that_cannot_be_is_named_and_selects_everything() -> None:
    chosen = Filter.from_query({"since": "yesterday", "page": "-3"})
    assert chosen.problem == "since must be a day such as 2013-02-08, got 'yesterday'"
    assert (chosen.since, chosen.page, chosen.is_empty) == ("", 1, True)


def test_the_address_of_a_filtered_list_is_a_permanent_link_to_it() -> None:
    chosen = Filter.from_query({"since": "2013-02-01", "until": "2013-02-03", "text": "a&b", "page": "2"})
    assert listed_query(chosen, "backfill_flights", format="csv") == (
        "dag_id=backfill_flights&text=a%26b&since=2013-02-01&until=2013-02-03&format=csv"
    )
    assert chosen.interval == Interval(day(0), day(2))


@pytest.mark.parametrize(("page", "items"), [(1, [0, 1]), (3, [4]), (9, [4])])
def test_a_page_after_the_last_one_is_the_last_one(page: int, items: list[int]) -> None:
    assert list(cut_page(range(5), page, 2).items) == items


def test_a_file_of_runs_has_no_formula_and_no_hidden_character() -> None:
    hostile = run(reason='=HYPERLINK("http://evil.example")', by="\u202eada", error="-1", rows=-4)
    header, row = csv.reader(runs_file([hostile]).text.splitlines())
    found = dict(zip(header, row, strict=True))
    assert found["reason"] == '\'=HYPERLINK("http://evil.example")'
    assert (found["requested_by"], found["error"], found["rows"]) == ("<U+202E>ada", "'-1", "-4")
    assert (found["since"], found["until"]) == ("2013-02-04T00:00Z", "2013-02-06T00:00Z")


def test_a_file_of_days_has_a_row_per_day_although_nothing_is_published() -> None:
    missing = CalendarDay(day(0), DayStatus.MISSING, None, None, None)
    header, row = csv.reader(days_file("flights", [missing]).text.splitlines())
    assert dict(zip(header, row, strict=True))["day"] == "2013-02-01"
    assert row[1:3] == ["missing", "missing"]
