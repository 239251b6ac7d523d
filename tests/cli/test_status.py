"""What `status` and `stale` print."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from tests.workflow.history import at, write_clicks, write_definition
from tests.workflow.publishing import publish_counts
from typer.testing import CliRunner

from backstream.cli import app
from backstream.eventtime.instants import DAY_MS, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Plan
from backstream.variables import CATALOG_VARIABLE, HOME_VARIABLE
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run

SINCE_MS = instant_ms("2024-03-01", "since")
ROWS = [(at(f"{day} 05:00"), at(f"{day} 05:01"), "A", day, "home") for day in (1, 2, 3)]


@pytest.fixture(autouse=True)
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    monkeypatch.delenv(CATALOG_VARIABLE, raising=False)


def said(*arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": "250", "NO_COLOR": "1", "TERM": "dumb"}).invoke(app, arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def refusal(*arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": "250", "NO_COLOR": "1", "TERM": "dumb"}).invoke(app, arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    return result.stderr


def planned(folder: Path, reason: str = "") -> Plan:
    for row in ROWS:
        write_clicks(folder / f"data/{row[3]}.parquet", [row])
    definition = write_definition(folder)
    until_ms = SINCE_MS + 3 * DAY_MS
    return plan_run(
        PlanRequest(
            definition, Interval(SINCE_MS, until_ms), trigger="cli", reason=reason, home=Home(folder / "home")
        )
    )


def aged(plan: Plan, seconds: float) -> None:
    at_s = time.time() - seconds
    for file in plan.folder.path.rglob("*"):
        os.utime(file, (at_s, at_s))
    os.utime(plan.folder.plan, (at_s - 3_725, at_s - 3_725))


def test_without_runs_there_is_nothing_to_show() -> None:
    assert said("status") == "no runs\n"
    assert json.loads(said("status", "clicks", "--format", "json")) == []


def test_a_dataset_is_named_by_itself_and_by_the_file_of_its_definition(tmp_path: Path) -> None:
    plan = planned(tmp_path)

    for name in ("clicks", str(tmp_path / "clicks.toml")):
        (found,) = json.loads(said("status", name, "--format", "json"))
        assert found["run_id"] == plan.run_id


def test_status_shows_the_progress_of_an_interrupted_run(tmp_path: Path) -> None:
    plan = planned(tmp_path, "a second look")
    Manifest(plan.run_id, "0000", "0", 1, {}, {}).write(plan.folder.manifest("0000"))
    aged(plan, 3 * 3_600 + 120)

    assert said("status") == (
        "dataset  range                     mode       status       verdict  rows  duration  by                  "
        "progress\n"
        "clicks   2024-03-01 to 2024-03-04  recompute  interrupted  -           -      1h2m  cli: a second look  "
        "1 of 3 chunks, last heartbeat 3h2m ago\n"
    )
    (found,) = json.loads(said("status", "clicks", "--format", "json"))
    assert {
        name: found[name] for name in ("run_id", "state", "chunks_done", "chunks", "since", "seconds_left")
    } == {
        "run_id": plan.run_id,
        "state": "interrupted",
        "chunks_done": 1,
        "chunks": 3,
        "since": "2024-03-01T00:00Z",
        "seconds_left": None,
    }


@pytest.mark.parametrize(
    ("timings", "left"), [([], "time left unknown"), ([30.0], "1m left"), ([30.0, 60.0], "38s to 52s left")]
)
def test_status_estimates_the_time_left_of_a_running_run(tmp_path: Path, timings: list[float], left: str) -> None:
    plan = planned(tmp_path)
    begin_s = 1_700_000_000.0
    for number, seconds in enumerate(timings):
        begin_s += seconds
        ended = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(begin_s))
        chunk_id = f"000{number}"
        Manifest(plan.run_id, chunk_id, "0", 1, {}, {}, {"fates": seconds}, ended).write(
            plan.folder.manifest(chunk_id)
        )
    staged = plan.staging("") / "0000-1"
    staged.mkdir(parents=True)
    os.utime(plan.folder.plan, (time.time() - 100, time.time() - 100))

    line = said("status").splitlines()[1]

    assert " running " in line
    assert line.endswith(f"replay, {len(timings)} of 3 chunks, last heartbeat 0s ago, {left}")


def test_stale_prints_stale_days_with_the_cause_and_the_next_command(tmp_path: Path) -> None:
    publish_counts(planned(tmp_path), ROWS)
    definition = str(tmp_path / "clicks.toml")
    assert said("stale", definition) == "clicks: none of 3 published days is stale\n"
    assert said("run", definition, "--stale") == "clicks: none of 3 published days is stale\n"

    late = [(at("2 06:10"), at("2 23:00"), "B", 0, "home"), (at("2 06:20"), at("2 23:00"), "B", 1, "help")]
    write_clicks(tmp_path / "data/b.parquet", [*late, (at("3 00:00"), at("3 23:00"), "B", 2, "help")])

    assert said("stale", definition) == (
        "clicks: 2 of 3 published days are stale\n"
        "\n"
        "day         windows  why\n"
        f"2024-03-02        1  added: {tmp_path}/data/b.parquet, 2 records\n"
        f"2024-03-03        1  added: {tmp_path}/data/b.parquet, 1 record\n"
        "\n"
        f"hint: backstream run {definition} --stale\n"
    )
    in_the_range = ["--since", "2024-03-01", "--until", "2024-03-02"]
    assert said("stale", definition, *in_the_range) == "clicks: none of 1 published days is stale\n"


def test_a_range_has_two_ends(tmp_path: Path) -> None:
    definition = str(write_definition(tmp_path))

    assert refusal("run", definition, "--since", "2024-03-01") == (
        "error: a range needs both --since and --until; --stale finds its ranges by itself\n"
    )


def test_a_run_that_cannot_go_on_as_planned_is_refused_before_there_is_a_spark(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    Manifest(plan.run_id, "0000", "0", 1, {}, {}).write(plan.folder.manifest("0000"))
    definition = str(write_definition(tmp_path, size='"2h"'))

    assert refusal("run", definition, "--since", "2024-03-01", "--until", "2024-03-04") == (
        f"error: cannot run {plan.run_id}: the definition changed since it was planned ({definition})\n"
        '  window.size: "1h" -> "2h"\n'
        "  1 of 3 chunks are finished\n\n"
        "hint: use --replan to create a new plan; the interrupted run is kept\n"
    )
