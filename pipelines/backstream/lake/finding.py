"""Finding a run in the lake, whichever dataset it published into."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from backstream.core.errors import LedgerError
from backstream.core.folders import Home
from backstream.core.intervals import Interval
from backstream.core.tables import RESTATEMENTS, TABLES
from backstream.lake import history
from backstream.lake.catalog import NAMESPACE, loaded
from backstream.lake.published import recorded_row
from backstream.lake.restatements import Replacement
from backstream.lake.schemas import RESERVED

_SIDE = tuple(f"__{suffix}" for suffix in (*TABLES, RESTATEMENTS) if suffix)


@dataclass(frozen=True, slots=True)
class Found:
    """A published run: the table of windows it published into, its snapshot there, the range it replaced."""

    run_id: str
    table: Table
    snapshot: Snapshot
    interval: Interval

    @property
    def dataset(self) -> str:
        """The table's name."""
        return self.table.name()[-1]


def found_run(home: Home, catalog: Catalog, run_id: str) -> Found:
    """A published run by its id.

    Raises:
        LedgerError: when it was never published, or its snapshot was expired.
    """
    if found := find_run(catalog, run_id):
        return found
    if row := recorded_row(home, None, run_id):
        msg = f"the snapshot of run {run_id} was expired; the ledger says that it published into {row.dataset}"
        raise LedgerError(msg)
    folders = sorted((home.path / "runs").glob(f"*/{run_id}/plan.json"))
    if folders:
        msg = f"run {run_id} of {folders[0].parents[1].name} was planned and never published"
        raise LedgerError(msg)
    msg = f"no run {run_id} in {home.path}"
    raise LedgerError(msg)


def find_run(catalog: Catalog, run_id: str) -> Found | None:
    """A published run by its id; None when no table has its snapshot."""
    for table in datasets(catalog):
        snapshot = history.snapshot_of(table, run_id)
        interval = history.interval_of(snapshot) if snapshot else None
        if snapshot and interval:
            return Found(run_id, table, snapshot, interval)
    return None


def published_replacement(found: Found) -> Replacement:
    """What a published run replaced: all that its own manifests list as added and as deleted.

    Raises:
        LedgerError: when what it replaced was expired.
    """
    table, snapshot = found.table, found.snapshot
    history.parent_of(table, snapshot)
    files: dict[ManifestEntryStatus, list[DataFile]] = {status: [] for status in ManifestEntryStatus}
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id == snapshot.snapshot_id:
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                files[entry.status].append(entry.data_file)
    removed, added = files[ManifestEntryStatus.DELETED], files[ManifestEntryStatus.ADDED]
    return Replacement(table, removed, added, history.keys_said(snapshot), history.all_said(snapshot))


def datasets(catalog: Catalog) -> Iterator[Table]:
    """The tables of windows, each loaded when its turn comes."""
    for _, name in sorted(catalog.list_tables(NAMESPACE)):
        if name not in RESERVED and not name.endswith(_SIDE):
            yield loaded(catalog, name)
