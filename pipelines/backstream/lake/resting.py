"""Tables to which every run appends need no history, since rows name their run; snapshots would slow commits."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.snapshots import Snapshot

from backstream.lake import history
from backstream.lake.catalog import loaded

MOST, KEPT = 40, 20
"""When a table has more snapshots than the first number, the older ones go until the second is left."""


def rested(catalog: Catalog, name: str, published: Callable[[], Collection[str]] | None = None) -> int:
    """Expire the old snapshots of a table whose rows name their runs; how many.

    A run that was not published keeps its own: a retry must find that it has written its rows.

    Args:
        catalog: where the table is.
        name: its name.
        published: tells the runs whose snapshots may go, asked only when there are many; None: all may.
    """
    table = loaded(catalog, name)
    snapshots = sorted(table.snapshots(), key=history.version)
    if len(snapshots) <= MOST:
        return 0
    known = published() if published else None
    old = [each.snapshot_id for each in snapshots[:-KEPT] if known is None or _run_of(each) in known]
    if old:
        try:
            table.maintenance.expire_snapshots().by_ids(old).commit()
        except CommitFailedException:  # another run was quicker, and this can wait for the next one
            return 0
    return len(old)


def _run_of(snapshot: Snapshot) -> str | None:
    return history.said(snapshot, history.RUN_ID)
