"""Find published runs by their snapshots and tags, or in the ledger once their snapshots have expired."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from backstream.errors import LedgerError
from backstream.eventtime.instants import instant_text
from backstream.eventtime.intervals import Interval
from backstream.lake import snapshots
from backstream.lake.catalog import load_table
from backstream.lake.catalog_address import namespace
from backstream.lake.diff import Replacement
from backstream.lake.ledger import RunRow
from backstream.lake.run_rows import list_runs
from backstream.lake.snapshots import list_tagged_snapshots
from backstream.lake.tables import RESERVED
from backstream.runs.home import Home
from backstream.runs.plan import Plan
from backstream.runs.results import Publication, rollback_id
from backstream.runs.status import RunStatus
from backstream.runs.store import Runs
from backstream.runs.table_schemas import RESTATEMENTS, TABLES
from backstream.text import visible_line

_SIDE_TABLE_SUFFIXES = tuple(f"__{suffix}" for suffix in (*TABLES, RESTATEMENTS) if suffix)


def load_publication(plan: Plan, home: Home) -> Publication | None:
    """Return a run's publication from the ledger; None if there is none.

    The ledger has no numbers of replaced rows and of files: both are 0.
    """
    row = find_published_row(home, plan.dataset, plan.run_id)
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


def find_published_row(home: Home, dataset: str | None, run_id: str) -> RunRow | None:
    """Return the row of the ledger in which a run is published; None if there is none."""
    rows = (row for row in list_runs(home, dataset) if row.run_id == run_id and row.status is RunStatus.PUBLISHED)
    return next(rows, None)


def find_rollback_of(home: Home, table: Table, run_id: str) -> str | None:
    """Return the id of the rollback that undid a run; None if there is none, or it was rolled back itself."""
    published, undo_id = list_published_run_ids(home, table), rollback_id(run_id)
    rollbacks = 0
    while undo_id in published:
        rollbacks, undo_id = rollbacks + 1, rollback_id(undo_id)
    return rollback_id(run_id) if rollbacks % 2 else None


def list_published_run_ids(home: Home, table: Table) -> set[str]:
    """Return the ids of all runs that were ever published into a table of windows."""
    of_snapshots = (
        snapshots.summary_property(snapshot, snapshots.RUN_ID) for snapshot in snapshots.list_commits(table)
    )
    run_ids = {run_id for run_id in of_snapshots if run_id} | set(list_tagged_snapshots(table))
    if snapshots.is_history_expired(table):
        dataset = table.name()[-1]
        run_ids |= {row.run_id for row in list_runs(home, dataset) if row.status is RunStatus.PUBLISHED}
    return run_ids


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """A published run, with its table of windows, its snapshot in that table, and the replaced range."""

    run_id: str
    table: Table
    snapshot: Snapshot
    interval: Interval

    @property
    def dataset(self) -> str:
        """The name of the table."""
        return self.table.name()[-1]


def load_published_run(home: Home, catalog: Catalog, run_id: str) -> PublishedRun:
    """Return a published run by its id.

    Raises:
        LedgerError: if it was never published, or its snapshot has expired.
    """
    if published := find_published_run(catalog, run_id):
        return published
    if row := find_published_row(home, None, run_id):
        msg = f"the snapshot of run {run_id} has expired; according to the ledger, it published into {row.dataset}"
        raise LedgerError(msg)
    if folder := Runs(home).find(run_id):
        msg = f"run {run_id} of {folder.path.parent.name} was planned but never published"
        raise LedgerError(msg)
    msg = f"no run {visible_line(run_id)} in {home.location}"
    raise LedgerError(msg)


def find_published_run(catalog: Catalog, run_id: str) -> PublishedRun | None:
    """Return a published run by its id; None if no table has its snapshot."""
    for table in list_datasets(catalog):
        snapshot = snapshots.find_snapshot_of_run(table, run_id)
        interval = snapshots.range_of_snapshot(snapshot) if snapshot else None
        if snapshot and interval:
            return PublishedRun(run_id, table, snapshot, interval)
    return None


def load_replacement(run: PublishedRun) -> Replacement:
    """Return the files that a published run replaced, from the added and deleted entries of its own manifests.

    Raises:
        LedgerError: if the replaced snapshot has expired.
    """
    table, snapshot = run.table, run.snapshot
    snapshots.find_parent(table, snapshot)
    files: dict[ManifestEntryStatus, list[DataFile]] = {status: [] for status in ManifestEntryStatus}
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id == snapshot.snapshot_id:
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                files[entry.status].append(entry.data_file)
    removed, added = files[ManifestEntryStatus.DELETED], files[ManifestEntryStatus.ADDED]
    return Replacement(
        table,
        removed,
        added,
        snapshots.key_columns_of_snapshot(snapshot),
        snapshots.backstream_properties(snapshot),
    )


def list_datasets(catalog: Catalog) -> Iterator[Table]:
    """Yield the tables of windows; each table is loaded when it is needed."""
    for *_, name in sorted(catalog.list_tables(namespace())):
        if name not in RESERVED and not name.endswith(_SIDE_TABLE_SUFFIXES):
            yield load_table(catalog, name)
