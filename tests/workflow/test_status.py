"""The ledger for people: runs in every state, told by the files that they left."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.workflow.history import at, write_clicks, write_definition
from tests.workflow.publishing import publish_counts

from backstream.eventtime.instants import DAY_MS, MINUTE_MS, instant_ms, instant_text
from backstream.lake.ledger import Status, record_run, run_row
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Plan
from backstream.runs.results import Audit, Verdict
from backstream.workflow import plan_run
from backstream.workflow.status import RunPhase, RunState, list_run_states

SINCE_MS = instant_ms("2024-03-01", "since")
BEGIN_MS = instant_ms("2024-04-01", "begin")
CLICK = (at("1 05:00"), at("1 05:01"), "A", 0, "home")


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """A plan of three days, of some ten expected events each, written at `BEGIN_MS`."""
    for day in (1, 2, 3):
        rows = [(at(f"{day} {hour:02}:00"), at(f"{day} 23:59"), "A", hour, "home") for hour in range(10)]
        write_clicks(tmp_path / f"data/{day}.parquet", rows)
    home = Home(tmp_path / "home")
    until_ms = SINCE_MS + 3 * DAY_MS
    made = plan_run(
        write_definition(tmp_path), SINCE_MS, until_ms, trigger="cli", reason="a second look", home=home
    )
    touch(made.folder.path, 0)
    return made


def touch(folder: Path, minute: int) -> None:
    """Nothing in a folder was written after this minute of the run."""
    at_s = (BEGIN_MS + minute * MINUTE_MS) / 1_000
    for file in (folder, *folder.rglob("*")):
        os.utime(file, (at_s, at_s))


def finish(plan: Plan, number: int, minute: int, seconds: float = 60.0) -> None:
    """One chunk ends in this minute of the run."""
    chunk_id = plan.chunks[number].chunk_id
    ended = instant_text(BEGIN_MS + minute * MINUTE_MS).replace("Z", "+00:00")
    manifest = Manifest(plan.run_id, chunk_id, "0", 10, {}, {}, {"fates": seconds}, ended)
    manifest.write(plan.folder.manifest(chunk_id))
    touch(plan.folder.path, minute)
    os.utime(plan.folder.plan, (BEGIN_MS / 1_000, BEGIN_MS / 1_000))


def state(plan: Plan, minute: int = 0) -> RunState:
    (found,) = list_run_states(Home(Path(plan.home)), "clicks", now_ms=BEGIN_MS + minute * MINUTE_MS)
    return found


def test_a_plan_is_a_run_that_has_not_begun(plan: Plan) -> None:
    found = state(plan, minute=5)

    assert (found.state, found.chunks_done, found.chunks, found.seconds_left) == (RunPhase.PLANNED, 0, 3, None)
    assert (found.triggered_by, found.reason, found.mode, found.interval) == (
        "cli",
        "a second look",
        "recompute",
        plan.range,
    )


def test_a_run_is_under_way_as_long_as_it_leaves_files(plan: Plan) -> None:
    finish(plan, 0, minute=2, seconds=120)

    alive, dead = state(plan, minute=12), state(plan, minute=13)

    # 12 s per event, 20 events to come
    assert (alive.state, alive.chunks_done, alive.seconds_left) == (RunPhase.RUNNING, 1, (240.0, 240.0))
    assert alive.last_sign_ms == BEGIN_MS + 2 * MINUTE_MS
    assert (dead.state, dead.seconds_left) == (RunPhase.INTERRUPTED, None)


def test_the_plan_itself_is_not_read(plan: Plan) -> None:
    finish(plan, 0, minute=2, seconds=120)
    before = state(plan, minute=12)

    plan.folder.plan.write_text("large")
    os.utime(plan.folder.plan, (BEGIN_MS / 1_000, BEGIN_MS / 1_000))

    assert state(plan, minute=12) == before


def test_a_plan_without_a_summary_is_no_run_that_is_shown(plan: Plan) -> None:
    plan.folder.summary.unlink()

    assert list_run_states(Home(Path(plan.home)), "clicks") == []


def test_of_hundreds_of_finished_chunks_the_newest_say_how_long_the_others_will_take(plan: Plan) -> None:
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

    assert (found.state, found.chunks_done, found.chunks) == (RunPhase.RUNNING, 300, 302)
    assert found.seconds_left == pytest.approx((120.0, 120.0), rel=0.02)


def test_chunks_that_ran_as_one_took_as_long_as_all_of_them(plan: Plan) -> None:
    finish(plan, 0, minute=14, seconds=400)
    finish(plan, 1, minute=14, seconds=400)

    alive, dead = state(plan, minute=14 + 26), state(plan, minute=14 + 27)  # twice 800 s are 26 min and 40 s

    assert (alive.state, alive.chunks_done, alive.seconds_left) == (RunPhase.RUNNING, 2, (400.0, 400.0))
    assert dead.state is RunPhase.INTERRUPTED


def test_a_file_staged_for_a_table_is_a_sign_of_life_before_the_first_chunk_is_done(plan: Plan) -> None:
    staged = Path(plan.tables[""].location) / "data" / plan.run_id / "0000-1"
    staged.mkdir(parents=True)
    touch(staged.parent, 3)

    found = state(plan, minute=4)

    assert (found.state, found.seconds_left, found.seconds) == (RunPhase.RUNNING, None, 180.0)


def test_what_the_gate_refused_is_refused_with_its_verdict(plan: Plan) -> None:
    finish(plan, 0, minute=1)
    Audit(plan.run_id, "suite", Verdict.FAIL, "", ()).write(plan.folder.audit_result)

    assert (state(plan).state, state(plan).verdict) == (RunPhase.REFUSED, "fail")


@pytest.mark.parametrize(
    ("status", "said"), [(Status.REFUSED, RunPhase.REFUSED), (Status.FAILED, RunPhase.FAILED)], ids=str
)
def test_how_a_run_ended_is_told_by_the_ledger_too(plan: Plan, status: Status, said: RunPhase) -> None:
    finish(plan, 0, minute=1)
    record_run(Home(Path(plan.home)), run_row(plan, status, (BEGIN_MS, BEGIN_MS + 90_000)))

    assert (state(plan).state, state(plan).seconds) == (said, 90.0)


def test_a_published_run_stays_in_the_ledger_when_its_folder_is_gone(plan: Plan) -> None:
    publish_counts(plan, [CLICK])
    assert (state(plan).state, state(plan).rows) == (RunPhase.PUBLISHED, 1)

    row = run_row(plan, Status.PUBLISHED, (BEGIN_MS, BEGIN_MS + 90_000), Verdict.WARN, rows=1)
    record_run(Home(Path(plan.home)), row)
    shutil.rmtree(plan.folder.path)

    found = state(plan)
    assert (found.state, found.rows, found.verdict, found.chunks) == (RunPhase.PUBLISHED, 1, "warn", None)
    assert row.finished_by_version == "0.1.0"


def test_the_newest_runs_come_first_and_no_more_than_asked_for(plan: Plan) -> None:
    home = Home(Path(plan.home))
    for number in (1, 2, 3):
        other = replace(plan, triggered_by=f"t{number}", dataset="clicks" if number < 3 else "other")
        other.write()
        touch(other.folder.path, number)

    assert [each.triggered_by for each in list_run_states(home)] == ["t3", "t2", "t1", "cli"]
    assert [each.triggered_by for each in list_run_states(home, "clicks", limit=2)] == ["t2", "t1"]
