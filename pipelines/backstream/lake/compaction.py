"""Tables to which every run appends need no history, since rows name their run; snapshots would slow commits."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update.snapshot import ExpireSnapshots

from backstream.lake import snapshots
from backstream.lake.catalog import load_table
from backstream.lake.commit import OneTransaction, commit_snapshot

MOST_FILES = 50
"""When a table that each run adds a small file to has more of them than this, they become one."""
_DATA_FILES = "total-data-files"
MOST, KEPT = 40, 20
"""When a table has more snapshots than the first number, the older ones go until the second is left."""


def expire_old_snapshots(
    catalog: Catalog, name: str, published: Callable[[], Collection[str]] | None = None
) -> int:
    """Expire the old snapshots of a table whose rows name their runs; how many.

    A run that was not published keeps its own: a retry must find that it has written its rows.

    Args:
        catalog: where the table is.
        name: its name.
        published: tells the runs whose snapshots may go, asked only when there are many; None: all may.
    """
    table = load_table(catalog, name)
    oldest_first = sorted(table.snapshots(), key=snapshots.snapshot_version)
    if len(oldest_first) <= MOST:
        return 0
    known = published() if published else None
    old = [each.snapshot_id for each in oldest_first[:-KEPT] if known is None or _run_of(each) in known]
    if old:
        try:
            with OneTransaction(table) as transaction:
                ExpireSnapshots(transaction).by_ids(old).commit()
        except CommitFailedException:  # another run was quicker, and this can wait for the next one
            return 0
    return len(old)


def compact_data_files(catalog: Catalog, name: str) -> int:
    """Put the rows of many small files into one, in one commit; how many files there were, 0 where they are few.

    Readers of the ledger would open a file per run. A commit that comes between wins; the next one tries again.
    """
    table = load_table(catalog, name)
    current = table.current_snapshot()
    if current is None or int(snapshots.summary_property(current, _DATA_FILES) or 0) <= MOST_FILES:
        return 0
    files = [task.file for task in table.scan().plan_files()]
    whole = list(_dataframe_to_data_files(table.metadata, table.scan().to_arrow(), table.io))
    try:
        commit_snapshot(table, Operation.OVERWRITE, whole, files, {})
    except CommitFailedException:
        return 0
    return len(files)


def _run_of(snapshot: Snapshot) -> str | None:
    return snapshots.summary_property(snapshot, snapshots.RUN_ID)
