"""Delete orphan files of tables, and expire the tags and snapshots of old runs."""

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

from backstream.errors import LedgerError, SpecError, StorageError
from backstream.eventtime.instants import HOUR_MS, duration_text, utc_datetime
from backstream.lake import snapshots
from backstream.lake.catalog import load_table, open_catalog_for_writing
from backstream.lake.catalog_address import table_identifier
from backstream.lake.commit import with_retries
from backstream.lake.compaction import expire_old_snapshots
from backstream.lake.published_runs import list_published_run_ids
from backstream.lake.snapshots import list_tagged_snapshots, tag_names
from backstream.lake.storage import (
    PUBLICATION_MARK,
    VACUUM_MARK,
    Folder,
    StoredFile,
    StoreFolder,
    comparable_location,
    is_older_than_grace,
    list_existing,
    list_table_folders,
    write_mark,
)
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Plan
from backstream.runs.table_schemas import RESTATEMENTS, TABLES
from backstream.storage.files import list_drafts
from backstream.storage.stores import Stores, is_in_store

_MIN_GRACE_MS = HOUR_MS
"""The minimum for an object store: any running publication has copied some of its files within this time."""


@dataclass(frozen=True, slots=True)
class VacuumResult:
    """The removed or removable files of one table's folder; the table `(drafts)` is for temporary files."""

    table: str
    files: int
    size_bytes: int
    kept_files: int
    expired_snapshots: int


_FolderFiles = tuple[Folder, list[StoredFile]]


def vacuum_tables(
    home: Home,
    dataset: str,
    grace_ms: int,
    *,
    expire_before_ms: int | None = None,
    keep_runs: int | None = None,
    dry_run: bool = False,
) -> list[VacuumResult]:
    """Remove the files of a dataset's tables that no retained snapshot references.

    Temporary files of killed writers, beside plans, manifests, and the arrival index, are removed too.

    Files within the grace period are kept. Older files of a run are kept if the run wrote another file within the
    grace period, because the run may still publish them. A publication renews the age of its staged files.

    Args:
        home: the home of the lake.
        dataset: the dataset of the tables.
        grace_ms: the minimum age of removed files.
        expire_before_ms: first expire the untagged snapshots of the windows that are older than this instant.
        keep_runs: first expire all but the newest runs: their tags, and the snapshots before the base of the
            oldest kept run.
        dry_run: only report the files.

    Raises:
        LedgerError: if there is no such dataset.
        SpecError: if the grace period is too short for an object store.
    """
    with open_catalog_for_writing(home) as catalog:
        folders = _folders(home, catalog, dataset)
        if not dry_run:
            _require_grace(folders, grace_ms)
        expired = 0
        if expire_before_ms is not None:
            expired = _expire_snapshots(catalog, dataset, expire_before_ms, dry_run=dry_run)
        if keep_runs is not None:
            expired += _expire_old_runs(home, catalog, dataset, keep_runs, dry_run=dry_run)
        # The files are listed before the tables are loaded, so that newly committed files are reachable.
        listed = {
            name: [(folder, list(folder.files())) for folder in table_folders]
            for name, table_folders in folders.items()
        }
        recent_runs = _list_recent_runs(chain.from_iterable(listed.values()), grace_ms)
        results = [
            _remove_orphans(
                load_table(catalog, name),
                table_files,
                recent_runs,
                grace_ms,
                expired if name == dataset else 0,
                dry_run,
            )
            for name, table_files in listed.items()
        ]
    return [*results, *_remove_drafts(home, dataset, grace_ms, dry_run=dry_run)]


def protect_staged_files(plan: Plan, manifests: Sequence[Manifest]) -> None:
    """Prevent a vacuum from removing staged files during a publication.

    Files on a disk get a new modification time, and those in an object store a mark beside them.

    Raises:
        StorageError: when a vacuum is removing the files.
    """
    staged = [
        (suffix, file.path)
        for manifest in manifests
        for suffix in manifest.files
        for file in manifest.files[suffix]
    ]
    for path in (path for _, path in staged if not is_in_store(path)):
        with suppress(FileNotFoundError):  # the checks of staged files report missing files
            os.utime(path)
    for suffix in dict.fromkeys(suffix for suffix, path in staged if is_in_store(path)):
        _protect_stored_files(plan, suffix)


