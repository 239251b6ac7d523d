"""List runs from their folders, and find the report of a run."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlencode

from backstream.eventtime.instants import SECOND_MS
from backstream.lake.ledger import RunRow
from backstream.pages.store import cached_by_mtime
from backstream.runs.dag_names import BACKFILL, dag_id_of, dataset_of_dag
from backstream.runs.home import Home, RunFolder
from backstream.runs.requests import RunRequest, find_all_requests, find_requests
from backstream.runs.store import Runs
from backstream.workflow.run_state import RunState, add_dismissals, state_of_request, state_of_row
from backstream.workflow.status import RunRecords, list_run_states, load_run_state


@dataclass(frozen=True, slots=True)
class RunAddress:
    """The address of a run: a DAG and a Dag run of Airflow, and the task group in a team's own DAG.

    For a run without a Dag run, `dag_id` is any DAG of its dataset, and `run_id` is the trigger of its plan.
    """

    dag_id: str
    run_id: str
    group: str = ""

    @classmethod
    def from_state(cls, run: RunState) -> Self:
        """Return the address of a run: the one in its request, or else its trigger."""
        if run.dag_run_id:
            return cls(run.dag_id, run.dag_run_id, run.task_group)
        return cls.from_trigger(run.dataset, run.triggered_by)

    @classmethod
    def from_request(cls, request: RunRequest) -> Self:
        """Return the address of a requested run."""
        return cls(request.dag_id, request.dag_run_id, request.task_group)

    @classmethod
    def from_trigger(cls, dataset: str, triggered_by: str) -> Self:
        """Return the address of a run without a request."""
        return cls(dag_id_of(BACKFILL, dataset), triggered_by)

    @property
    def query(self) -> str:
        """The address as a query string."""
        parts = {"dag_id": self.dag_id, "run_id": self.run_id, "group": self.group}
        return urlencode({name: value for name, value in parts.items() if value})


@dataclass(frozen=True, slots=True)
class RunTrigger:
    """The dataset and the trigger by which a run is found in its files."""

    dataset: str
    triggered_by: str
    group: str = ""


def list_triggers(home: Home, address: RunAddress, *, has_deleted: bool = False) -> list[RunTrigger]:
    """Return the triggers of the runs at an address: one per task group of the Dag run, if none is given.

    The request of the run has its dataset, whatever the name of the DAG. Without a request, the name of the DAG
    must have it. A run with a request is found at its own address only, because its DAG has the permissions.

    Args:
        home: the folder with the runs.
        address: the address.
        has_deleted: whether to add the Dag runs that Airflow deleted before it created one with their id.
    """
    find = find_all_requests if has_deleted else find_requests
    requests = find(home, address.dag_id, address.run_id)
    if requests:
        found = [RunTrigger(request.dataset, request.triggered_by, request.task_group) for request in requests]
        return [trigger for trigger in found if address.group in ("", trigger.group)]
    name = dataset_of_dag(address.dag_id)
    if name is None or any(each.triggered_by == address.run_id for each in load_requests_once(home, name)):
        return []
    return [RunTrigger(name, address.run_id)]


def find_report(home: Home, address: RunAddress, plan_hash: str | None = None) -> Path | None:
    """Return the report of a run, of the plan with that hash or of its newest plan; None without a report.

    Values of a request are compared with file contents and are never part of a path.
    """
    for trigger in list_triggers(home, address, has_deleted=plan_hash is not None):
        for folder in Runs(home).of_trigger(trigger.dataset, trigger.triggered_by):
            if plan_hash in (None, folder.path.name.rpartition(".")[2]):
                return folder.report if folder.report.is_file() else None
    return None


def find_run(home: Home, trigger: RunTrigger, rows: Sequence[RunRow]) -> RunState | None:
    """Return the newest run of a trigger: that of its newest plan, or its request without one; None if unknown.

    Args:
        home: the folder with the runs.
        trigger: dataset and trigger.
        rows: the ledger, newest first.
    """
    requests = RunRecords(rows, load_requests_once).requests(home, trigger.dataset)
    now_ms = int(time.time() * SECOND_MS)
    if folder := find_folder(home, trigger):
        row = next((row for row in rows if row.run_id == folder.path.name), None)
        found = load_run_state(folder, row, requests, now_ms)
    else:
        request = requests.get((trigger.dataset, trigger.triggered_by))
        row = next((row for row in rows if request and row.run_id == request.run_id), None)  # its files are gone
        found = state_of_row(row, requests) if row else state_of_request(request, now_ms) if request else None
    return next(iter(add_dismissals(home, [found] if found else [])), None)


def find_folder(home: Home, trigger: RunTrigger) -> RunFolder | None:
    """Return the folder of the newest plan of a trigger; None before its plan."""
    return next(Runs(home).of_trigger(trigger.dataset, trigger.triggered_by), None)


def list_all_runs(home: Home, dag_ids: Collection[str], rows: Sequence[RunRow]) -> list[RunState]:
    """Return the runs of the datasets of these DAGs, newest first: planned ones, and requests without a plan.

    Args:
        home: the folder with the runs.
        dag_ids: one DAG per dataset.
        rows: the ledger, newest first.
    """
    now_ms = int(time.time() * SECOND_MS)
    by_dataset: dict[str, list[RunRow]] = {}
    for row in rows:
        by_dataset.setdefault(row.dataset, []).append(row)
    runs: list[RunState] = []
    for name in filter(None, map(dataset_of_dag, dag_ids)):
        records = RunRecords(by_dataset.get(name, ()), load_requests_once)
        runs += list_run_states(home, name, None, now_ms, records)
    return sorted(runs, key=lambda run: run.started_ms, reverse=True)


def page_head(name: str, dag_id: str) -> dict[str, str]:
    """Return the values that the head of a page needs of a dataset: its name, and one of its DAGs.

    Args:
        name: the dataset.
        dag_id: DAG of the page; a team's own DAG is not one of the dataset's.
    """
    return {"name": name, "dag_id": dag_id if dataset_of_dag(dag_id) == name else dag_id_of(BACKFILL, name)}


def load_requests_once(home: Home, name: str) -> list[RunRequest]:
    """Return the readable requests for runs of a dataset; a file is read again only when it changes."""
    return [found for path in home.requests(name).glob("*.json") if (found := _load_request(path))]


_load_request = cached_by_mtime(RunRequest.read)
