"""Which runs were published: by their snapshots, by their tags, and by the ledger when both are gone."""

from __future__ import annotations

from pyiceberg.table import Table

from backstream.core.folders import Home
from backstream.core.instants import instant_text
from backstream.core.plan import Plan
from backstream.core.publication import Publication, rollback_id
from backstream.lake import history
from backstream.lake.ledger import RunRow, Status, runs
from backstream.lake.tags import tagged

_PUBLISHED = (Status.PUBLISHED, Status.ALREADY_PUBLISHED)


def recorded(plan: Plan, home: Home) -> Publication | None:
    """A run's publication as the ledger tells it; how many rows and files it replaced is not told, and 0 here."""
    row = recorded_row(home, plan.dataset, plan.run_id)
    if row is None:
        return None
    return Publication(
        run_id=plan.run_id,
        dataset=plan.dataset,
        since_ms=plan.since_ms,
        until_ms=plan.until_ms,
        snapshots={},
        rows=row.rows or 0,
        replaced_rows=0,
        files=0,
        published_at=instant_text(row.finished_at_ms),
        already=True,
    )


def recorded_row(home: Home, dataset: str | None, run_id: str) -> RunRow | None:
    """The ledger's row that says a run was published; None where there is none."""
    of_run = (row for row in runs(home, dataset) if row.run_id == run_id and row.status in _PUBLISHED)
    return next(of_run, None)


def undone_by(home: Home, table: Table, run_id: str) -> str | None:
    """The rollback that undid a run; None when none did, or that one was rolled back itself."""
    published, undo_id = published_runs(home, table), rollback_id(run_id)
    steps = 0
    while undo_id in published:
        steps, undo_id = steps + 1, rollback_id(undo_id)
    return rollback_id(run_id) if steps % 2 else None


def published_runs(home: Home, table: Table) -> set[str]:
    """The ids of all runs that were ever published into a table of windows."""
    of_snapshots = {history.said(snapshot, history.RUN_ID) for snapshot in history.retained(table)}
    found = {run_id for run_id in of_snapshots if run_id} | set(tagged(table))
    if history.is_cut(table):
        dataset = table.name()[-1]
        found |= {row.run_id for row in runs(home, dataset) if row.status in _PUBLISHED}
    return found
