"""Following a run while Airflow works on it: a bar with an estimate of the time left, a line per finished task."""

from __future__ import annotations

import time
from collections.abc import Callable
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
"""Rough seconds of each task on two cores: they weigh the bar and are corrected by what is seen."""

_POLL_S = 1.0  # each question costs the API server some 50 ms of a core that Spark would like to have
_ENDED = ("success", "failed", "upstream_failed", "skipped")
_ALMOST = 0.95
_LOG_LINES = 25

Task = dict[str, Any]


@dataclass(slots=True)
class Followed:
    """One run of a DAG, watched through Airflow's API."""

    api: AirflowApi
    dag_id: str
    run_id: str
    console: Console
    told: set[tuple[str, int]] = field(default_factory=set)

    def until_finished(self, require_alive: Callable[[], None]) -> str:
        """Show progress until the run has ended; return its state, `success` or `failed`."""
        with _bar(self.console) as bar:
            line = bar.add_task("plan", total=None)
            while True:
                tasks = self.api.task_instances(self.dag_id, self.run_id)
                self._tell(tasks)
                _advance(bar, line, tasks)
                if all(task["state"] in _ENDED for task in tasks):
                    state = self.api.run_state(self.dag_id, self.run_id)
                    if state in FINISHED:
                        return state
                require_alive()
                time.sleep(_POLL_S)

    def complaint(self) -> str:
        """Which task failed first, and the end of its log."""
        tasks = self.api.task_instances(self.dag_id, self.run_id)
        failed = [task for task in tasks if task["state"] == "failed"]
        if not failed:
            return "the run failed, and no task of it did"
        first = min(failed, key=lambda task: task["end_date"] or "")
        lines = [line for entry in self.api.log(first) for line in _lines(entry)][-_LOG_LINES:]
        return "\n".join([f"task {_name(first)} failed; the end of its log:", *(f"  | {each}" for each in lines)])

    def _tell(self, tasks: list[Task]) -> None:
        """A line for each task that has succeeded since: what it said of itself last."""
        for task in sorted(tasks, key=lambda each: (each["end_date"] or "", each["map_index"])):
            key = (task["task_id"], task["map_index"])
            if task["state"] == "success" and key not in self.told:
                self.told.add(key)
                said = self._said(task)
                self.console.print(f"  {_name(task):<8} {escape(said)}  [dim]{task['duration'] or 0:.1f} s[/]")

    def _said(self, task: Task) -> str:
        own = [entry["event"] for entry in self.api.log(task) if "backstream" in str(entry.get("logger"))]
        return str(own[-1]) if own else "done"


def _bar(console: Console) -> Progress:
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    ]
    # Without a terminal a bar would be one line of noise at the end.
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
    """How much of a task is done, from 0 to 1; a running one is judged by the usual time."""
    if task["state"] in ("success", "skipped"):
        return 1.0
    if task["state"] != "running" or not task["start_date"]:
        return 0.0
    run_s = (datetime.now(UTC) - datetime.fromisoformat(task["start_date"])).total_seconds()
    return float(min(run_s / USUAL_S[task["task_id"]], _ALMOST))


def _name(task: Task) -> str:
    return task["task_id"] if task["map_index"] < 0 else f"{task['task_id']} {task['map_index']}"


def _lines(entry: dict[str, Any]) -> list[str]:
    """A log entry as lines: what happened, and the errors that it carries; nothing for Airflow's own marks."""
    if str(entry["event"]).startswith("::"):
        return []
    errors = [f"{each['exc_type']}: {each['exc_value']}" for each in entry.get("error_detail") or []]
    return [line for text in (str(entry["event"]), *errors) for line in text.splitlines()]
