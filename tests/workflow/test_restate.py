"""Check the ranges to reprocess, and the plan of a cleared run."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
from tests.workflow.history import CLICKS, at, write_clicks, write_definition
from tests.workflow.publishing import publish_counts

from backstream.errors import PlanError
from backstream.eventtime.instants import DAY_MS, instant_ms, instant_text
from backstream.eventtime.intervals import Interval
from backstream.lake.ledger import record_run, run_row
from backstream.runs.home import Home
from backstream.runs.plan import Mode, Plan
from backstream.runs.results import ApprovalDecision, Audit, Verdict
from backstream.runs.status import RunStatus
from backstream.workflow.late_data.restate import find_restatements
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
from backstream.workflow.report import report_run
from backstream.workflow.resume import find_plan_of, require_resumable

SINCE_MS = instant_ms("2024-03-01", "since")
DAY = [(at(f"{day} 05:00"), at(f"{day} 05:01"), "A", day, "home") for day in range(1, 7)]


def day_ms(day: int) -> int:
    return SINCE_MS + (day - 1) * DAY_MS


def run(
    folder: Path, first: int, end: int, status: RunStatus = RunStatus.PUBLISHED, trigger: str = "test"
) -> Plan:
    """Make a run of some days of March with a ledger row."""
    plan = planned(folder, first, end, trigger)
    if status is RunStatus.PUBLISHED:
        publish_counts(plan, DAY)
    span_ms = (day_ms(first), day_ms(end) + run_number(folder))
    record_run(Home(folder / "home"), run_row(plan, status, span_ms))
    return plan


def run_number(folder: Path) -> int:
    return len(list((folder / "home/runs/clicks").iterdir())) * 100 * DAY_MS


def planned(folder: Path, first: int, end: int, trigger: str = "test") -> Plan:
    home = Home(folder / "home")
    return plan_run(
        PlanRequest(folder / "clicks.toml", Interval(day_ms(first), day_ms(end)), trigger=trigger, home=home)
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a definition and six days with one click each."""
    write_clicks(tmp_path / "data/a.parquet", DAY)
    write_definition(tmp_path)
    return tmp_path


def found(
    folder: Path, since: int | None = None, until: int | None = None
) -> tuple[list[tuple[str, str, str]], str]:
    bounds = [None if day is None else day_ms(day) for day in (since, until)]
    restatements = find_restatements(folder / "clicks.toml", Home(folder / "home"), *bounds)
    ranges = [
        (instant_text(each.interval.start_ms)[8:10], instant_text(each.interval.end_ms)[8:10], each.reason)
        for each in restatements.ranges
    ]
    return ranges, restatements.summary


def test_there_is_no_range_before_the_first_run(folder: Path) -> None:
    assert found(folder) == ([], "clicks: 0 of 0 published days stale, 0 missing")


def test_days_between_those_that_were_published_are_missing(folder: Path) -> None:
    run(folder, 1, 2)
    run(folder, 5, 6)
    assert found(folder) == (
        [("02", "05", "missing: no run covers it")],
        "clicks: 0 of 2 published days stale, 3 missing",
    )


def test_a_scheduled_run_searches_up_to_its_own_interval(folder: Path) -> None:
    run(folder, 1, 3)
    assert found(folder, until=6)[0] == [("03", "06", "missing: no run covers it")]
    assert found(folder, since=4, until=6)[0] == [("04", "06", "missing: no run covers it")]


def test_nothing_is_missing_after_the_last_event_nor_before_the_first(folder: Path) -> None:
    #  events     1 2 3 4 5 6
    #  published  1       5
    run(folder, 1, 2)
    run(folder, 5, 6)
    assert [each[:2] for each in found(folder, until=20)[0]] == [("02", "05"), ("06", "07")]
    (folder / "data/a.parquet").unlink()
    write_clicks(folder / "data/b.parquet", [row for row in DAY if row[3] in (3, 4)])
    wanted = [each for each in found(folder, until=20)[0] if each[2].startswith("missing")]
    assert wanted == [("03", "05", "missing: no run covers it")]


