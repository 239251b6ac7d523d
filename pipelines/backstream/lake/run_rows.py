"""List the runs that the ledger records, and those whose commit is in their table but not in the ledger yet.

Between the commit of a run and its row in the ledger, its process can be killed, or the catalog can fail. Readers
see its rows from the commit on, so all queries count it as published. The next task of the dataset adds the row.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from backstream.eventtime.instants import SECOND_MS
from backstream.lake.ledger import RunRow, list_recorded_runs, run_row
from backstream.lake.published_windows import load_published_windows
from backstream.runs.home import Home
from backstream.runs.manifest import load_manifests
from backstream.runs.plan import Plan
from backstream.runs.results import ApprovalDecision, Audit, undone_run_id
from backstream.runs.status import RunStatus
from backstream.runs.store import Runs
from backstream.storage.files import load_json


def list_runs(home: Home, dataset: str | None = None) -> list[RunRow]:
    """Return the outcomes of the runs of one dataset or of all datasets, newest first."""
    recorded = list_recorded_runs(home, dataset)
    told = [*recorded, *list_untold_runs(home, recorded, dataset)]
    return newest_first([*told, *_list_untold_rollbacks(home, told, dataset)])


def newest_first(rows: Iterable[RunRow]) -> list[RunRow]:
    """Return rows in the order of the ledger."""
    return sorted(rows, key=lambda row: (row.finished_at_ms, row.run_id), reverse=True)


def list_untold_runs(home: Home, recorded: Collection[RunRow], dataset: str | None = None) -> list[RunRow]:
    """Return the rows that the ledger lacks: those of runs that have a snapshot in their table.

    Args:
        home: the folder that holds all state.
        recorded: the rows of the ledger.
        dataset: None for all datasets.
    """
    published = {(row.dataset, row.run_id) for row in recorded if row.status is RunStatus.PUBLISHED}
    return [
        published_row(plan, commit.at_ms, Audit.find(plan.folder.audit_result), commit.rows)
        for name, run_ids in Runs(home).audited_by_dataset(dataset, published).items()
        for commit in load_published_windows(home, name).commits
        if commit.run_id in run_ids and (plan := Runs(home).plan_or_none(name, commit.run_id))
    ]


def _list_untold_rollbacks(home: Home, told: Collection[RunRow], dataset: str | None) -> Iterator[RunRow]:
    """Yield the rows of rollbacks that have a snapshot and were killed before their row in the ledger."""
    published = {row.run_id: row for row in told if row.status is RunStatus.PUBLISHED}
    folders = home.rollbacks(dataset or "").glob("*.json" if dataset else "*/*.json")
    pending = {file.stem: file for file in folders if file.stem not in published}
    for name in {file.parent.name for file in pending.values()}:
        for commit in load_published_windows(home, name).commits:
            undone = published.get(undone_run_id(commit.run_id) or "")
            if commit.run_id in pending and undone:
                yield replace(
                    undone,
                    run_id=commit.run_id,
                    verdict=None,
                    triggered_by="rollback",
                    reason=load_json(pending[commit.run_id], "rollback")["reason"],
                    rows=commit.rows,
                    events_read=None,
                    error=None,
                    started_at_ms=commit.at_ms,
                    finished_at_ms=commit.at_ms,
                )


def published_row(plan: Plan, ended_ms: int, audit: Audit | None, rows: int) -> RunRow:
    """Return the ledger row of a run that ended with its commit."""
    row = ledger_row(plan, RunStatus.PUBLISHED, audit, rows)
    return replace(row, started_at_ms=min(row.started_at_ms, ended_ms), finished_at_ms=ended_ms)


def ledger_row(
    plan: Plan,
    status: RunStatus,
    audit: Audit | None = None,
    rows: int | None = None,
    error: str | None = None,
) -> RunRow:
    """Return the ledger row of a run that ends now; the run started when its plan was written."""
    started_ms = int(plan.folder.plan.stat().st_mtime * SECOND_MS)
    span_ms = (started_ms, int(time.time() * SECOND_MS))
    events_read = sum(manifest.events_read for manifest in load_manifests(plan))
    row = run_row(plan, status, span_ms, audit.verdict if audit else None, rows, events_read)
    return replace(row, reason=_ledger_reason(plan, audit), error=error)


def _ledger_reason(plan: Plan, audit: Audit | None) -> str:
    """Return the reason of the run, its overrides, and the decisions of the user or the approver."""
    parts = [plan.reason] if plan.reason else []
    if plan.overrides:
        parts.append(", ".join(f"{key} = {value}" for key, value in sorted(plan.overrides.items())))
    if audit and audit.overridden and not audit.verdict.may_publish:
        parts.append(f"quality gate verdict {audit.verdict} overridden: {audit.overridden}")
    if decision := ApprovalDecision.find(plan.folder.approval):
        parts.append(str(decision))
    return "; ".join(parts)
