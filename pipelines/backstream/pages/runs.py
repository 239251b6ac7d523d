"""List runs from their folders, and find the report of a run."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from backstream.errors import LedgerError
from backstream.eventtime.instants import SECOND_MS
from backstream.lake.ledger import RunRow
from backstream.pages.store import cached_by_mtime
from backstream.runs.home import Home, RunFolder, load_json
from backstream.runs.requests import RunRequest
from backstream.runs.status import RunStatus
from backstream.workflow.status import RunState, load_run_state, state_of_request, state_of_row

BACKFILL, REPROCESS = "backfill_", "reprocess_"
_PREFIXES = (BACKFILL, REPROCESS, "restate_")
_DAG_ID = re.compile(rf"(?:{'|'.join(_PREFIXES)})([a-z][a-z0-9_]*)")


def find_report(home: Home, dag_id: str, trigger: str, plan_hash: str | None = None) -> Path | None:
    """Return the report of a Dag run, of the plan with that hash or of its newest plan; None without a report.

    Values of a request are compared with file contents and are never part of a path.
    """
    for folder in _list_folders(home, dag_id):
        plan = _load_summary(folder.summary)
        if plan.get("triggered_by") == trigger and plan_hash in (None, plan.get("plan_hash")):
            return folder.report if folder.report.is_file() else None
    return None


def find_run(home: Home, dag_id: str, trigger: str, rows: Sequence[RunRow]) -> RunState | None:
    """Return the newest run of a Dag run: that of its newest plan, or its request without one; None if unknown.

    Args:
        home: the folder with the runs.
        dag_id: any DAG of the dataset.
        trigger: id of the Dag run.
        rows: the ledger, newest first.
    """
    requests = {(found.dataset, found.triggered_by): found for found in _requests_of(home, dag_id)}
    if folder := find_folder(home, dag_id, trigger):
        row = next((row for row in rows if row.run_id == folder.path.name), None)
        return load_run_state(folder, row, requests, int(time.time() * SECOND_MS))
    request = requests.get((dataset_of_dag(dag_id) or "", trigger))
    return state_of_request(request) if request else None


def find_folder(home: Home, dag_id: str, trigger: str) -> RunFolder | None:
    """Return the folder of the newest plan of a Dag run; None before its plan."""
    folders = _list_folders(home, dag_id)
    return next(
        (folder for folder in folders if _load_summary(folder.summary).get("triggered_by") == trigger), None
    )


def _requests_of(home: Home, dag_id: str) -> list[RunRequest]:
    name = dataset_of_dag(dag_id)
    return _load_requests(home, name) if name else []


def list_all_runs(home: Home, dag_ids: Collection[str], rows: Sequence[RunRow]) -> list[RunState]:
    """Return the runs of the datasets of these DAGs, newest first: planned ones, and requests without a plan.

    Args:
        home: the folder with the runs.
        dag_ids: one DAG per dataset.
        rows: the ledger, newest first. The files of a run that it lists as published or refused are not read.
    """
    now_ms = int(time.time() * SECOND_MS)
    by_dataset: dict[str, list[RunRow]] = {}
    for row in rows:
        by_dataset.setdefault(row.dataset, []).append(row)
    names = filter(None, map(dataset_of_dag, dag_ids))
    runs = [run for name in names for run in _list_runs(home, name, by_dataset.get(name, []), now_ms)]
    return sorted(runs, key=lambda run: run.started_ms, reverse=True)


def _list_runs(home: Home, name: str, rows: Sequence[RunRow], now_ms: int) -> Iterator[RunState]:
    recorded = {row.run_id: row for row in reversed(rows)}  # the newest row of each run
    requests = {(name, request.triggered_by): request for request in _load_requests(home, name)}
    for folder in _list_folders(home, BACKFILL + name):
        row = recorded.pop(folder.path.name, None)
        if row and row.status is not RunStatus.FAILED:
            yield state_of_row(row, requests)
        elif run := load_run_state(folder, row, requests, now_ms):
            yield run
    yield from (state_of_row(row, requests) for row in recorded.values())
    yield from (state_of_request(request) for request in requests.values() if not request.run_id)


def dataset_of_dag(dag_id: str) -> str | None:
    """Return the dataset of a DAG; None for a DAG without a definition."""
    match = _DAG_ID.fullmatch(dag_id)
    return match[1] if match else None


def _list_folders(home: Home, dag_id: str) -> list[RunFolder]:
    """Return the run folders of the dataset of a DAG, newest plan first."""
    name = dataset_of_dag(dag_id)
    runs = home.path / "runs" / name if name else None
    if runs is None or not runs.is_dir():
        return []
    folders = [RunFolder(child) for child in runs.iterdir()]
    planned = [folder for folder in folders if folder.plan.is_file()]
    return sorted(planned, key=lambda folder: folder.plan.stat().st_mtime, reverse=True)


def _load_requests(home: Home, name: str) -> list[RunRequest]:
    """Return the readable requests for runs of a dataset; a file is read again only when it changes."""
    return [found for path in home.requests(name).glob("*.json") if (found := _load_request(path))]


_load_request = cached_by_mtime(RunRequest.read)

_SUMMARY_KEYS = ("triggered_by", "plan_hash")


@cached_by_mtime
def _load_summary(summary: Path) -> dict[str, Any]:
    """Return the values of a plan summary that the pages use, to keep the cache small."""
    content = _load_content(summary, "summary of a plan")
    return {name: content[name] for name in _SUMMARY_KEYS if name in content}


def _load_content(path: Path, what: str) -> dict[str, Any]:
    """Return the content of a JSON file; empty if it is not readable, so a page shows the other runs."""
    try:
        return load_json(path, what)
    except LedgerError:
        return {}