def _protect_stored_files(plan: Plan, suffix: str) -> None:
    """Write the mark of a publication beside the staged files of a table; see `StoreFolder.claim`."""
    filesystem, folder = Stores.from_environment().open(plan.stored_staging(suffix))
    write_mark(filesystem, f"{folder}/{PUBLICATION_MARK}")
    vacuum = filesystem.get_file_info(f"{folder}/{VACUUM_MARK}")
    # A killed vacuum leaves its mark.
    if vacuum.is_file and not is_older_than_grace(vacuum.mtime_ns // 1_000_000, _MIN_GRACE_MS):
        msg = (
            f"vacuum is removing the staged files of run {plan.run_id}\n  {plan.stored_staging(suffix)}\n\n"
            "hint: run the chunks of the run again, and then publish it"
        )
        raise StorageError(msg)


def _expire_old_runs(home: Home, catalog: Catalog, dataset: str, keep_runs: int, *, dry_run: bool) -> int:
    """Delete the tags of old runs, expire the snapshots that only these tags retained, and return their number.

    The newest `keep_runs` runs are kept, and so is the base of the oldest one, so that it can be rolled back. The
    ledger still lists the expired runs as published, and their rows in the side tables stay.
    """

    def attempt() -> int:
        table = load_table(catalog, dataset)
        runs, snapshot_ids = _find_expired_runs(table, keep_runs)
        if runs and not dry_run:
            with table.transaction() as transaction:
                tags = ManageSnapshots(transaction)
                for name in _list_tags(table, runs):
                    tags = tags.remove_tag(name)
                tags.commit()
                ExpireSnapshots(transaction).by_ids(snapshot_ids).commit()
        return len(snapshot_ids)

    expired = with_retries(f"expire old runs of table `{dataset}`", attempt)
    if not dry_run:
        _expire_side_tables(home, catalog, dataset)
    return expired


def expire_side_table_snapshots(home: Home, dataset: str) -> None:
    """Expire the old snapshots of a dataset's side tables; this is the last step of a run.

    Raises:
        CatalogError: if the catalog cannot be reached.
    """
    with open_catalog_for_writing(home) as catalog:
        _expire_side_tables(home, catalog, dataset)


def list_reachable_files(table: Table) -> set[str]:
    """Return each file that a retained snapshot or the table's metadata references, for comparisons."""
    metadata = table.metadata
    files = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    files |= {statistics.statistics_path for statistics in (*metadata.statistics, *metadata.partition_statistics)}
    manifests: dict[str, ManifestFile] = {}
    for snapshot in metadata.snapshots:
        files.add(snapshot.manifest_list)
        manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(table.io)}
    files |= manifests.keys()
    for manifest in manifests.values():  # snapshots share manifests, and each one is read once
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        files |= {entry.data_file.file_path for entry in entries}
    return {comparable_location(location) for location in files}


def _expire_snapshots(catalog: Catalog, name: str, before_ms: int, *, dry_run: bool) -> int:
    """Expire old snapshots of the windows and return their number.

    The snapshots of the other tables record which runs have written their rows, so they are not expired by age.
    """

    def attempt() -> int:
        table = load_table(catalog, name)
        referenced = {ref.snapshot_id for ref in table.refs().values()}
        old = [
            snapshot.snapshot_id
            for snapshot in table.snapshots()
            if snapshot.timestamp_ms < before_ms and snapshot.snapshot_id not in referenced
        ]
        if old and not dry_run:
            table.maintenance.expire_snapshots().older_than(utc_datetime(before_ms)).commit()
        return len(old)

    return with_retries(f"expire snapshots of table `{name}`", attempt)


def _remove_orphans(
    table: Table, listed: Sequence[_FolderFiles], recent_runs: set[str], grace_ms: int, expired: int, dry_run: bool
) -> VacuumResult:
    reachable, removed = list_reachable_files(table), list[StoredFile]()
    for folder, files in listed:
        orphans = [
            file
            for file in files
            if file.owner not in reachable
            and is_older_than_grace(file.modified_ms, grace_ms)
            and file.run_id not in recent_runs
        ]
        removed += orphans if dry_run else _remove_files(folder, orphans, grace_ms)
    size_bytes, count = sum(file.size_bytes for file in removed), sum(len(files) for _, files in listed)
    return VacuumResult(table.name()[-1], len(removed), size_bytes, count - len(removed), expired)


