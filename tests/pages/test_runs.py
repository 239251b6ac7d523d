from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from backstream.eventtime.intervals import Interval
from backstream.pages.runs import RunEntry, find_report, list_newest_runs
from backstream.runs.home import Home

FEB_1, MAR_1 = 1359676800000, 1362096000000
RUN_ID = "backfill__2013-03-01T00:00:00+00:00"


def leave_run(home: Path, folder: str, *, dataset: str = "flights", planned_at_s: int = 0, **left: object) -> None:
    """Write the summary of a plan with the trigger `RUN_ID`, and the other given files of a run."""
    path = home / "runs" / dataset / folder
    path.mkdir(parents=True)
    plan = {"dataset": dataset, "triggered_by": RUN_ID, "mode": "replay", "plan_hash": folder.rpartition(".")[2]}
    (path / "run.json").write_text(json.dumps(plan | {"since_ms": FEB_1, "until_ms": MAR_1}))
    (path / "plan.json").write_text("no page reads it, for it may be large")
    os.utime(path / "plan.json", (planned_at_s, planned_at_s))
    for name, content in left.items():
        if name == "report":
            (path / "report.html").write_text(str(content))
        else:
            (path / f"{name}.json").write_text(json.dumps(content))


def test_a_run_is_listed_with_its_verdict_and_what_it_published(tmp_path: Path) -> None:
    leave_run(tmp_path, "r.aaa", audit_result={"verdict": "warn"}, publication={"rows": 4499}, report="<p>")
    assert list_newest_runs(Home(tmp_path), {"backfill_flights"}) == [
        RunEntry("flights", RUN_ID, "aaa", "replay", Interval(FEB_1, MAR_1), 0.0, "warn", 4499, has_report=True)
    ]


def test_a_run_that_has_only_been_planned_is_listed_too(tmp_path: Path) -> None:
    leave_run(tmp_path, "r.aaa")
    (run,) = list_newest_runs(Home(tmp_path), {"backfill_flights"})
    assert (run.verdict, run.rows, run.has_report) == ("", None, False)


def test_the_newest_run_comes_first_and_only_the_newest_are_listed(tmp_path: Path) -> None:
    for number in range(4):
        leave_run(tmp_path, f"r.{number}", planned_at_s=number)
    runs = list_newest_runs(Home(tmp_path), {"backfill_flights"}, limit=2)
    assert [run.plan_hash for run in runs] == ["3", "2"]


def test_runs_of_dags_that_a_user_may_not_read_are_not_listed(tmp_path: Path) -> None:
    leave_run(tmp_path, "r.aaa", dataset="flights")
    leave_run(tmp_path, "r.bbb", dataset="salaries")
    runs = list_newest_runs(Home(tmp_path), {"backfill_flights", "salaries"})
    assert [run.dataset for run in runs] == ["flights"]


def test_a_folder_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    leave_run(tmp_path, "r.aaa", planned_at_s=1)
    leave_run(tmp_path, "r.bbb", planned_at_s=2)
    (tmp_path / "runs" / "flights" / "r.bbb" / "run.json").write_text("{")
    assert [run.plan_hash for run in list_newest_runs(Home(tmp_path), {"backfill_flights"})] == ["aaa"]


def test_the_report_of_a_dag_run_is_that_of_its_newest_plan(tmp_path: Path) -> None:
    leave_run(tmp_path, "r.aaa", planned_at_s=1, report="first")
    leave_run(tmp_path, "r.bbb", planned_at_s=2, report="second")
    found = find_report(Home(tmp_path), "backfill_flights", RUN_ID)
    assert found
    assert found.read_text() == "second"


def test_the_report_of_an_earlier_plan_is_found_by_its_hash(tmp_path: Path) -> None:
    leave_run(tmp_path, "r.aaa", planned_at_s=1, report="first")
    leave_run(tmp_path, "r.bbb", planned_at_s=2, report="second")
    found = find_report(Home(tmp_path), "backfill_flights", RUN_ID, "aaa")
    assert found
    assert found.read_text() == "first"


def test_as_long_as_the_newest_plan_has_no_report_an_older_one_is_not_shown_for_it(tmp_path: Path) -> None:
    leave_run(tmp_path, "r.aaa", planned_at_s=1, report="first")
    leave_run(tmp_path, "r.bbb", planned_at_s=2)
    assert find_report(Home(tmp_path), "backfill_flights", RUN_ID) is None


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
    leave_run(tmp_path, "r.aaa", report="the report")
    (tmp_path / "run.json").write_text(json.dumps({"triggered_by": "secret"}))
    (tmp_path / "plan.json").touch()
    (tmp_path / "report.html").write_text("the secret")
    assert find_report(Home(tmp_path), dag_id, run_id) is None
