"""Check the status and progress of runs, by their files and the ledger."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.workflow.history import at, write_clicks, write_definition
from tests.workflow.publishing import publish_counts

from backstream.eventtime.instants import DAY_MS, MINUTE_MS, instant_ms, instant_text
from backstream.eventtime.intervals import Interval
from backstream.lake.ledger import record_run, run_row
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Plan
from backstream.runs.progress import Phase, begin_phase, withdraw_phase
from backstream.runs.requests import RunRequest, record_end
from backstream.runs.results import ApprovalRequest, Audit, Verdict
from backstream.runs.status import RunStatus
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
from backstream.workflow.run_state import RunState
from backstream.workflow.status import list_run_states

SINCE_MS = instant_ms("2024-03-01", "since")
BEGIN_MS = instant_ms("2024-04-01", "begin")
CLICK = (at("1 05:00"), at("1 05:01"), "A", 0, "home")


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """Return a plan of three days with about ten expected events each, written at `BEGIN_MS`."""
    for day in (1, 2, 3):
        rows = [(at(f"{day} {hour:02}:00"), at(f"{day} 23:59"), "A", hour, "home") for hour in range(10)]
        write_clicks(tmp_path / f"data/{day}.parquet", rows)
    home = Home(tmp_path / "home")
    until_ms = SINCE_MS + 3 * DAY_MS
    made = plan_run(
        PlanRequest(
            write_definition(tmp_path),
            Interval(SINCE_MS, until_ms),
            trigger="cli",
            reason="a second look",
            home=home,
        )
    )
    touch(made.folder.path, 0)
    return made


def touch(folder: Path, minute: int) -> None:
    """Set the modification time of all files in a folder to this minute of the run."""
    at_s = (BEGIN_MS + minute * MINUTE_MS) / 1_000
    for file in (folder, *folder.rglob("*")):
        os.utime(file, (at_s, at_s))


def finish(plan: Plan, number: int, minute: int, seconds: float = 60.0) -> None:
    """Finish a chunk in this minute of the run."""
    chunk_id = plan.chunks[number].chunk_id
    ended = instant_text(BEGIN_MS + minute * MINUTE_MS).replace("Z", "+00:00")
    manifest = Manifest(plan.run_id, chunk_id, "0", 10, {}, {}, {"fates": seconds}, ended)
    manifest.write(plan.folder.manifest(chunk_id))
    touch(plan.folder.path, minute)
    os.utime(plan.folder.plan, (BEGIN_MS / 1_000, BEGIN_MS / 1_000))


def state(plan: Plan, minute: int = 0) -> RunState:
    (found,) = list_run_states(plan.home, "clicks", now_ms=BEGIN_MS + minute * MINUTE_MS)
    return found


def test_a_run_with_only_a_plan_is_planned(plan: Plan) -> None:
    found = state(plan, minute=5)

    assert (found.state, found.chunks_done, found.chunks, found.seconds_left) == (RunStatus.PLANNED, 0, 3, None)
    assert (found.triggered_by, found.reason, found.mode, found.interval) == (
        "cli",
        "a second look",
        "recompute",
        plan.range,
    )


def test_a_run_is_running_as_long_as_it_writes_files(plan: Plan) -> None:
    finish(plan, 0, minute=2, seconds=120)

    alive, dead = state(plan, minute=12), state(plan, minute=13)

    # 12 s per event, 20 events to come
    assert (alive.state, alive.chunks_done, alive.seconds_left) == (RunStatus.RUNNING, 1, (240.0, 240.0))
    assert alive.last_sign_ms == BEGIN_MS + 2 * MINUTE_MS
    assert (dead.state, dead.seconds_left) == (RunStatus.INTERRUPTED, None)


def test_the_plan_itself_is_not_read(plan: Plan) -> None:
    finish(plan, 0, minute=2, seconds=120)
    before = state(plan, minute=12)

    plan.folder.plan.write_text("large")
    os.utime(plan.folder.plan, (BEGIN_MS / 1_000, BEGIN_MS / 1_000))

    assert state(plan, minute=12) == before


def test_a_plan_without_a_summary_is_not_listed(plan: Plan) -> None:
    plan.folder.summary.unlink()

    assert list_run_states(plan.home, "clicks") == []


def test_the_newest_of_hundreds_of_finished_chunks_estimate_the_remaining_time(plan: Plan) -> None:
    first, days = plan.chunks[0], range(302)
    chunks = tuple(replace(first, chunk_id=f"{day:04}", start_ms=SINCE_MS + day * DAY_MS) for day in days)
    long = replace(plan, chunks=chunks)
    long.write()
    plan.folder.plan.unlink()
    for chunk in chunks[:-2]:
        number = int(chunk.chunk_id)
        ended = instant_text(BEGIN_MS + number * MINUTE_MS).replace("Z", "+00:00")
        file = long.folder.manifest(chunk.chunk_id)
        Manifest(long.run_id, chunk.chunk_id, chunk.chunk_id, 10, {}, {}, {"fates": 60.0}, ended).write(file)
        if number < 100:
            file.write_text("no manifest")
        os.utime(file, (BEGIN_MS / 1_000 + number, BEGIN_MS / 1_000 + number))
    os.utime(long.folder.plan, (BEGIN_MS / 1_000, BEGIN_MS / 1_000))

    found = state(long, minute=5)

    assert (found.state, found.chunks_done, found.chunks) == (RunStatus.RUNNING, 300, 302)
    assert found.seconds_left == pytest.approx((120.0, 120.0), rel=0.02)


def test_the_seconds_of_chunks_that_ran_as_one_are_added(plan: Plan) -> None:
    finish(plan, 0, minute=14, seconds=400)
    finish(plan, 1, minute=14, seconds=400)

    alive, dead = state(plan, minute=14 + 26), state(plan, minute=14 + 27)  # twice 800 s are 26 min and 40 s

    assert (alive.state, alive.chunks_done, alive.seconds_left) == (RunStatus.RUNNING, 2, (400.0, 400.0))
    assert dead.state is RunStatus.INTERRUPTED


def test_a_staged_file_is_a_sign_of_life_before_the_first_chunk_is_finished(plan: Plan) -> None:
    staged = Path(plan.tables[""].location) / "data" / plan.run_id / "0000-1"
    staged.mkdir(parents=True)
    touch(staged.parent, 3)

    found = state(plan, minute=4)

    assert (found.state, found.seconds_left, found.seconds) == (RunStatus.RUNNING, None, 180.0)


def test_a_run_names_its_phase_before_spark_has_started(plan: Plan) -> None:
    begin_phase(plan.folder, Phase.START_SPARK, "0000")
    touch(plan.folder.phases, 1)

    starts, dead = state(plan, minute=2), state(plan, minute=12)

    assert (starts.state, starts.phase) == (RunStatus.RUNNING, "start Spark, 0 of 3 chunks")
    assert starts.last_sign_ms == BEGIN_MS + MINUTE_MS
    assert (dead.state, dead.phase) == (RunStatus.INTERRUPTED, "")


def test_a_cluster_may_start_a_driver_of_airflow_hours_later_and_a_failed_start_is_no_start(plan: Plan) -> None:
    home = plan.home
    RunRequest("clicks", "reprocess_clicks", "cli", "cli", BEGIN_MS, run_id=plan.run_id).write(home)
    begin_phase(plan.folder, Phase.START_SPARK, "0000")
    touch(plan.folder.phases, 1)

    assert state_at(plan, 24 * 60) == (RunStatus.RUNNING, None)
    assert state_at(plan, 24 * 60 + 2) == (RunStatus.INTERRUPTED, None)

    withdraw_phase(plan.folder, Phase.START_SPARK, "0000")
    assert (state(plan, 2).state, state(plan, 2).phase) == (RunStatus.PLANNED, "3 chunks to replay")


def test_a_chunk_without_a_file_for_an_hour_is_replayed_as_long_as_its_job_has_a_heartbeat(plan: Plan) -> None:
    begin_phase(plan.folder, Phase.REPLAY, "0000")
    touch(plan.folder.phases, 60)

    assert (state(plan, 65).state, state(plan, 65).phase) == (RunStatus.RUNNING, "replay, 0 of 3 chunks")
    assert state(plan, 71).state is RunStatus.INTERRUPTED


def test_a_published_run_writes_its_report_until_the_report_exists(plan: Plan) -> None:
    publish_counts(plan, [CLICK])
    touch(plan.home.path, 1)
    phases = [state(plan, 2).phase, state(plan, 12).phase]
    plan.folder.success_marker.touch()
    assert [*phases, state(plan, 2).phase] == ["report", "", ""]


def test_a_run_goes_on_as_soon_as_it_writes_a_file_after_its_failure_and_a_report_is_none(plan: Plan) -> None:
    finish(plan, 0, minute=1)
    at_ms = BEGIN_MS + MINUTE_MS
    row = replace(run_row(plan, RunStatus.FAILED, (BEGIN_MS, at_ms), None, None, None), error="no space")
    record_run(plan.home, row)

    plan.folder.report.write_text("")
    os.utime(plan.folder.report, ((at_ms + 5_000) / 1_000,) * 2)
    touch_folder_s = (BEGIN_MS + MINUTE_MS) / 1_000
    os.utime(plan.folder.path, (touch_folder_s, touch_folder_s))
    assert (state(plan, 1).state, state(plan, 1).error) == (RunStatus.FAILED, "no space")

    manifest = plan.folder.manifest(plan.chunks[0].chunk_id)
    os.utime(manifest, ((at_ms + 2_000) / 1_000,) * 2)
    assert (state(plan, 2).state, state(plan, 2).error) == (RunStatus.RUNNING, None)


def test_a_run_that_the_gate_rejected_is_refused_with_its_verdict(plan: Plan) -> None:
    finish(plan, 0, minute=1)
    Audit(plan.run_id, "suite", Verdict.FAIL, "", ()).write(plan.folder.audit_result)

    assert (state(plan).state, state(plan).verdict) == (RunStatus.REFUSED, "fail")


@pytest.mark.parametrize(
    ("status", "expected"), [(RunStatus.REFUSED, RunStatus.REFUSED), (RunStatus.FAILED, RunStatus.FAILED)], ids=str
)
def test_the_ledger_has_the_status_of_an_ended_run(plan: Plan, status: RunStatus, expected: RunStatus) -> None:
    finish(plan, 0, minute=1)
    record_run(plan.home, run_row(plan, status, (BEGIN_MS, BEGIN_MS + 90_000)))

    assert (state(plan).state, state(plan).seconds) == (expected, 90.0)


def test_a_published_run_without_a_folder_is_listed_from_the_ledger(plan: Plan) -> None:
    publish_counts(plan, [CLICK])
    assert (state(plan).state, state(plan).rows) == (RunStatus.PUBLISHED, 1)

    row = run_row(plan, RunStatus.PUBLISHED, (BEGIN_MS, BEGIN_MS + 90_000), Verdict.WARN, rows=1)
    record_run(plan.home, row)
    shutil.rmtree(plan.folder.path)

    found = state(plan)
    assert (found.state, found.rows, found.verdict, found.chunks) == (RunStatus.PUBLISHED, 1, "warn", None)
    assert row.finished_by_version == "0.1.0"


def test_the_newest_runs_are_listed_first_up_to_the_limit(plan: Plan) -> None:
    home = plan.home
    for number in (1, 2, 3):
        other = replace(plan, triggered_by=f"t{number}", dataset="clicks" if number < 3 else "other")
        other.write()
        touch(other.folder.path, number)

    assert [each.triggered_by for each in list_run_states(home)] == ["t3", "t2", "t1", "cli"]
    assert [each.triggered_by for each in list_run_states(home, "clicks", limit=2)] == ["t2", "t1"]


def test_a_run_that_airflow_ended_is_not_running_until_it_continues(plan: Plan) -> None:
    home, minute_ms = plan.home, MINUTE_MS
    RunRequest("clicks", "reprocess_clicks", "cli", "cli", BEGIN_MS, run_id=plan.run_id).write(home)
    finish(plan, 0, 1)
    assert state_at(plan, 2) == (RunStatus.RUNNING, None)

    record_end(home, "reprocess_clicks", "cli", BEGIN_MS + 2 * minute_ms)
    ended = "Airflow ended the run before it had a result; its note or the log of its tasks has the reason"
    assert state_at(plan, 3) == (RunStatus.INTERRUPTED, ended)

    finish(plan, 1, 4)  # somebody continues the run by the command line
    assert state_at(plan, 5) == (RunStatus.RUNNING, None)

    record_end(home, "reprocess_clicks", "cli", BEGIN_MS + 5 * minute_ms)
    assert state_at(plan, 6) == (RunStatus.INTERRUPTED, ended)
    record_end(home, "reprocess_clicks", "cli", None)  # somebody cleared it
    assert state_at(plan, 6) == (RunStatus.RUNNING, None)


def test_a_run_that_airflow_ended_before_its_plan_has_failed(tmp_path: Path) -> None:
    home = Home(tmp_path)
    RunRequest("clicks", "reprocess_clicks", "killed", "killed", BEGIN_MS).write(home)
    record_end(home, "reprocess_clicks", "killed", BEGIN_MS + MINUTE_MS)
    record_end(home, "somebodys_own_dag", "killed", BEGIN_MS + MINUTE_MS)

    (run,) = list_run_states(home)

    assert (run.state, str(run.error).partition(";")[0]) == (
        RunStatus.FAILED,
        "Airflow ended the run before it had a result",
    )


def state_at(plan: Plan, minute: int) -> tuple[RunStatus, str | None]:
    """Return the status and the error of the only run at a minute."""
    (run,) = list_run_states(plan.home, now_ms=BEGIN_MS + minute * MINUTE_MS)
    return run.state, run.error


def test_an_approval_without_an_answer_an_hour_after_its_limit_is_interrupted(plan: Plan) -> None:
    for number in range(3):
        finish(plan, number, minute=2)
    Audit(plan.run_id, "window_audit", Verdict.WARN, "late", ()).write(plan.folder.audit_result)
    limit_ms = BEGIN_MS + 60 * MINUTE_MS
    asked = ApprovalRequest("reprocess_clicks", "one", "approve", BEGIN_MS, limit_ms, "Publish?")
    asked.write(plan.folder.approval_request)
    touch(plan.folder.path, 3)

    assert state_at(plan, 119) == (RunStatus.AWAITING_APPROVAL, None)
    assert state_at(plan, 120) == (RunStatus.AWAITING_APPROVAL, None)
    assert state_at(plan, 121) == (
        RunStatus.INTERRUPTED,
        "there was no answer within the time limit, and Airflow has not recorded the end of the run",
    )
