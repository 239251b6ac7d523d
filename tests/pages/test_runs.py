"""Test the list of runs, from folders, ledger rows, and requests."""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.pages.test_days import day, row
from tests.pages.test_parts import answering

from backstream.eventtime.instants import DAY_MS, SECOND_MS
from backstream.pages.airflow import Airflow
from backstream.pages.lists import runs_page
from backstream.pages.render import impact_text
from backstream.pages.run import load_run
from backstream.pages.runs import RunAddress, find_report, list_all_runs, list_triggers
from backstream.pages.store import PageStore
from backstream.runs.home import Home
from backstream.runs.plan import slug
from backstream.runs.requests import Dismissal, RunRequest, find_requests, record_end
from backstream.runs.status import RunStatus
from backstream.workflow.run_state import DELETED

FEB_1, MAR_1 = 1359676800000, 1362096000000
RUN_ID = "backfill__2013-03-01T00:00:00+00:00"
SLUG = slug(RUN_ID)
ADDRESS = RunAddress("backfill_flights", RUN_ID)
IMPACT = {"days": 2, "events": 1484, "rows_replaced": 44, "publishers": [], "other_publishers": 0, "seconds": None}


def leave_run(
    home: Path,
    folder: str,
    *,
    dataset: str = "flights",
    planned_at_s: int = 0,
    trigger: str = RUN_ID,
    **left: object,
) -> None:
    """Write the summary of a plan and the other given files of a run."""
    path = home / "runs" / dataset / folder
    path.mkdir(parents=True)
    plan: dict[str, Any] = {"dataset": dataset, "triggered_by": trigger, "mode": "replay", "run_id": folder}
    plan |= {"plan_hash": folder.rpartition(".")[2], "reason": "", "expected_events": {"0000": 5}, "staging": []}
    (path / "run.json").write_text(json.dumps(plan | {"since_ms": FEB_1, "until_ms": MAR_1}))
    (path / "plan.json").write_text("no page reads it, for it may be large")
    for name, content in left.items():
        if name == "report":
            (path / "report.html").write_text(str(content))
        else:
            (path / f"{name}.json").write_text(json.dumps(content))
    for file in path.iterdir():
        os.utime(file, (planned_at_s, planned_at_s))


def request(trigger: str, **told: Any) -> RunRequest:
    return RunRequest("flights", "reprocess_flights", trigger, trigger, day(0), **told)


def test_a_run_that_died_in_its_plan_is_listed_with_who_why_and_its_error(tmp_path: Path) -> None:
    told = {
        "by": "ada",
        "reason": "late files",
        "error": "no event in range",
        "since_ms": day(0),
        "until_ms": day(1),
    }
    request("manual__1", **told).write(Home(tmp_path))
    (run,) = list_all_runs(Home(tmp_path), ["backfill_flights"], [])
    assert (run.state.value, run.by, run.reason, run.error, run.dag_id) == (
        "failed",
        "ada",
        "late files",
        "no event in range",
        "reprocess_flights",
    )


def test_a_dry_run_is_no_running_run_and_shows_its_result(tmp_path: Path) -> None:
    leave_run(tmp_path, "r.aaa")
    leave_run(tmp_path, "r.bbb", dataset="clicks", planned_at_s=1)
    request(RUN_ID, is_dry_run=True, run_id="r.aaa", impact=IMPACT).write(Home(tmp_path))
    planned, dry = list_all_runs(Home(tmp_path), ["backfill_flights", "backfill_clicks"], [])
    assert (planned.state.value, planned.phase) == ("planned", "1 chunk to replay")
    assert (dry.state.value, dry.phase, dry.impact) == ("dry_run", "", IMPACT)


def test_a_new_request_shows_the_phase_of_its_task(tmp_path: Path) -> None:
    now_ms = int(time.time() * SECOND_MS)
    replace(request("manual__1"), requested_at_ms=now_ms).write(Home(tmp_path))
    (run,) = list_all_runs(Home(tmp_path), ["backfill_flights"], [])
    assert (run.state.value, run.phase, run.interval) == ("requested", "plan", None)
    replace(request("manual__1"), requested_at_ms=now_ms, task="prepare").write(Home(tmp_path))
    (run,) = list_all_runs(Home(tmp_path), ["backfill_flights"], [])
    assert run.phase == "prepare"


def test_a_request_without_a_plan_for_a_day_has_failed(tmp_path: Path) -> None:
    a_day_ago_ms = int(time.time() * SECOND_MS) - DAY_MS - 1
    replace(request("manual__1"), requested_at_ms=a_day_ago_ms).write(Home(tmp_path))
    (run,) = list_all_runs(Home(tmp_path), ["backfill_flights"], [])
    assert (run.state.value, run.error) == (
        "failed",
        "the run has no plan 24 hours after its request; the log of its task `plan` has the reason",
    )


