"""How much history is kept: the newest runs can be shown, compared and rolled back; of others the rows stay."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.update.snapshot import ExpireSnapshots, ManageSnapshots

from backstream.core.folders import Home
from backstream.core.tables import RESTATEMENTS, TABLES
from backstream.lake import history
from backstream.lake.catalog import NAMESPACE, loaded, opened
from backstream.lake.commits import with_retries
from backstream.lake.published import published_runs
from backstream.lake.resting import rested
from backstream.lake.tags import tag_of, tagged


def let_go(home: Home, catalog: Catalog, dataset: str, keep_runs: int, *, dry_run: bool) -> int:
    """Remove the tags of all runs but the newest, and expire what only these kept; the number of snapshots.

    What the oldest kept run found stays, so that it can be rolled back. That the others were published is known to
    the ledger; the rows that they left in the side tables stay.
    """

    def attempt() -> int:
        table = loaded(catalog, dataset)
        runs, snapshots = _beyond(table, keep_runs)
        if runs and not dry_run:
            with table.transaction() as transaction:
                tags = ManageSnapshots(transaction)
                for run_id in runs:
                    tags = tags.remove_tag(tag_of(run_id))
                tags.commit()
                ExpireSnapshots(transaction).by_ids(snapshots).commit()
        return len(snapshots)

    expired = with_retries(f"let go of old runs of table `{dataset}`", attempt)
    if not dry_run:
        _side_tables_rested(home, catalog, dataset)
    return expired


def rest_side_tables(home: Home, dataset: str) -> None:
    """Expire the old snapshots of a dataset's side tables; what a run does last, when all else is recorded.

    Raises:
        CatalogError: when the catalog cannot be reached.
    """
    with opened(home) as catalog:
        _side_tables_rested(home, catalog, dataset)


def _side_tables_rested(home: Home, catalog: Catalog, dataset: str) -> None:
    def published() -> set[str]:
        return published_runs(home, loaded(catalog, dataset))

    for suffix in (*TABLES, RESTATEMENTS):
        name = f"{dataset}__{suffix}"
        if suffix and catalog.table_exists((NAMESPACE, name)):
            rested(catalog, name, published)


def _beyond(table: Table, keep_runs: int) -> tuple[list[str], list[int]]:
    """The runs that lose their tags, and the snapshots from before what the oldest kept run found."""
    newest_first = sorted(tagged(table).items(), key=lambda each: history.version(each[1]), reverse=True)
    runs = [run_id for run_id, _ in newest_first[keep_runs:]]
    kept = [history.version(snapshot) for _, snapshot in newest_first[:keep_runs]]
    current = table.current_snapshot()
    oldest = min(kept, default=history.version(current) + 1 if current else 0)
    names = {tag_of(run_id) for run_id in runs}
    others = {ref.snapshot_id for name, ref in table.refs().items() if name not in names}
    older = (each for each in table.snapshots() if history.version(each) < oldest - 1)
    return runs, [each.snapshot_id for each in older if each.snapshot_id not in others] if runs else []
