"""Rollback: undo one run and keep those after it, by publishing again what its range held before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from backstream.errors import ConflictError
from backstream.eventtime.instants import instant_text
from backstream.lake import snapshots
from backstream.lake.catalog import load_table, open_catalog_for_writing
from backstream.lake.commit import commit_snapshot, retry_attempts, to_data_files, with_retries
from backstream.lake.diff import Replacement, append_restatements
from backstream.lake.file_copies import copy_data_files
from backstream.lake.published_runs import PublishedRun, load_published_run
from backstream.lake.scans import list_files
from backstream.lake.snapshots import ensure_tag, tag_name
from backstream.lake.storage import plain_path
from backstream.runs.home import Home
from backstream.runs.manifest import StagedFile
from backstream.runs.results import Publication, rollback_id


@dataclass(frozen=True, slots=True)
class RollbackResult:
    """A run that was undone: `publication` is that of the rollback, `said` what its snapshot recorded of it."""

    run_id: str
    publication: Publication
    definition_hash: str
    plan_hash: str
    mode: str


def roll_back_run(home: Home, run_id: str) -> RollbackResult:
    """Give a run's range back what it held before that run; doing it again changes nothing.

    The files are copied: a path that was ever removed is never added again, because whoever cleans up may have
    deleted it. The rows keep the ids of the runs that made them.

    Raises:
        LedgerError: when the run was never published, or what its range held before was expired.
        ConflictError: when a later run published into the range.
    """
    with open_catalog_for_writing(home) as catalog:
        found = load_published_run(home, catalog, run_id)
        undo_id, name = rollback_id(run_id), found.dataset
        if done := snapshots.find_snapshot_of_run(found.table, undo_id):
            ensure_tag(catalog, name, undo_id, done.snapshot_id)
            return _told(found, done, already=True)
        _require_latest(found.table, found)
        with retry_attempts(f"roll back {run_id}"):
            restored = _copied(found.table, undo_id, _before(found))
        append_restatements(catalog, name, _replacement(found.table, found, restored))
        return _committed(catalog, found, restored)


def _committed(catalog: Catalog, found: PublishedRun, restored: Sequence[DataFile]) -> RollbackResult:
    undo_id = rollback_id(found.run_id)

    def attempt() -> RollbackResult:
        table = load_table(catalog, found.dataset)
        if done := snapshots.find_snapshot_of_run(table, undo_id):
            return _told(found, done, already=True)
        _require_latest(table, found)
        now = _replacement(table, found, restored)
        snapshot = commit_snapshot(
            table, Operation.OVERWRITE, restored, now.removed, now.summary_properties, tag_name(undo_id)
        )
        return _told(found, snapshot, already=False)

    return with_retries(f"roll back {found.run_id}", attempt)


def _require_latest(table: Table, found: PublishedRun) -> None:
    """Check that nobody published into the range after the run."""
    for later in snapshots.list_ancestors(table):
        if later.snapshot_id == found.snapshot.snapshot_id:
            return
        if snapshots.overlaps_range(later, found.interval):
            version, author = snapshots.snapshot_version(later), snapshots.describe_author(later)
            fact = f"version {version} touched it since ({author})"
            raise _refused(found, "its range was published again", fact)
    fact = "snapshots between it and the table as it is were expired"
    raise _refused(found, "what came after it is not known", fact)


def _refused(found: PublishedRun, what: str, fact: str) -> ConflictError:
    return ConflictError(f"refusing to roll back {found.run_id}: {what}\n  {found.interval}: {fact}")


def _before(found: PublishedRun) -> list[DataFile]:
    parent = snapshots.find_parent(found.table, found.snapshot)
    return list_files(found.table, found.interval, parent.snapshot_id) if parent else []


def _copied(table: Table, run_id: str, files: Sequence[DataFile]) -> list[DataFile]:
    places = copy_data_files(table, run_id, [file.file_path for file in files])
    restored = [
        StagedFile(plain_path(place), file.file_size_in_bytes, file.record_count)
        for file, place in zip(files, places, strict=True)
    ]
    return to_data_files(table, restored)


def _replacement(table: Table, found: PublishedRun, restored: Sequence[DataFile]) -> Replacement:
    removed = list_files(table, found.interval)
    said = snapshots.backstream_properties(found.snapshot) | {
        snapshots.RUN_ID: rollback_id(found.run_id),
        snapshots.ROLLED_BACK: found.run_id,
        snapshots.ROWS: str(sum(file.record_count for file in restored)),
        snapshots.REPLACED_ROWS: str(sum(file.record_count for file in removed)),
        snapshots.FILES: str(len(restored)),
    }
    return Replacement(table, removed, restored, snapshots.key_columns_of_snapshot(found.snapshot), said)


def _told(found: PublishedRun, snapshot: Snapshot, *, already: bool) -> RollbackResult:
    publication = Publication(
        run_id=rollback_id(found.run_id),
        dataset=found.dataset,
        since_ms=found.interval.start_ms,
        until_ms=found.interval.end_ms,
        snapshots={"": snapshot.snapshot_id},
        rows=snapshots.summary_number(snapshot, snapshots.ROWS),
        replaced_rows=snapshots.summary_number(snapshot, snapshots.REPLACED_ROWS),
        files=snapshots.summary_number(snapshot, snapshots.FILES),
        published_at=instant_text(snapshot.timestamp_ms),
        already=already,
    )
    keys = (snapshots.DEFINITION_HASH, snapshots.PLAN_HASH, snapshots.MODE)
    definition_hash, plan_hash, mode = (snapshots.summary_property(snapshot, key) or "" for key in keys)
    return RollbackResult(found.run_id, publication, definition_hash, plan_hash, mode)
