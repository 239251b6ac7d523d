"""Vacuum: files that no snapshot reaches any more are removed, once nobody can be about to publish them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.update.snapshot import ExpireSnapshots, ManageSnapshots

from backstream.errors import LedgerError, SpecError
from backstream.eventtime.instants import HOUR_MS, duration_text, utc_datetime
from backstream.lake import snapshots
from backstream.lake.catalog import NAMESPACE, load_table, open_catalog_for_writing
from backstream.lake.commit import with_retries
from backstream.lake.compaction import expire_old_snapshots
from backstream.lake.published_runs import list_published_run_ids
from backstream.lake.snapshots import list_tagged_snapshots, tag_name
from backstream.lake.storage import (
    Folder,
    StoredFile,
    StoreFolder,
    is_older_than_grace,
    list_existing,
    list_table_folders,
    plain_path,
)
from backstream.runs.home import Home, list_drafts
from backstream.runs.manifest import Manifest
from backstream.runs.table_schemas import RESTATEMENTS, TABLES

LEAST_GRACE_MS = HOUR_MS
"""For an object store: whatever a publication is about to commit, it has copied some of it more lately."""


@dataclass(frozen=True, slots=True)
class VacuumResult:
    """What was removed from one table's folder, or would be; `(drafts)`: of what no table holds."""

    table: str
    files: int
    size_bytes: int
    kept_files: int
    expired_snapshots: int


Listed = tuple[Folder, list[StoredFile]]


def vacuum_tables(
    home: Home,
    dataset: str,
    grace_ms: int,
    *,
    expire_before_ms: int | None = None,
    keep_runs: int | None = None,
    dry_run: bool = False,
) -> list[VacuumResult]:
    """Remove what no retained snapshot and no tag reaches in the folders of a dataset's tables.

    Drafts that killed writers have left beside plans, manifests and what is known of input files go too.

    Files younger than the grace period stay, and so do older ones of a run that staged something within it: that
    run may publish yet. Publishing makes its staged files young.

    Args:
        home: where the lake lies.
        dataset: whose tables.
        grace_ms: how old a file must be.
        expire_before_ms: first expire the snapshots of the windows that are older and have no tag.
        keep_runs: first let go of all but the newest runs: their tags, and the snapshots before what these found.
        dry_run: only tell.

    Raises:
        LedgerError: when there is no such dataset.
        SpecError: when the grace period is too short for an object store.
    """
    with open_catalog_for_writing(home) as catalog:
        folders = _folders(home, catalog, dataset)
        if not dry_run:
            _require_long_enough(folders, grace_ms)
        expired = 0 if expire_before_ms is None else _expired(catalog, dataset, expire_before_ms, dry_run=dry_run)
        if keep_runs is not None:
            expired += expire_old_runs(home, catalog, dataset, keep_runs, dry_run=dry_run)
        listed = {name: [(each, list(each.files())) for each in of_table] for name, of_table in folders.items()}
        young = _young_runs(chain.from_iterable(listed.values()), grace_ms)
        swept = [
            _swept(load_table(catalog, name), found, young, grace_ms, 0 if name != dataset else expired, dry_run)
            for name, found in listed.items()
        ]
    return [*swept, *_drafts_removed(home, dataset, grace_ms, dry_run=dry_run)]


def touch_staged_files(manifests: Sequence[Manifest]) -> None:
    """Make staged files young, so that no vacuum takes them for left over while they are published."""
    for manifest in manifests:
        for files in manifest.files.values():
            for file in files:
                with suppress(FileNotFoundError):  # which the checks of the files say in words
                    os.utime(file.path)


def list_reachable_files(table: Table) -> set[str]:
    """Every file that a retained snapshot or the table's metadata names, as plain paths."""
    metadata = table.metadata
    found = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    found |= {each.statistics_path for each in (*metadata.statistics, *metadata.partition_statistics)}
    manifests: dict[str, ManifestFile] = {}
    for snapshot in metadata.snapshots:
        found.add(snapshot.manifest_list)
        manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(table.io)}
    found |= manifests.keys()
    for manifest in manifests.values():  # each once: snapshots share them
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        found |= {entry.data_file.file_path for entry in entries}
    return {plain_path(location) for location in found}


def _expired(catalog: Catalog, name: str, before_ms: int, *, dry_run: bool) -> int:
    """Only of the windows: the snapshots of the other tables say which runs have written their rows."""

    def attempt() -> int:
        table = load_table(catalog, name)
        kept = {ref.snapshot_id for ref in table.refs().values()}
        older = (each.snapshot_id for each in table.snapshots() if each.timestamp_ms < before_ms)
        old = [snapshot_id for snapshot_id in older if snapshot_id not in kept]
        if old and not dry_run:
            table.maintenance.expire_snapshots().older_than(utc_datetime(before_ms)).commit()
        return len(old)

    return with_retries(f"expire snapshots of table `{name}`", attempt)


