"""Store what people ask of a run: its request before it is planned, and its dismissal after a failure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from backstream.errors import LedgerError
from backstream.eventtime.intervals import Interval
from backstream.runs.home import Home
from backstream.storage.files import load_json, remove_file, write_json


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A request for a run, and its result up to the plan.

    `dag_id` and `dag_run_id` are those of Airflow; `task_group` is the group of a run in a team's own DAG, empty
    for the DAGs of a definition. `triggered_by` is the trigger that the plan has. No other run has it, not even a
    run with these ids after Airflow deleted this one. `by` is the user (empty: the schedule). The range is None if
    the request has no valid one. `run_id` is that of the plan, and `planned_at_ms` its time. `error` is that of
    planning in one sentence. `impact` is the result of a dry run, as JSON. `ended_at_ms` is the time at which
    Airflow ended the Dag run; None if it has not. `task` is the task before the plan that works on the request:
    `prepare` or `plan`.
    """

    dataset: str
    dag_id: str
    dag_run_id: str
    triggered_by: str
    requested_at_ms: int
    by: str = ""
    reason: str = ""
    mode: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
    is_dry_run: bool = False
    run_id: str = ""
    error: str = ""
    impact: Mapping[str, Any] | None = None
    ended_at_ms: int | None = None
    planned_at_ms: int | None = None
    task_group: str = ""
    task: str = "plan"

    @property
    def key(self) -> str:
        """The name of the request, which contains no text of a user."""
        return f"{_name_of(self.dag_id, self.dag_run_id)}-{_hash_text(self.triggered_by)[:8]}"

    @property
    def interval(self) -> Interval | None:
        """The requested range."""
        if self.since_ms is None or self.until_ms is None:
            return None
        return Interval(self.since_ms, self.until_ms)

    def write(self, home: Home) -> Path:
        """Write as JSON by atomic rename, and return the file."""
        path = home.requests(self.dataset) / f"{self.key}.json"
        write_json(path, asdict(self))
        return path

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read the request from a file; None if there is none, or another version wrote it."""
        try:
            return cls(**load_json(path, "request"))
        except (LedgerError, TypeError):
            return None


def _name_of(dag_id: str, dag_run_id: str) -> str:
    return _hash_text(f"{dag_id}\n{dag_run_id}")


def _hash_text(text: str) -> str:
    """Return a name for a file; ids of Airflow can have any characters."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def load_requests(home: Home, dataset: str) -> list[RunRequest]:
    """Return the readable requests for runs of a dataset."""
    return [found for path in home.requests(dataset).glob("*.json") if (found := RunRequest.read(path))]


def find_requests(home: Home, dag_id: str, dag_run_id: str) -> list[RunRequest]:
    """Return the requests of a Dag run: one per task group in a team's own DAG, else one or none.

    Airflow can delete a Dag run and create one with the same id; the requests are those of the newest one.
    """
    newest: dict[str, RunRequest] = {}
    for request in find_all_requests(home, dag_id, dag_run_id):
        newest.setdefault(request.task_group, request)
    return [newest[group] for group in sorted(newest)]


def find_all_requests(home: Home, dag_id: str, dag_run_id: str) -> list[RunRequest]:
    """Return the requests of all Dag runs that had this id, the newest first.

    The names of the files have the id, so no other request is read, whatever the name of the DAG.
    """
    paths = home.requests("").glob(f"*/{_name_of(dag_id, dag_run_id)}-*.json")
    found = [request for path in paths if (request := RunRequest.read(path))]
    return sorted(found, key=lambda request: request.requested_at_ms, reverse=True)


def record_end(home: Home, dag_id: str, dag_run_id: str, ended_at_ms: int | None) -> None:
    """Add the time at which Airflow ended a Dag run to its requests; None if the run goes on again.

    Nothing is written for a Dag run without a request, such as one of another program.
    """
    for request in find_requests(home, dag_id, dag_run_id):
        if request.ended_at_ms != ended_at_ms:
            replace(request, ended_at_ms=ended_at_ms).write(home)


@dataclass(frozen=True, slots=True)
class Dismissal:
    """The person who dismissed a run, the reason, and the time; it changes no data, no day, and no count."""

    dataset: str
    run_id: str
    by: str
    reason: str
    at_ms: int

    def write(self, home: Home) -> Path:
        """Write as JSON by atomic rename, and return the file."""
        path = home.dismissals(self.dataset) / f"{self.run_id}.json"
        write_json(path, asdict(self))
        return path

    def remove(self, home: Home) -> None:
        """Delete the file, so that the run is listed as before; a file that is gone already is no error."""
        remove_file(home.dismissals(self.dataset) / f"{self.run_id}.json")

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read the dismissal from a file; None if there is none, or another version wrote it."""
        try:
            return cls(**load_json(path, "dismissal"))
        except (LedgerError, TypeError):
            return None


def load_dismissals(home: Home, dataset: str) -> dict[str, Dismissal]:
    """Return the dismissals of a dataset by run id."""
    found = (Dismissal.read(path) for path in home.dismissals(dataset).glob("*.json"))
    return {dismissal.run_id: dismissal for dismissal in found if dismissal}