def test_a_run_in_a_teams_own_dag_is_found_by_its_request(tmp_path: Path) -> None:
    for dataset, group in (("flights", "load.flights"), ("clicks", "load.clicks")):
        trigger = f"weekly.{group}.plan.one"
        leave_run(tmp_path, f"{trigger}.aaa", dataset=dataset, trigger=trigger, report=dataset)
        asked = RunRequest(dataset, "weekly", "one", trigger, day(0), task_group=group)
        replace(asked, run_id=f"{trigger}.aaa").write(Home(tmp_path))
    home, whole = Home(tmp_path), RunAddress("weekly", "one")
    assert [trigger.dataset for trigger in list_triggers(home, whole)] == ["clicks", "flights"]
    for dataset in ("flights", "clicks"):
        found = find_report(home, replace(whole, group=f"load.{dataset}"))
        assert found
        assert found.read_text() == dataset
    (run,) = list_all_runs(home, ["backfill_flights"], [])
    assert RunAddress.from_state(run) == RunAddress("weekly", "one", "load.flights")
    assert list_triggers(home, RunAddress("weekly", "two")) == []
    record_end(home, "weekly", "one", day(1))
    assert [found.ended_at_ms for found in find_requests(home, "weekly", "one")] == [day(1), day(1)]


def test_a_dismissed_run_stays_as_it_is_until_it_writes_files_again(tmp_path: Path) -> None:
    home, now_ms = Home(tmp_path), int(time.time() * SECOND_MS)
    failed = request("manual__1", error="no event in range")
    failed.write(home)
    Dismissal("flights", failed.key, "ada", "a typing error", now_ms).write(home)
    (run,) = list_all_runs(home, ["backfill_flights"], [])
    assert run.dismissal
    assert (run.state.value, run.dismissal.by, run.dismissal.reason) == ("failed", "ada", "a typing error")
    html = runs_page(PageStore(home, ""), ["backfill_flights"], None).html
    assert "Dismissed by ada" in html
    assert ">Dismiss<" not in html
    replace(failed, requested_at_ms=now_ms + 1).write(home)
    (again,) = list_all_runs(home, ["backfill_flights"], [])
    assert (again.state.value, again.dismissal, again.is_dismissible) == ("failed", None, True)


def test_the_page_shows_status_person_reason_and_error_and_escapes_them(tmp_path: Path) -> None:
    told = {"by": "ada <b>", "reason": "<i>late", "error": "no event in range <script>"}
    request("manual__1", **told).write(Home(tmp_path))
    leave_run(tmp_path, "r.aaa")
    request(RUN_ID, is_dry_run=True, run_id="r.aaa", impact=IMPACT).write(Home(tmp_path))
    html = runs_page(PageStore(Home(tmp_path), ""), ["backfill_flights", "reprocess_flights"], None).html
    assert html.count(">Failed</strong>") == html.count(">Dry run</strong>") == 1
    assert "ada &lt;b&gt;" in html
    assert "&lt;i&gt;late" in html
    assert "no event in range &lt;script&gt;" in html
    assert "2 days, about 1,484 events; would replace 44 rows" in html


def test_a_dry_run_without_published_rows_would_replace_nothing() -> None:
    assert (
        impact_text(IMPACT | {"days": 1, "rows_replaced": 0}) == "1 day, about 1,484 events; would replace nothing"
    )


def test_an_ended_run_is_that_of_the_ledger(tmp_path: Path) -> None:
    leave_run(tmp_path, "r.aaa", report="<p>")
    ended = [row("r.aaa", 0, 2, verdict="warn"), row("r.gone", 0, 2, RunStatus.REFUSED, "fail")]
    runs = list_all_runs(Home(tmp_path), ["backfill_flights"], ended)
    assert {(run.run_id, run.state.value, run.verdict, run.rows) for run in runs} == {
        ("r.aaa", "published", "warn", 1),
        ("r.gone", "refused", "fail", 1),
    }


def test_the_newest_run_is_first(tmp_path: Path) -> None:
    for number in range(4):
        leave_run(tmp_path, f"r.{number}", planned_at_s=number)
    runs = list_all_runs(Home(tmp_path), ["backfill_flights"], [])
    assert [run.plan_hash for run in runs] == ["3", "2", "1", "0"]


