"""Replace and append data files in one commit and one snapshot, and retry after commit conflicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.manifest import DataFile, ManifestEntryStatus
from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update.snapshot import ManageSnapshots
from sqlalchemy.exc import SQLAlchemyError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from backstream.errors import CommitError, CountError, LedgerError
from backstream.lake.catalog import is_catalog_error
from backstream.lake.commit_marks import list_marks, mark_properties
from backstream.lake.snapshot_producers import OneTransaction, remove_manifests, stage_snapshot

_ATTEMPTS = 8
_FIRST_PAUSE_S = 0.05
_MAX_PAUSE_S = 2.0

OWNER_PROPERTIES = ("backstream.definition", "backstream.keys")
"""The table properties that record the owner of a table of windows (`ownership.py`)."""
_SUMMARY_COUNTS = ("added-data-files", "added-records", "deleted-data-files", "deleted-records")

Result = TypeVar("Result")


@contextmanager
def note_attempt(what: str) -> Iterator[None]:
    """Add the attempted action as a note to errors of the disk and the catalog; the catalog's messages use it."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) or is_catalog_error(error):
            error.add_note(what)
        raise


def with_retries(what: str, attempt: Callable[[], Result], *tables: Table) -> Result:
    """Return the result of an attempt, and repeat the attempt after a commit conflict.

    Args:
        what: the action, for messages.
        attempt: the action; it must load the tables that it changes, except `tables`.
        tables: loaded tables, which are refreshed before a repetition.

    Raises:
        CommitError: if all attempts conflicted with other commits.
    """
    retrying = Retrying(
        retry=retry_if_exception_type(CommitFailedException),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(_FIRST_PAUSE_S, _MAX_PAUSE_S),
        reraise=True,
    )

    @note_attempt(what)
    def attempt_on_current() -> Result:
        if retrying.statistics["attempt_number"] > 1:
            for table in tables:
                table.refresh()
        return attempt()

    try:
        return retrying(attempt_on_current)
    except CommitFailedException as error:
        if error.__cause__ is not None and is_catalog_error(error.__cause__):
            error.__cause__.add_note(what)
            raise error.__cause__ from None
        msg = f"could not {what}: all {_ATTEMPTS} attempts conflicted with other commits\n\nhint: try again"
        raise CommitError(msg) from None


def commit_snapshot(
    table: Table,
    operation: Operation,
    added: Sequence[DataFile],
    removed: Sequence[DataFile],
    properties: dict[str, str],
    tags: tuple[str, str] | None = None,
) -> Snapshot:
    """Commit one snapshot that removes and adds files, set its tags in the same commit, and return it.

    The snapshot is read back before the commit, to check that readers will see the added and the kept files. If
    the answer of the catalog is lost or is an error, the table is loaded again to see if the commit was applied.

    Args:
        table: the table, as it was loaded.
        operation: the operation of the snapshot.
        added: the files to add.
        removed: the files to remove.
        properties: the properties of the snapshot.
        tags: the name of its tag, and that of the state before it, which gets one if it has no reference yet:
            another program has made that state, and may expire it.

    Raises:
        CommitFailedException: if the commit was not applied, for example because the table changed since it was
            loaded. It may be tried again: the catalog applies only one of several commits to the same state.
        CountError: if the snapshot would not add, remove, and keep exactly these files; nothing was changed.
        LedgerError: if the commit succeeded and its snapshot cannot be found.
    """
    transaction = OneTransaction(table)
    transaction.require_current_snapshot(OWNER_PROPERTIES)
    producer = stage_snapshot(transaction, table, operation, added, removed, properties)
    staged = _require_exact_files(table, transaction, producer.snapshot_id, added, removed)
    transaction.set_properties(mark_properties(table, staged))
    if tags is not None:
        references = ManageSnapshots(transaction).create_tag(producer.snapshot_id, tags[0])
        before = table.current_snapshot()
        kept = {ref.snapshot_id for name, ref in table.refs().items() if name != MAIN_BRANCH}
        if before is not None and before.snapshot_id not in kept:
            references = references.create_tag(before.snapshot_id, tags[1])
        references.commit()
    try:
        transaction.commit_transaction()
    except (CommitFailedException, ValidationException) as error:
        if (snapshot := _find_applied(table, staged)) is not None:
            return snapshot
        remove_manifests(producer)
        raise CommitFailedException(*error.args) from error
    except SQLAlchemyError:
        raise  # a database that fails takes long to answer again; the next run sees whether it was applied
    except Exception as error:
        if not is_catalog_error(error):
            raise
        if (snapshot := _find_applied(table, staged)) is not None:
            return snapshot
        msg = "the catalog did not confirm the commit"  # keep the manifests: it may still be applied
        raise CommitFailedException(msg) from error
    if (snapshot := find_commit_snapshot(table, producer.snapshot_id)) is None:
        msg = f"snapshot {producer.snapshot_id} of table `{table.name()[-1]}` is missing after its commit"
        raise LedgerError(msg)
    return snapshot