def _remove_files(folder: Folder, orphans: Iterable[StoredFile], grace_ms: int) -> Iterator[StoredFile]:
    """Remove files, and yield those that existed; files of a run that is being published are kept."""
    by_run: dict[str, list[StoredFile]] = {}
    for file in orphans:
        by_run.setdefault(file.run_id, []).append(file)
    for run_id, files in by_run.items():
        with folder.claim(run_id, grace_ms) as is_claimed:
            yield from [file for file in files if is_claimed and folder.remove(file, grace_ms)]


def _folders(home: Home, catalog: Catalog, dataset: str) -> dict[str, list[Folder]]:
    names = [f"{dataset}__{suffix}" if suffix else dataset for suffix in (*TABLES, RESTATEMENTS)]
    existing = [name for name in names if catalog.table_exists(table_identifier(name))]
    if dataset not in existing:
        msg = f"no dataset `{dataset}` in {home.location}"
        raise LedgerError(msg)
    return {name: list_table_folders(home, load_table(catalog, name)) for name in existing}


def _require_grace(folders: Mapping[str, Sequence[Folder]], grace_ms: int) -> None:
    """Check that the grace period protects copies in an object store that a publication has not committed yet.

    Raises:
        SpecError: if the grace period is too short for that.
    """
    for name, table_folders in folders.items():
        if grace_ms < _MIN_GRACE_MS and any(isinstance(folder, StoreFolder) for folder in table_folders):
            msg = (
                f"the grace period must be at least {duration_text(_MIN_GRACE_MS)} in an object store, got"
                f" {duration_text(grace_ms)} (table `{name}`)\n\n"
                "hint: with --dry-run it may be shorter"
            )
            raise SpecError(msg)


def _remove_drafts(home: Home, dataset: str, grace_ms: int, *, dry_run: bool) -> Iterator[VacuumResult]:
    """Remove the temporary files of killed writers; yield nothing if there are none."""
    folders = home.run(dataset, "").path, home.path / "arrivals" / dataset
    drafts = list(list_existing(draft for folder in folders for draft in list_drafts(folder)))
    old = [draft for draft in drafts if is_older_than_grace(draft.modified_ms, grace_ms)]
    for draft in () if dry_run else old:
        Path(draft.location).unlink(missing_ok=True)
    if old:
        size_bytes = sum(draft.size_bytes for draft in old)
        yield VacuumResult("(drafts)", len(old), size_bytes, len(drafts) - len(old), 0)


def _list_recent_runs(listed: Iterable[_FolderFiles], grace_ms: int) -> set[str]:
    """Return the runs that wrote a file within the grace period, into any table."""
    return {
        file.run_id
        for _, files in listed
        for file in files
        if file.run_id and not is_older_than_grace(file.modified_ms, grace_ms)
    }


def _expire_side_tables(home: Home, catalog: Catalog, dataset: str) -> None:
    def list_published() -> set[str]:
        return list_published_run_ids(home, load_table(catalog, dataset))

    for suffix in (*TABLES, RESTATEMENTS):
        name = f"{dataset}__{suffix}"
        if suffix and catalog.table_exists(table_identifier(name)):
            expire_old_snapshots(catalog, name, list_published)


def _list_tags(table: Table, runs: Sequence[str]) -> list[str]:
    return [name for run_id in runs for name in tag_names(run_id) if name in table.refs()]


def _find_expired_runs(table: Table, keep_runs: int) -> tuple[list[str], list[int]]:
    """Return the runs that lose their tags, and the ids of snapshots before the base of the oldest kept run."""
    newest_first = sorted(
        list_tagged_snapshots(table).items(),
        key=lambda tagged: snapshots.snapshot_version(tagged[1]),
        reverse=True,
    )
    runs = [run_id for run_id, _ in newest_first[keep_runs:]]
    if not runs:
        return [], []
    kept_versions = [snapshots.snapshot_version(snapshot) for _, snapshot in newest_first[:keep_runs]]
    current = table.current_snapshot()
    oldest_version = min(kept_versions, default=snapshots.snapshot_version(current) + 1 if current else 0)
    expired_tags = {*_list_tags(table, runs)}
    referenced = {ref.snapshot_id for name, ref in table.refs().items() if name not in expired_tags}
    return runs, [
        snapshot.snapshot_id
        for snapshot in table.snapshots()
        if snapshots.snapshot_version(snapshot) < oldest_version - 1 and snapshot.snapshot_id not in referenced
    ]
