"""Store each request for a run, so that a run without a plan is listed too."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from backstream.errors import LedgerError
from backstream.eventtime.intervals import Interval
from backstream.runs.home import Home, load_json, write_json


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A request for a run, and its result up to the plan.

    `by` is the user (empty: the schedule). The range is None if the request has no valid one. `run_id` is that of
    the plan. `error` is the error of planning in one sentence. `impact` is the result of a dry run, as JSON.
    `ended_at_ms` is the time at which Airflow ended the Dag run as failed; None if it has not.
    """

    dataset: str
    dag_id: str
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

    @property
    def key(self) -> str:
        """The name of the request, which contains no text of a user."""
        return request_key(self.dag_id, self.triggered_by)

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


def request_key(dag_id: str, triggered_by: str) -> str:
    """Return the name of a request; run ids of Airflow can have any characters."""
    return hashlib.sha256(f"{dag_id}\n{triggered_by}".encode()).hexdigest()[:16]


def load_requests(home: Home, dataset: str) -> list[RunRequest]:
    """Return the readable requests for runs of a dataset."""
    return [found for path in home.requests(dataset).glob("*.json") if (found := RunRequest.read(path))]


def record_end(home: Home, dag_id: str, triggered_by: str, ended_at_ms: int | None) -> None:
    """Add the time at which Airflow ended a failed Dag run to its request; None if the run goes on again.

    Nothing is written for a Dag run without a request, such as one of another program.
    """
    for path in home.requests("").glob(f"*/{request_key(dag_id, triggered_by)}.json"):
        request = RunRequest.read(path)
        if request and request.ended_at_ms != ended_at_ms:
            replace(request, ended_at_ms=ended_at_ms).write(home)
