"""Expire old snapshots and merge small files of append-only tables.

Each row stores its run id, so these tables need no snapshot history. Many snapshots would slow down commits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import ExpireSnapshots

from backstream.lake import snapshots
from backstream.lake.catalog import load_table
from backstream.lake.commit import commit_snapshot
from backstream.lake.snapshot_producers import OneTransaction, write_data_files

MAX_FILES = 50
"""The number of files above which the small files of a table are merged into one."""
_DATA_FILES = "total-data-files"
MAX_SNAPSHOTS, KEPT_SNAPSHOTS = 40, 20
"""The number of snapshots above which old ones are expired, and the number of newest ones that are kept."""


def expire_old_snapshots(
    catalog: Catalog, name: str, published: Callable[[], Collection[str]] | None = None
) -> int:
    """Expire the old snapshots of a table whose rows store their run ids, and return their number.

    The snapshots of unpublished runs are kept: a retry uses them to find out that it has written its rows already.

    Args:
        catalog: the catalog of the table.
        name: the name of the table.
        published: returns the ids of published runs and is called only if there are many snapshots; None:
            any snapshot may be expired.
    """
    table = load_table(catalog, name)
    oldest_first = sorted(table.snapshots(), key=snapshots.snapshot_version)
    if len(oldest_first) <= MAX_SNAPSHOTS:
        return 0
    run_ids = published() if published else None
    old = [
        snapshot.snapshot_id
        for snapshot in oldest_first[:-KEPT_SNAPSHOTS]
        if run_ids is None or snapshots.summary_property(snapshot, snapshots.RUN_ID) in run_ids
    ]
    if old:
        try:
            with OneTransaction(table) as transaction:
                ExpireSnapshots(transaction).by_ids(old).commit()
        except CommitFailedException:  # another run committed first; the next run can expire them
            return 0
    return len(old)


def compact_data_files(catalog: Catalog, name: str) -> int:
    """Merge many small files into one in one commit; return the number of merged files, 0 if there are few.

    Without it, a reader of the ledger opens one file per run. After a commit conflict, the next run tries again.
    """
    table = load_table(catalog, name)
    current = table.current_snapshot()
    if current is None or int(snapshots.summary_property(current, _DATA_FILES) or 0) <= MAX_FILES:
        return 0
    files = [task.file for task in table.scan().plan_files()]
    merged = write_data_files(table, table.scan().to_arrow())
    try:
        commit_snapshot(table, Operation.OVERWRITE, merged, files, {})
    except CommitFailedException:
        return 0
    return len(files)