def test_days_before_a_failed_run_are_not_missing(folder: Path) -> None:
    run(folder, 1, 2)
    write_clicks(folder / "data/b.parquet", [(at("25 05:00"), at("25 05:01"), "A", 99, "home")])
    run(folder, 25, 26, RunStatus.FAILED)
    (folder / "data/b.parquet").unlink()
    assert found(folder)[0] == []


def test_days_of_a_failed_run_are_missing_and_days_of_a_refused_run_are_not(folder: Path) -> None:
    run(folder, 1, 2)
    run(folder, 2, 3, RunStatus.FAILED)
    run(folder, 3, 4, RunStatus.REFUSED)
    assert found(folder, until=4) == (
        [("02", "03", "missing: no run covers it")],
        "clicks: 0 of 1 published days stale, 1 missing, 1 stay refused",
    )


def test_a_day_that_can_still_gain_events_is_not_missing_yet(folder: Path) -> None:
    write_definition(folder, CLICKS + '\n[backfill]\nmax_arrival_delay = "1d"\n')
    home = Home(folder / "home")
    plan = plan_run(PlanRequest(folder / "clicks.toml", Interval(day_ms(1), day_ms(2)), trigger="test", home=home))
    publish_counts(plan, DAY)
    record_run(home, run_row(plan, RunStatus.PUBLISHED, (0, 1)))
    ranges, summary = found(folder, until=7)
    assert ranges == [("02", "05", "missing: no run covers it")]
    assert summary.endswith("3 missing, 2 not sealed yet")


def test_late_data_and_gaps_are_ranges_in_their_order(folder: Path) -> None:
    run(folder, 1, 3)
    run(folder, 5, 6)
    late = [(at("5 07:00"), at("5 07:00") + timedelta(days=9), "A", 99, "late")]
    write_clicks(folder / "data/b.parquet", late)
    ranges, summary = found(folder)
    reason = f"late data: 1 window; added: {folder}/data/b.parquet, 1 record"
    assert ranges == [("03", "05", "missing: no run covers it"), ("05", "06", reason)]
    assert summary == "clicks: 1 of 3 published days stale, 2 missing"
    restatements = find_restatements(folder / "clicks.toml", Home(folder / "home"), is_missing_wanted=False)
    assert [each.mode for each in restatements.ranges] == [Mode.RECOMPUTE]


def test_days_after_the_last_event_are_not_run_again_even_if_their_plan_is_missing(folder: Path) -> None:
    #  events     1 2 3 4 5 6
    #  published  1 .. 8            then 1 .. 6 again, and the input of the first run is unknown
    first = run(folder, 1, 9)
    run(folder, 1, 7, trigger="again")
    assert found(folder)[0] == []
    first.folder.plan.unlink()
    assert found(folder)[0] == []


@pytest.mark.parametrize(
    ("verdict", "decision", "is_left"),
    [
        (Verdict.FAIL, None, True),
        (Verdict.PASS, ApprovalDecision(is_approved=False, by="ada", at="2024-03-09"), True),
        (Verdict.PASS, None, False),  # another run came first
        (
            Verdict.PASS,
            ApprovalDecision(is_approved=True, by="ada", at="2024-03-09"),
            False,
        ),  # the same, after a yes
    ],
)
def test_a_stale_day_stays_refused_until_new_late_data_arrives(
    folder: Path, verdict: Verdict, decision: ApprovalDecision | None, *, is_left: bool
) -> None:
    run(folder, 1, 4)
    late(folder, "b", 7)
    plan = run(folder, 2, 3, RunStatus.REFUSED)
    Audit(plan.run_id, "suite", verdict, "", ()).write(plan.folder.audit_result)
    if decision:
        decision.write(plan.folder.approval)
    first = f"added: {folder}/data/b.parquet, 1 record"
    again = ("02", "03", f"late data: 1 window; {first}")
    if is_left:
        assert found(folder) == ([], "clicks: 0 of 3 published days stale, 0 missing, 1 stay refused")
    else:
        assert found(folder)[0] == [again]
    late(folder, "c", 8)
    second = f"added: {folder}/data/c.parquet, 1 record"
    assert found(folder)[0] == [(*again[:2], f"late data: 2 windows; {first}; {second}")]