def _swept(
    table: Table, listed: Sequence[Listed], young: set[str], grace_ms: int, expired: int, dry_run: bool
) -> VacuumResult:
    """The files were listed before the table was loaded: what was committed in between is reachable."""
    reached, removed = list_reachable_files(table), []
    for folder, files in listed:
        garbage = (
            file
            for file in files
            if file.owner not in reached
            and is_older_than_grace(file.modified_ms, grace_ms)
            and file.run_id not in young
        )
        removed += [file for file in garbage if dry_run or folder.is_removed(file, grace_ms)]
    size_bytes, count = sum(file.size_bytes for file in removed), sum(len(files) for _, files in listed)
    return VacuumResult(table.name()[-1], len(removed), size_bytes, count - len(removed), expired)


def _folders(home: Home, catalog: Catalog, dataset: str) -> dict[str, list[Folder]]:
    names = [f"{dataset}__{suffix}" if suffix else dataset for suffix in (*TABLES, RESTATEMENTS)]
    found = [name for name in names if catalog.table_exists((NAMESPACE, name))]
    if dataset not in found:
        msg = f"no dataset `{dataset}` in {home.path}"
        raise LedgerError(msg)
    return {name: list_table_folders(home, load_table(catalog, name)) for name in found}


def _require_long_enough(folders: Mapping[str, Sequence[Folder]], grace_ms: int) -> None:
    """What a publication has copied to an object store and not committed yet must be young: it is not touched.

    Raises:
        SpecError: when the grace period is too short for that.
    """
    for name, of_table in folders.items():
        if grace_ms < LEAST_GRACE_MS and any(isinstance(folder, StoreFolder) for folder in of_table):
            msg = (
                f"the grace period must be at least {duration_text(LEAST_GRACE_MS)} in an object store, got"
                f" {duration_text(grace_ms)} (table `{name}`)\n\n"
                "hint: with --dry-run it may be shorter"
            )
            raise SpecError(msg)


def _drafts_removed(home: Home, dataset: str, grace_ms: int, *, dry_run: bool) -> Iterator[VacuumResult]:
    """Nothing where there are none: hardly ever is a writer killed at that very moment."""
    folders = (home.path / name / dataset for name in ("runs", "arrivals"))
    found = list(list_existing(draft for folder in folders for draft in list_drafts(folder)))
    old = [draft for draft in found if is_older_than_grace(draft.modified_ms, grace_ms)]
    for draft in () if dry_run else old:
        Path(draft.location).unlink(missing_ok=True)
    if old:
        size_bytes = sum(draft.size_bytes for draft in old)
        yield VacuumResult("(drafts)", len(old), size_bytes, len(found) - len(old), 0)


def _young_runs(listed: Iterable[Listed], grace_ms: int) -> set[str]:
    """Runs that wrote a file within the grace period, into whichever table."""
    return {
        file.run_id
        for _, files in listed
        for file in files
        if file.run_id and not is_older_than_grace(file.modified_ms, grace_ms)
    }


def expire_old_runs(home: Home, catalog: Catalog, dataset: str, keep_runs: int, *, dry_run: bool) -> int:
    """Remove the tags of all runs but the newest, and expire what only these kept; the number of snapshots.

    What the oldest kept run found stays, so that it can be rolled back. That the others were published is known to
    the ledger; the rows that they left in the side tables stay.
    """

    def attempt() -> int:
        table = load_table(catalog, dataset)
        runs, snapshots = _beyond(table, keep_runs)
        if runs and not dry_run:
            with table.transaction() as transaction:
                tags = ManageSnapshots(transaction)
                for run_id in runs:
                    tags = tags.remove_tag(tag_name(run_id))
                tags.commit()
                ExpireSnapshots(transaction).by_ids(snapshots).commit()
        return len(snapshots)

    expired = with_retries(f"let go of old runs of table `{dataset}`", attempt)
    if not dry_run:
        _side_tables_rested(home, catalog, dataset)
    return expired


def expire_side_table_snapshots(home: Home, dataset: str) -> None:
    """Expire the old snapshots of a dataset's side tables; what a run does last, when all else is recorded.

    Raises:
        CatalogError: when the catalog cannot be reached.
    """
    with open_catalog_for_writing(home) as catalog:
        _side_tables_rested(home, catalog, dataset)


def _side_tables_rested(home: Home, catalog: Catalog, dataset: str) -> None:
    def published() -> set[str]:
        return list_published_run_ids(home, load_table(catalog, dataset))

    for suffix in (*TABLES, RESTATEMENTS):
        name = f"{dataset}__{suffix}"
        if suffix and catalog.table_exists((NAMESPACE, name)):
            expire_old_snapshots(catalog, name, published)


def _beyond(table: Table, keep_runs: int) -> tuple[list[str], list[int]]:
    """The runs that lose their tags, and the snapshots from before what the oldest kept run found."""
    newest_first = sorted(
        list_tagged_snapshots(table).items(), key=lambda each: snapshots.snapshot_version(each[1]), reverse=True
    )
    runs = [run_id for run_id, _ in newest_first[keep_runs:]]
    kept = [snapshots.snapshot_version(snapshot) for _, snapshot in newest_first[:keep_runs]]
    current = table.current_snapshot()
    oldest = min(kept, default=snapshots.snapshot_version(current) + 1 if current else 0)
    names = {tag_name(run_id) for run_id in runs}
    others = {ref.snapshot_id for name, ref in table.refs().items() if name not in names}
    older = (each for each in table.snapshots() if snapshots.snapshot_version(each) < oldest - 1)
    return runs, [each.snapshot_id for each in older if each.snapshot_id not in others] if runs else []
