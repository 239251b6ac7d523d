"""Roll back one run and keep later runs, by publishing the previous rows of its range again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from backstream.errors import ConflictError
from backstream.eventtime.instants import instant_text
from backstream.lake import snapshots
from backstream.lake.catalog import load_table, open_catalog_for_writing
from backstream.lake.commit import commit_snapshot, note_attempt, with_retries
from backstream.lake.diff import Replacement
from backstream.lake.publication.conflicts import changes_range, describe_author
from backstream.lake.publication.data_files import copy_data_files, to_data_files
from backstream.lake.publication.range_copies import RangeCopy, column_types, copy_range, require_copyable
from backstream.lake.publication.restatements import append_restatements
from backstream.lake.published_runs import PublishedRun, load_published_run
from backstream.lake.scans import list_files
from backstream.lake.snapshots import ensure_tag, tag_names
from backstream.lake.storage import plain_path
from backstream.runs.home import Home
from backstream.runs.manifest import StagedFile
from backstream.runs.results import Publication, rollback_id
from backstream.storage.files import write_json


@dataclass(frozen=True, slots=True)
class RollbackResult:
    """The publication of a rollback, with the id and the recorded properties of the run that it undid."""

    run_id: str
    publication: Publication
    definition_hash: str
    plan_hash: str
    mode: str


def roll_back_run(home: Home, run_id: str, reason: str = "") -> RollbackResult:
    """Publish the rows again that a run's range had before the run; a second call changes nothing.

    A file of the home has the reason from before the commit on, so that a killed rollback is known (`run_rows`).

    The files are copied. A path that was removed from the table is never added again, because a cleanup may have
    deleted the file. The rows keep their run ids.

    Raises:
        LedgerError: if the run was never published, or the previous snapshot has expired.
        ConflictError: if a later run published into the range.
    """
    with open_catalog_for_writing(home) as catalog:
        run = load_published_run(home, catalog, run_id)
        undo_id, name = rollback_id(run_id), run.dataset
        copy = RangeCopy.from_rollback(catalog, run)
        if snapshot := snapshots.find_snapshot_of_run(run.table, undo_id):
            ensure_tag(catalog, name, undo_id, snapshot.snapshot_id)
            result = _to_result(run, snapshot, already=True)
        else:
            if copy:
                require_copyable(catalog, copy, column_types(run.table))
            marker = home.rollbacks(name) / f"{undo_id}.json"
            result = _restore_rows(catalog, run, lambda: write_json(marker, {"reason": reason}))
        if copy:
            copy_range(catalog, copy)
        return result


def _restore_rows(catalog: Catalog, run: PublishedRun, on_commit: Callable[[], None]) -> RollbackResult:
    """Publish the previous rows of a run's range; `on_commit` is called once nothing refuses that any more."""
    _require_latest(run.table, run)
    with note_attempt(f"roll back {run.run_id}"):
        restored = _copy_files(run.table, rollback_id(run.run_id), _list_previous_files(run))
    changed_values = append_restatements(catalog, run.dataset, _replacement(run.table, run, restored))
    on_commit()
    return _commit_rollback(catalog, run, restored, changed_values)


def _commit_rollback(
    catalog: Catalog, run: PublishedRun, restored: Sequence[DataFile], changed_values: int
) -> RollbackResult:
    undo_id = rollback_id(run.run_id)

    def attempt() -> RollbackResult:
        table = load_table(catalog, run.dataset)
        if rollback := snapshots.find_snapshot_of_run(table, undo_id):
            return _to_result(run, rollback, already=True)
        _require_latest(table, run)
        replacement = _replacement(table, run, restored)
        snapshot = commit_snapshot(
            table,
            Operation.OVERWRITE,
            restored,
            replacement.removed,
            replacement.summary_properties | {snapshots.CHANGED_VALUES: str(changed_values)},
            tag_names(undo_id),
        )
        return _to_result(run, snapshot, already=False)

    return with_retries(f"roll back {run.run_id}", attempt)


def _require_latest(table: Table, run: PublishedRun) -> None:
    """Check that no later snapshot changed the range of the run."""
    for later in snapshots.list_ancestors(table):
        if later.snapshot_id == run.snapshot.snapshot_id:
            return
        if changes_range(table, later, run.interval):
            version, author = snapshots.snapshot_version(later), describe_author(later)
            fact = f"version {version} changed it ({author})"
            raise _refusal(run, "its range was published again", fact)
    fact = "snapshots between the run and the current table have expired"
    raise _refusal(run, "later changes of its range are unknown", fact)


def _refusal(run: PublishedRun, reason: str, fact: str) -> ConflictError:
    return ConflictError(f"refusing to roll back {run.run_id}: {reason}\n  {run.interval}: {fact}")


def _list_previous_files(run: PublishedRun) -> list[DataFile]:
    parent = snapshots.find_parent(run.table, run.snapshot)
    return list_files(run.table, run.interval, parent.snapshot_id) if parent else []


def _copy_files(table: Table, run_id: str, files: Sequence[DataFile]) -> list[DataFile]:
    locations = copy_data_files(table, run_id, [file.file_path for file in files])
    restored = [
        StagedFile(plain_path(location), file.file_size_in_bytes, file.record_count)
        for file, location in zip(files, locations, strict=True)
    ]
    return to_data_files(table, restored)


def _replacement(table: Table, run: PublishedRun, restored: Sequence[DataFile]) -> Replacement:
    removed = list_files(table, run.interval)
    properties = snapshots.backstream_properties(run.snapshot) | {
        snapshots.RUN_ID: rollback_id(run.run_id),
        snapshots.ROLLED_BACK: run.run_id,
        snapshots.ROWS: str(sum(file.record_count for file in restored)),
        snapshots.REPLACED_ROWS: str(sum(file.record_count for file in removed)),
        snapshots.FILES: str(len(restored)),
    }
    return Replacement(table, removed, restored, snapshots.key_columns_of_snapshot(run.snapshot), properties)


def _to_result(run: PublishedRun, snapshot: Snapshot, *, already: bool) -> RollbackResult:
    publication = Publication(
        run_id=rollback_id(run.run_id),
        dataset=run.dataset,
        since_ms=run.interval.start_ms,
        until_ms=run.interval.end_ms,
        snapshots={"": snapshot.snapshot_id},
        rows=snapshots.summary_number(snapshot, snapshots.ROWS),
        replaced_rows=snapshots.summary_number(snapshot, snapshots.REPLACED_ROWS),
        files=snapshots.summary_number(snapshot, snapshots.FILES),
        published_at=instant_text(snapshot.timestamp_ms),
        already=already,
    )
    keys = (snapshots.DEFINITION_HASH, snapshots.PLAN_HASH, snapshots.MODE)
    definition_hash, plan_hash, mode = (snapshots.summary_property(snapshot, key) or "" for key in keys)
    return RollbackResult(run.run_id, publication, definition_hash, plan_hash, mode)
