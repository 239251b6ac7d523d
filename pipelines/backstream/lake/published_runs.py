"""Which runs were published: by their snapshots, by their tags, and by the ledger when both are gone."""

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
from backstream.lake.catalog import NAMESPACE, load_table
from backstream.lake.diff import Replacement
from backstream.lake.ledger import RunRow, Status, list_runs
from backstream.lake.snapshots import list_tagged_snapshots
from backstream.lake.tables import RESERVED
from backstream.runs.home import Home
from backstream.runs.plan import Plan
from backstream.runs.results import Publication, rollback_id
from backstream.runs.table_schemas import RESTATEMENTS, TABLES

_PUBLISHED = (Status.PUBLISHED, Status.ALREADY_PUBLISHED)


def load_publication(plan: Plan, home: Home) -> Publication | None:
    """A run's publication as the ledger tells it; how many rows and files it replaced is not told, and 0 here."""
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
    """The ledger's row that says a run was published; None where there is none."""
    of_run = (row for row in list_runs(home, dataset) if row.run_id == run_id and row.status in _PUBLISHED)
    return next(of_run, None)


def find_rollback_of(home: Home, table: Table, run_id: str) -> str | None:
    """The rollback that undid a run; None when none did, or that one was rolled back itself."""
    published, undo_id = list_published_run_ids(home, table), rollback_id(run_id)
    steps = 0
    while undo_id in published:
        steps, undo_id = steps + 1, rollback_id(undo_id)
    return rollback_id(run_id) if steps % 2 else None


def list_published_run_ids(home: Home, table: Table) -> set[str]:
    """The ids of all runs that were ever published into a table of windows."""
    of_snapshots = {
        snapshots.summary_property(snapshot, snapshots.RUN_ID) for snapshot in snapshots.list_retained(table)
    }
    found = {run_id for run_id in of_snapshots if run_id} | set(list_tagged_snapshots(table))
    if snapshots.is_history_expired(table):
        dataset = table.name()[-1]
        found |= {row.run_id for row in list_runs(home, dataset) if row.status in _PUBLISHED}
    return found


_SIDE = tuple(f"__{suffix}" for suffix in (*TABLES, RESTATEMENTS) if suffix)


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """A published run: the table of windows it published into, its snapshot there, the range it replaced."""

    run_id: str
    table: Table
    snapshot: Snapshot
    interval: Interval

    @property
    def dataset(self) -> str:
        """The table's name."""
        return self.table.name()[-1]


def load_published_run(home: Home, catalog: Catalog, run_id: str) -> PublishedRun:
    """A published run by its id.

    Raises:
        LedgerError: when it was never published, or its snapshot was expired.
    """
    if found := find_published_run(catalog, run_id):
        return found
    if row := find_published_row(home, None, run_id):
        msg = f"the snapshot of run {run_id} was expired; the ledger says that it published into {row.dataset}"
        raise LedgerError(msg)
    folders = sorted((home.path / "runs").glob(f"*/{run_id}/plan.json"))
    if folders:
        msg = f"run {run_id} of {folders[0].parents[1].name} was planned and never published"
        raise LedgerError(msg)
    msg = f"no run {run_id} in {home.path}"
    raise LedgerError(msg)


def find_published_run(catalog: Catalog, run_id: str) -> PublishedRun | None:
    """A published run by its id; None when no table has its snapshot."""
    for table in list_datasets(catalog):
        snapshot = snapshots.find_snapshot_of_run(table, run_id)
        interval = snapshots.range_of_snapshot(snapshot) if snapshot else None
        if snapshot and interval:
            return PublishedRun(run_id, table, snapshot, interval)
    return None


def load_replacement(found: PublishedRun) -> Replacement:
    """What a published run replaced: all that its own manifests list as added and as deleted.

    Raises:
        LedgerError: when what it replaced was expired.
    """
    table, snapshot = found.table, found.snapshot
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
    """The tables of windows, each loaded when its turn comes."""
    for _, name in sorted(catalog.list_tables(NAMESPACE)):
        if name not in RESERVED and not name.endswith(_SIDE):
            yield load_table(catalog, name)
