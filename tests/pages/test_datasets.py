"""Test the state of a dataset: that of its published days, never that of its last run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.pages.test_days import day, figures, row, seen
from tests.workflow.history import CLICKS, write_definition

from backstream.lake.ledger import RunRow
from backstream.pages.datasets import Dataset, load_datasets
from backstream.pages.days import find_day_spans
from backstream.pages.definitions import DefinitionEntry
from backstream.pages.store import PageStore
from backstream.runs.dataset_state import DatasetState, DayIssue, DayTotals
from backstream.runs.home import Home
from backstream.runs.requests import RunRequest
from backstream.variables import DEFINITIONS_VARIABLE

WARNED = row("february", 0, 4, verdict="warn")
ONE_DAY = row("one day", 2, 3)
TOTALS = {"february": {day(number): figures(number, int(number in (1, 2))) for number in range(4)}}


def dataset(*newest_first: RunRow, state: DatasetState | None = None) -> Dataset:
    def figures(run_id: str) -> Mapping[int, DayTotals]:
        return TOTALS.get(run_id, {})

    spans = find_day_spans(newest_first, figures, state)
    entry = DefinitionEntry("flights", Path("flights.toml"))
    return Dataset("flights", entry, newest_first, (), tuple(spans), state, 0, figures)


def issues(found: Dataset) -> list[tuple[str, int]]:
    return [(status.value, count) for status, count in found.issues]


def test_a_pass_of_one_day_leaves_the_warnings_of_the_others_standing() -> None:
    found = dataset(ONE_DAY, WARNED)
    assert found.newest
    assert (found.newest.verdict, found.verdict, issues(found)) == ("pass", "warn", [("warn", 1)])


def test_a_warning_disappears_after_all_its_days_pass() -> None:
    assert dataset(row("again", 1, 3), WARNED).verdict == "pass"


def test_a_stale_day_is_counted_and_keeps_its_verdict() -> None:
    stale = DayIssue(day(1), "stale", "late.parquet", 2)
    found = dataset(ONE_DAY, WARNED, state=seen(stale, end=4))
    assert (found.verdict, issues(found)) == ("warn", [("stale", 1)])


def test_open_days_are_counted_and_days_of_no_run_yet_are_as_intended() -> None:
    still_open = DayIssue(day(3), "open", "no arrival")
    found = dataset(ONE_DAY, state=seen(end=4, unsealed=(still_open,)))
    assert (found.verdict, issues(found)) == ("pass", [("open", 1)])
    assert issues(dataset(ONE_DAY, state=seen(end=9))) == []


def test_without_published_days_there_is_no_verdict() -> None:
    assert dataset().verdict == "none"


def test_a_dataset_that_only_a_team_runs_in_its_own_dag_is_listed_for_who_may_read_that_dag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "definitions").mkdir()
    write_definition(tmp_path / "definitions", CLICKS)
    monkeypatch.setenv(DEFINITIONS_VARIABLE, str(tmp_path / "definitions"))
    home = Home(tmp_path / "home")
    records = PageStore(home, "")
    assert load_datasets(records, {"weekly"}) == []

    RunRequest("clicks", "weekly", "one", "weekly.load.plan.one", day(0), task_group="load").write(home)

    assert [found.name for found in load_datasets(records, {"weekly"})] == ["clicks"]
    assert load_datasets(records, {"monthly"}) == []
    assert [found.name for found in load_datasets(records, {"backfill_clicks"})] == ["clicks"]
