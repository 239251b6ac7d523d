"""Test the story of a day: what happened to it, who did it, why, and the links to each run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.pages.test_days import day, no_figures, row, seen

from backstream.eventtime.instants import HOUR_MS, utc_datetime
from backstream.pages.datasets import Dataset
from backstream.pages.day_story import StoryEvent, list_day_events
from backstream.pages.days import find_day_spans
from backstream.pages.runs import RunAddress
from backstream.pages.store import PageStore
from backstream.runs.dataset_state import DayIssue, ReconciledDay, record_reconciled_days
from backstream.runs.home import Home
from backstream.runs.requests import Dismissal, RunRequest
from backstream.runs.results import ApprovalDecision, ApprovalRequest
from backstream.runs.status import RunStatus
from backstream.storage.files import write_json

HOURS = [day(9) + hour * HOUR_MS for hour in range(12)]
LARGEST = {
    "window_start": "2024-03-01T05:00Z",
    "keys": "AA",
    "aggregate": "departures",
    "ours": "11",
    "theirs": "14",
    "cause": "late data",
}
COMPARED = (
    "2 of 24 windows differ from live.parquet; the largest difference: 2024-03-01T05:00Z AA, departures published "
    "11, live 14 (late data)"
)


@pytest.fixture
def story(tmp_path: Path) -> list[StoryEvent]:
    """Tell a day that was published, restated after a late file, refused, rolled back, and compared."""
    home = Home(tmp_path)
    first = replace(row("first", 0, 3), started_at_ms=HOURS[0], finished_at_ms=HOURS[1])
    again = replace(row("again", 1, 2, verdict="warn"), started_at_ms=HOURS[2], finished_at_ms=HOURS[5])
    again = replace(again, triggered_by="weekly.load.plan.one", reason="late file")
    refused = replace(row("refused", 1, 2, RunStatus.REFUSED, "fail"), finished_at_ms=HOURS[6])
    undo = replace(row("rollback-again", 1, 2), finished_at_ms=HOURS[8], reason="rollback of again: wrong input")
    for name, files in (("first", ["a", "b"]), ("again", ["b", "late"])):
        chunk = [day(0), day(3), files] if name == "first" else [day(1), day(2), files]
        write_json(home.run("flights", name).files_read, {"chunks": [chunk]})
    folder = home.run("flights", "again")
    folder.report.write_text("report")
    ApprovalRequest("weekly", "one", "load.approve", HOURS[3], HOURS[9], "", finding="1 of 24 is empty").write(
        folder.approval_request
    )
    ApprovalDecision(
        is_approved=True, by="bob", at=utc_datetime(HOURS[4]).isoformat(), asked_at_ms=HOURS[3]
    ).write(folder.approval)
    RunRequest("flights", "weekly", "one", "weekly.load.plan.one", HOURS[2], by="ada", task_group="load").write(
        home
    )
    Dismissal("flights", "refused", "eve", "known", HOURS[7]).write(home)
    compared = ReconciledDay(day(1), HOURS[9], "live.parquet", 24, 2, LARGEST)
    record_reconciled_days(home, "flights", [replace(compared, day_ms=day(0)), compared])
    revisions = [undo, refused, again, first]
    state = replace(seen(DayIssue(day(1), "stale", "1 input file changed: c", 5), end=3), at_ms=HOURS[10])
    spans = find_day_spans(revisions, no_figures, state)
    dataset = Dataset("flights", None, tuple(revisions), (), tuple(spans), state, HOURS[11], no_figures)
    return list_day_events(PageStore(home, ""), dataset, day(1), revisions, {"again": {"changed": 3}})


def test_the_story_of_a_day_lists_events_in_order_with_user_and_reason(story: list[StoryEvent]) -> None:
    assert [(event.title, event.text, event.by, event.reason) for event in story] == [
        ("First published", "", "command line", ""),
        ("Late files found", "1 file that no earlier run had read: late", "", ""),
        ("Approval requested", "1 of 24 is empty", "", ""),
        ("Approved", "", "bob", ""),
        ("Restated", "3 values changed", "ada", "late file"),
        ("Refused", "nothing was published", "command line", ""),
        ("Dismissed", "", "eve", "known"),
        ("Rolled back", "run again", "command line", "rollback of again: wrong input"),
        ("Compared with the live system", COMPARED, "", ""),
        ("Changed files found", "1 input file changed: c; the published rows are older", "", ""),
    ]
    assert [event.at_ms for event in story] == [HOURS[n] for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)]


def test_the_current_rows_of_a_day_after_a_rollback_are_those_of_the_first_run(story: list[StoryEvent]) -> None:
    assert [event.title for event in story if event.is_current] == ["First published"]


def test_each_event_of_a_run_leads_to_the_run_its_report_and_airflow(story: list[StoryEvent]) -> None:
    restated, refused = story[4], story[5]
    assert restated.address == RunAddress("weekly", "one", "load")
    assert restated.report == {"dag_id": "weekly", "run_id": "one", "plan": "p"}
    assert restated.airflow == "../dags/weekly/runs/one"
    assert (refused.address, refused.report, refused.airflow) == (
        RunAddress("backfill_flights", "refused"),
        None,
        "",
    )
