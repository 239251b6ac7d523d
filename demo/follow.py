"""Show the progress of a run in Airflow: a progress bar with the time left, and a line per finished task."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from demo.airflow_api import FINISHED, AirflowApi

USUAL_S = {
    "plan": 9.0,
    "replay": 22.0,
    "audit": 12.0,
    "approve": 6.0,
    "publish": 8.0,
    "report": 8.0,
    "restate": 3.0,
}
"""Approximate seconds of each task on two cores, as weights of the progress bar."""

_RESULTS = "backstream.orchestration.tasks"
_POLL_S = 1.0  # each request takes the API server some 50 ms of a core, which Spark needs
_FINAL_STATES = ("success", "failed", "upstream_failed", "skipped")
_MAX_RUNNING_SHARE = 0.95
_LOG_LINES = 25

Task = dict[str, Any]


@dataclass(slots=True)
class Followed:
    """Run of a DAG, observed with Airflow's API."""

    api: AirflowApi
    dag_id: str
    run_id: str
    console: Console
    printed: set[tuple[str, int]] = field(default_factory=set)

    def until_finished(self, require_alive: Callable[[], None]) -> str:
        """Show progress until the run has ended, and return its state: `success` or `failed`."""
        with _bar(self.console) as bar:
            line = bar.add_task("plan", total=None)
            while True:
                tasks = self.api.task_instances(self.dag_id, self.run_id)
                self._print_finished(tasks)
                _advance(bar, line, tasks)
                if all(task["state"] in _FINAL_STATES for task in tasks):
                    state = self.api.run_state(self.dag_id, self.run_id)
                    if state in FINISHED:
                        return state
                require_alive()
                time.sleep(_POLL_S)

    def complaint(self) -> str:
        """Return the name of the first failed task, and the end of its log."""
        tasks = self.api.task_instances(self.dag_id, self.run_id)
        failed = [task for task in tasks if task["state"] == "failed"]
        if not failed:
            return "the run failed without a failed task"
        first = min(failed, key=lambda task: task["end_date"] or "")
        lines = [line for entry in self.api.log(first) for line in _lines(entry)][-_LOG_LINES:]
        return "\n".join([f"task {_name(first)} failed; the end of its log:", *(f"  | {line}" for line in lines)])

    def _print_finished(self, tasks: list[Task]) -> None:
        """Print a line for each newly finished task, with its result."""
        for task in sorted(tasks, key=lambda item: (item["end_date"] or "", item["map_index"])):
            key = (task["task_id"], task["map_index"])
            if task["state"] == "success" and key not in self.printed:
                self.printed.add(key)
                line = find_result_line(self.api.log(task))
                self.console.print(f"  {_name(task):<8} {escape(line)}  [dim]{task['duration'] or 0:.1f} s[/]")


def find_result_line(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return the line of a log with the result of the task.

    The first line of `backstream.orchestration.tasks` is the result. Other lines are notes about files, or about
    connections that are optional. A task of another class ends with its result.

    Args:
        entries: the log, as Airflow's API returns it.
    """
    own = [entry for entry in entries if "backstream" in str(entry.get("logger"))]
    results = [str(entry["event"]) for entry in own if entry["logger"] == _RESULTS]
    infos = [str(entry["event"]) for entry in own if entry.get("level") == "info"]
    return (results[:1] or infos[-1:] or ["done"])[0].partition("\n")[0]


def _bar(console: Console) -> Progress:
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    ]
    # Without a terminal, the progress bar would be a useless line at the end.
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _advance(bar: Progress, line: TaskID, tasks: list[Task]) -> None:
    jobs = [task for task in tasks if task["task_id"] == "replay"]
    done = sum(task["state"] == "success" for task in jobs)
    running = sorted({task["task_id"] for task in tasks if task["state"] == "running"})
    description = " ".join(running) or "waiting"
    if "replay" in running and len(jobs) > 1:
        description += f" {done} of {len(jobs)} Spark jobs"
    total = sum(USUAL_S[task["task_id"]] for task in tasks) or None
    completed = sum(USUAL_S[task["task_id"]] * _share(task) for task in tasks)
    bar.update(line, description=description, total=total, completed=completed)


def _share(task: Task) -> float:
    """Return the finished share of a task, from 0 to 1; for a running task, it is an estimate."""
    if task["state"] in ("success", "skipped"):
        return 1.0
    if task["state"] != "running" or not task["start_date"]:
        return 0.0
    run_s = (datetime.now(UTC) - datetime.fromisoformat(task["start_date"])).total_seconds()
    return float(min(run_s / USUAL_S[task["task_id"]], _MAX_RUNNING_SHARE))


def _name(task: Task) -> str:
    return task["task_id"] if task["map_index"] < 0 else f"{task['task_id']} {task['map_index']}"


def _lines(entry: dict[str, Any]) -> list[str]:
    """Return a log entry and its errors as lines; no lines for the group markers of Airflow."""
    if str(entry["event"]).startswith("::"):
        return []
    errors = [f"{error['exc_type']}: {error['exc_value']}" for error in entry.get("error_detail") or []]
    return [line for text in (str(entry["event"]), *errors) for line in text.splitlines()]
