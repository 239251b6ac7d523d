"""One day of flights in the real Airflow of the demo, from the trigger request to the end of the publication.

Three days with about equally many flights run one after another, in a separate state folder. Before them, the
command line runs one day and Airflow runs another. The benchmark measures neither. The first creates the archive
of Java classes, and the second the compiled modules of Python.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from demo.airflow_api import FINISHED, AirflowApi
from demo.flights import prepare
from demo.processes import StackError
from demo.settings import CHECKOUT
from demo.stack import Stack

from backstream.spark import java
from backstream.variables import HOME_VARIABLE
from benchmarks.results import TaskTimes

DAG_ID = "reprocess_flights"
DAYS = (date(2013, 2, 3), date(2013, 2, 2), date(2013, 2, 10))
"""The measured days, with 736, 741, and 730 flights."""
FIRST_DAYS = (date(2013, 2, 11), date(2013, 2, 12))
"""The first days, run by the command line and by Airflow."""
TASKS = ("plan", "replay", "audit", "approve", "publish", "report")
PUBLISHED_S, REPLAY_S = 20.0, 10.0
"""The most seconds from the trigger to the end of `publish`, and the most seconds of the task `replay`."""

_POLL_S = 0.5  # each request costs the API server some processor time, which the tasks need
_ARCHIVE_S = 120.0

Say = Callable[[str], None]


def task_times(say: Say, folder: Path, rounds: int) -> list[TaskTimes]:
    """Return the times of each task in each round.

    Raises:
        StackError: if Airflow does not start, or a run fails.
    """
    shutil.rmtree(folder, ignore_errors=True)
    prepare(folder, progress=lambda step: say(f"flights: {step}"))
    _run_by_command(folder, FIRST_DAYS[0])
    _wait_for_archive(say)
    started_at, all_times = datetime.now(UTC), list[TaskTimes]()
    with Stack(folder) as stack:
        api = stack.start()
        stack.wait_until(f"knows the DAG {DAG_ID}", lambda: api.has_dag(DAG_ID, started_at))
        _run_by_airflow(api, stack, FIRST_DAYS[1], 0)
        for number in range(1, rounds + 1):
            times = _run_by_airflow(api, stack, DAYS[(number - 1) % len(DAYS)], number)
            say(f"one day in Airflow, round {number} of {rounds}: published after {published_s(times):.1f} s")
            all_times.extend(times)
    shutil.rmtree(folder)
    return all_times


def published_s(times: Sequence[TaskTimes]) -> float:
    """Return the seconds from the trigger of a round to the end of `publish`."""
    return next(task.ended_s for task in times if task.task == "publish")


def replay_s(times: Sequence[TaskTimes]) -> float:
    """Return the seconds of the task `replay` of a round, from its start."""
    return next(task.ended_s - task.started_s for task in times if task.task == "replay")


def by_round(times: Sequence[TaskTimes]) -> list[list[TaskTimes]]:
    """Return the times of each round."""
    return [[task for task in times if task.round == number] for number in sorted({task.round for task in times})]


def medians(times: Sequence[TaskTimes]) -> list[TaskTimes]:
    """Return the medians over all rounds for each task, with the round number 0."""
    return [_median([entry for entry in times if entry.task == task]) for task in TASKS]


def _median(times: Sequence[TaskTimes]) -> TaskTimes:
    names = ("queued_s", "started_s", "ended_s", "took_s", "load")
    middle = {name: statistics.median(getattr(entry, name) for entry in times) for name in names}
    return TaskTimes(0, times[0].task, **middle)


def times_of(
    tasks: Sequence[Mapping[str, Any]], triggered_at: datetime, number: int, load: float
) -> list[TaskTimes]:
    """Return the times of a run's tasks, in their order, in seconds after the trigger.

    Args:
        tasks: task instances from Airflow's API.
        triggered_at: the time of the trigger request.
        number: the number of the round.
        load: the number of processes with work in the minute before.
    """
    instances = {task["task_id"]: task for task in tasks}

    def times(name: str) -> TaskTimes:
        instants = [
            datetime.fromisoformat(instances[name][at]) for at in ("queued_when", "start_date", "end_date")
        ]
        queued_s, started_s, ended_s = ((instant - triggered_at).total_seconds() for instant in instants)
        return TaskTimes(number, name, queued_s, started_s, ended_s, ended_s - started_s, load)

    return [times(name) for name in TASKS]


def _run_by_command(home: Path, day: date) -> None:
    definition = CHECKOUT / "pipelines" / "definitions" / "flights.toml"
    ends = ["--since", day.isoformat(), "--until", (day + timedelta(days=1)).isoformat()]
    command = [sys.executable, "-m", "backstream.cli", "run", str(definition), *ends, "--mode", "replay"]
    subprocess.run(command, env=os.environ | {HOME_VARIABLE: str(home)}, check=True, capture_output=True)


def _wait_for_archive(say: Say) -> None:
    """Wait for the archive. Java writes it after the end of the command. If Java cannot, continue without it."""
    path, until = java.archive_path(), time.monotonic() + _ARCHIVE_S
    while path and not java.is_archive_complete(path):
        if time.monotonic() > until:
            say(f"there is no archive of Java classes at {path}")
            return
        time.sleep(_POLL_S)


def _run_by_airflow(api: AirflowApi, stack: Stack, day: date, number: int) -> list[TaskTimes]:
    """Run a day, and return the times of its tasks."""
    conf = {
        "since": f"{day}T00:00:00Z",
        "until": f"{day + timedelta(days=1)}T00:00:00Z",
        "mode": "replay",
        "reason": "benchmark",
    }
    load, triggered_at = os.getloadavg()[0], datetime.now(UTC)
    run_id = api.trigger(DAG_ID, conf)
    while (state := api.run_state(DAG_ID, run_id)) not in FINISHED:
        stack.require_alive()
        time.sleep(_POLL_S)
    tasks = api.task_instances(DAG_ID, run_id)
    if state != "success":
        failures = [task["task_id"] for task in tasks if task["state"] == "failed"]
        msg = (
            f"the run {run_id} of {DAG_ID} failed in {', '.join(failures)}; its logs are in {stack.place.airflow}"
        )
        raise StackError(msg)
    return times_of(tasks, triggered_at, number, load)