def test_runs_of_dags_that_a_user_may_not_read_are_not_listed(tmp_path: Path) -> None:
    leave_run(tmp_path, "r.aaa", dataset="flights")
    leave_run(tmp_path, "r.bbb", dataset="salaries")
    runs = list_all_runs(Home(tmp_path), ["backfill_flights", "salaries"], [])
    assert [run.dataset for run in runs] == ["flights"]


def test_a_folder_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    leave_run(tmp_path, "r.aaa", planned_at_s=1)
    leave_run(tmp_path, "r.bbb", planned_at_s=2)
    (tmp_path / "runs" / "flights" / "r.bbb" / "run.json").write_text("{")
    (tmp_path / "requests" / "flights").mkdir(parents=True)
    (tmp_path / "requests" / "flights" / "x.json").write_text("{}")
    runs = list_all_runs(Home(tmp_path), ["backfill_flights"], [])
    assert [run.plan_hash for run in runs] == ["aaa"]


def test_the_report_of_a_dag_run_is_that_of_its_newest_plan(tmp_path: Path) -> None:
    leave_run(tmp_path, f"{SLUG}.aaa", planned_at_s=1, report="first")
    leave_run(tmp_path, f"{SLUG}.bbb", planned_at_s=2, report="second")
    found = find_report(Home(tmp_path), ADDRESS)
    assert found
    assert found.read_text() == "second"


def test_the_report_of_an_earlier_plan_is_found_by_its_hash(tmp_path: Path) -> None:
    leave_run(tmp_path, f"{SLUG}.aaa", planned_at_s=1, report="first")
    leave_run(tmp_path, f"{SLUG}.bbb", planned_at_s=2, report="second")
    found = find_report(Home(tmp_path), ADDRESS, "aaa")
    assert found
    assert found.read_text() == "first"


def test_as_long_as_the_newest_plan_has_no_report_an_older_one_is_not_shown_for_it(tmp_path: Path) -> None:
    leave_run(tmp_path, f"{SLUG}.aaa", planned_at_s=1, report="first")
    leave_run(tmp_path, f"{SLUG}.bbb", planned_at_s=2)
    assert find_report(Home(tmp_path), ADDRESS) is None


@pytest.mark.parametrize(
    ("dag_id", "run_id"),
    [
        ("backfill_..", "secret"),
        ("backfill_../..", RUN_ID),
        ("backfill_flights/../flights", RUN_ID),
        ("backfill_/etc", RUN_ID),
        ("backfill_flights\x00", RUN_ID),
        ("backfill_Flights", RUN_ID),
        ("flights", RUN_ID),
        ("", ""),
        ("backfill_flights", "../r.aaa"),
        ("backfill_flights", "r.aaa"),
        ("backfill_flights", ""),
    ],
)
def test_a_name_that_is_none_leads_nowhere(tmp_path: Path, dag_id: str, run_id: str) -> None:
    leave_run(tmp_path, f"{SLUG}.aaa", report="the report")
    (tmp_path / "run.json").write_text(json.dumps({"triggered_by": "secret"}))
    (tmp_path / "plan.json").touch()
    (tmp_path / "report.html").write_text("the secret")
    assert find_report(Home(tmp_path), RunAddress(dag_id, run_id)) is None


def test_a_run_with_a_request_is_found_at_its_own_address_only(tmp_path: Path) -> None:
    home = Home(tmp_path)
    for name, dag_id, at_ms in (
        ("old", "reprocess_flights", 1),
        ("new", "reprocess_flights", 2),
        ("other", "x", 3),
    ):
        leave_run(tmp_path, f"one.{name}.{name}", trigger=f"one.{name}", report=name)
        RunRequest("flights", dag_id, "one", f"one.{name}", at_ms).write(home)
    own = RunAddress("reprocess_flights", "one")
    assert [trigger.triggered_by for trigger in list_triggers(home, own)] == ["one.new"]
    found = [find_report(home, own, plan_hash) for plan_hash in (None, "old", "other")]
    assert [path and path.read_text() for path in found] == ["new", "old", None]
    assert list_triggers(home, RunAddress("reprocess_flights", "one.other")) == []


def test_a_run_whose_dag_run_was_deleted_has_ended(tmp_path: Path) -> None:
    leave_run(tmp_path, "r.aaa")
    request(RUN_ID, run_id="r.aaa").write(Home(tmp_path))
    airflow = Airflow(answering(404, b"{}"), "token")
    address = RunAddress("reprocess_flights", RUN_ID)
    shown = asyncio.run(load_run(PageStore.from_home(Home(tmp_path)), address, airflow))
    assert shown.state
    assert (shown.state.state.value, shown.state.error) == ("interrupted", DELETED)
