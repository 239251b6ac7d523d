"""Tags: each run leaves one on the snapshot it made, which keeps the snapshot when others are expired."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from backstream.lake.catalog import loaded
from backstream.lake.commits import with_retries

_PREFIX = "run/"


def tag_of(run_id: str) -> str:
    """The name of a run's tag."""
    return f"{_PREFIX}{run_id}"


def tagged(table: Table) -> dict[str, Snapshot]:
    """The snapshots that runs have tagged, by run id."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.snapshots()}
    return {
        name.removeprefix(_PREFIX): snapshot
        for name, ref in table.refs().items()
        if ref.snapshot_ref_type is SnapshotRefType.TAG
        and name.startswith(_PREFIX)
        and (snapshot := by_id.get(ref.snapshot_id))
    }


def ensure_tag(catalog: Catalog, name: str, run_id: str, snapshot_id: int) -> bool:
    """Set a run's tag where it is missing; False when it was there."""

    def attempt() -> bool:
        table = loaded(catalog, name)
        if run_id in tagged(table):
            return False
        table.manage_snapshots().create_tag(snapshot_id, tag_of(run_id)).commit()
        return True

    return with_retries(f"tag run {run_id} of table `{name}`", attempt)