def late(folder: Path, name: str, hour: int) -> None:
    """Write a file with a click of the second of March that arrived a week later."""
    click_at = at(f"2 {hour:02}:00")
    write_clicks(folder / f"data/{name}.parquet", [(click_at, click_at + timedelta(days=9), "A", 90 + hour, name)])


def test_a_cleared_run_keeps_its_plan(folder: Path) -> None:
    plan = planned(folder, 1, 3, "manual__1")
    write_clicks(folder / "data/b.parquet", [(at("1 07:00"), at("9 07:00"), "A", 99, "late")])
    assert find_plan_of("manual__1", "clicks", Home(folder / "home")) == plan
    assert find_plan_of("manual__2", "clicks", Home(folder / "home")) is None
    assert find_plan_of("manual:_1", "clicks", Home(folder / "home")) is None


@pytest.mark.parametrize(("verdict", "has_ended"), [(Verdict.FAIL, True), (Verdict.WARN, False)])
def test_a_run_that_the_gate_refused_gets_a_new_plan(folder: Path, verdict: Verdict, *, has_ended: bool) -> None:
    plan = planned(folder, 1, 3, "manual__1")
    Audit(plan.run_id, "suite", verdict, "", ()).write(plan.folder.audit_result)
    assert (find_plan_of("manual__1", "clicks", Home(folder / "home")) is None) is has_ended


def test_a_published_run_keeps_its_plan_until_a_new_one_would_lead_to_other_rows(folder: Path) -> None:
    plan = run(folder, 1, 3, trigger="manual__1")
    assert find_plan_of("manual__1", "clicks", Home(folder / "home")) == plan
    report_run(plan)
    assert find_plan_of("manual__1", "clicks", Home(folder / "home")) == plan
    late(folder, "b", 7)
    assert find_plan_of("manual__1", "clicks", Home(folder / "home")) is None


def test_a_run_whose_rows_were_replaced_gets_a_new_plan(folder: Path) -> None:
    run(folder, 1, 3, trigger="manual__1")
    run(folder, 1, 3, trigger="manual__2")
    assert find_plan_of("manual__1", "clicks", Home(folder / "home")) is None


def test_a_plan_into_whose_range_another_run_published_is_not_resumed(folder: Path) -> None:
    planned(folder, 1, 3, "manual__1")
    run(folder, 2, 4, trigger="manual__2")
    assert find_plan_of("manual__1", "clicks", Home(folder / "home")) is None


def test_a_run_that_ended_is_not_resumed_if_the_clock_of_the_reporting_machine_is_behind(folder: Path) -> None:
    plan = run(folder, 1, 3, trigger="manual__1")
    report_run(plan)
    os.utime(plan.folder.report, (1, 1))
    late(folder, "b", 7)
    assert find_plan_of("manual__1", "clicks", Home(folder / "home")) is None


def test_a_report_from_before_the_publication_does_not_end_the_run(folder: Path) -> None:
    plan = planned(folder, 1, 3, "manual__1")
    report_run(plan)
    assert plan.folder.report.exists()
    assert not plan.folder.success_marker.exists()


def test_the_error_of_a_run_that_cannot_be_resumed_has_the_hint(folder: Path) -> None:
    plan = planned(folder, 1, 3, "manual__1")
    write_clicks(folder / "data/a.parquet", DAY[:3])
    with pytest.raises(PlanError, match=r"hint: start anew$"):
        require_resumable(plan, "start anew")