def _find_applied(table: Table, staged: Snapshot) -> Snapshot | None:
    """Return the snapshot of a commit whose success is unknown; None if the catalog has not applied it.

    It may be below commits of others; without history, its mark or its manifests are there.
    """
    if applied := find_commit_snapshot(table.refresh(), staged.snapshot_id):
        return applied
    current = table.current_snapshot()
    manifests = current.manifests(table.io) if current else ()
    return staged if any(each.added_snapshot_id == staged.snapshot_id for each in manifests) else None


def find_commit_snapshot(table: Table, snapshot_id: int) -> Snapshot | None:
    """Return a snapshot, or its mark if the catalog no longer has it."""
    marks = (mark for mark in list_marks(table) if mark.snapshot_id == snapshot_id)
    return table.snapshot_by_id(snapshot_id) or next(marks, None)


def _require_exact_files(
    table: Table,
    transaction: Transaction,
    snapshot_id: int,
    added: Sequence[DataFile],
    removed: Sequence[DataFile],
) -> Snapshot:
    """Return a snapshot before its commit, after a check by its summary and by the entries of its manifests."""
    metadata = transaction.table_metadata
    snapshot = metadata.snapshot_by_id(snapshot_id)
    if snapshot is None or snapshot.summary is None:
        msg = f"snapshot {snapshot_id} of table `{table.name()[-1]}` is missing before its commit"
        raise CountError(msg)
    added_rows, removed_rows = _rows_by_path(added), _rows_by_path(removed)
    recorded = {name: int(snapshot.summary.get(name) or 0) for name in _SUMMARY_COUNTS}
    expected = dict(
        zip(
            _SUMMARY_COUNTS,
            (len(added_rows), sum(added_rows.values()), len(removed_rows), sum(removed_rows.values())),
            strict=True,
        )
    )
    faults = [
        f"{name} is {recorded[name]:,} in the snapshot's summary, expected {expected[name]:,}"
        for name in _SUMMARY_COUNTS
        if recorded[name] != expected[name]
    ]
    faults += _manifest_faults(table, snapshot, added_rows, removed_rows)
    if len(added_rows) != len(added):
        faults.append(f"{len(added) - len(added_rows)} of {len(added)} files are listed more than once")
    if faults:
        facts = "".join(f"\n  {fault}" for fault in faults)
        msg = (
            f"the commit to table `{table.name()[-1]}` would not match the staged files{facts}\n\nhint: try again"
        )
        raise CountError(msg)
    return snapshot


def _manifest_faults(
    table: Table, snapshot: Snapshot, added_rows: dict[str, int], removed_rows: dict[str, int]
) -> Iterator[str]:
    """List the differences between the manifests that this snapshot adds and the expected files."""
    listed: dict[ManifestEntryStatus, dict[str, int]] = {status: {} for status in ManifestEntryStatus}
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
            if entry.snapshot_id in (None, snapshot.snapshot_id):
                listed[entry.status][entry.data_file.file_path] = entry.data_file.record_count
    if listed[ManifestEntryStatus.ADDED] != added_rows:
        yield _difference_text("added", listed[ManifestEntryStatus.ADDED], added_rows)
    if listed[ManifestEntryStatus.DELETED] != removed_rows:
        yield _difference_text("deleted", listed[ManifestEntryStatus.DELETED], removed_rows)


def _difference_text(status: str, listed: dict[str, int], expected: dict[str, int]) -> str:
    return (
        f"the manifests list {len(listed):,} files of {sum(listed.values()):,} rows as {status},"
        f" expected {len(expected):,} of {sum(expected.values()):,}"
    )


def _rows_by_path(files: Sequence[DataFile]) -> dict[str, int]:
    return {file.file_path: file.record_count for file in files}
