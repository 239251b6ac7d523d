"""Replace and append data files in one commit and one snapshot, and retry after commit conflicts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import (
    ValidatableTableRequirement,
    _apply_table_update,
    _TableMetadataUpdateContext,
)
from pyiceberg.table.update.snapshot import ManageSnapshots, _MergeAppendFiles, _OverwriteFiles
from sqlalchemy.exc import SQLAlchemyError

from backstream.errors import CommitError, CountError, LedgerError
from backstream.lake.catalog import DEFINITION, KEYS
from backstream.lake.storage import location_of
from backstream.runs.manifest import StagedFile
from backstream.runs.parquet_footer import Footer

ATTEMPTS = 8
_FIRST_PAUSE_S = 0.05
_MAX_PAUSE_S = 2.0

_CONFLICT = "another commit was made in the meantime"
_SUMMARY_COUNTS = ("added-data-files", "added-records", "deleted-data-files", "deleted-records")

Result = TypeVar("Result")


class _SingleAppend(_MergeAppendFiles):
    """PyIceberg's append, which merges manifests when there are many (`tables.py` sets how many)."""

    def _refresh_for_retry(self) -> None:
        """Refuse PyIceberg's retry, as `_SingleOverwrite` does."""
        raise CommitFailedException(_CONFLICT)


class _Unchanged(ValidatableTableRequirement):
    """A commit requirement that Iceberg lacks: unchanged table properties and an unchanged current snapshot."""

    type: Literal["assert-unchanged"] = "assert-unchanged"
    properties: Mapping[str, str | None]
    snapshot_id: int | None

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override] # as PyIceberg's own do
        """Refuse a commit to a changed table; the catalog validates just before it commits.

        Raises:
            CommitFailedException: if the table has changed.
        """
        if base_metadata is None or self != _unchanged(base_metadata, self.properties):
            raise CommitFailedException(_CONFLICT)


def _unchanged(metadata: TableMetadata, names: Iterable[str]) -> _Unchanged:
    properties = {name: metadata.properties.get(name) for name in names}
    return _Unchanged(properties=properties, snapshot_id=metadata.current_snapshot_id)


class OneTransaction(Transaction):
    """PyIceberg's transaction without copies of the metadata.

    PyIceberg copies the metadata, with all snapshots, whenever it reads it.
    """

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._applied, self._metadata, self._context = 0, table.metadata, _TableMetadataUpdateContext()

    def __enter__(self) -> Self:
        """Begin the transaction."""
        return self

    def require_unchanged(self, names: Iterable[str]) -> None:
        """Make the commit fail if these properties or the current snapshot changed since the table was loaded."""
        self._requirements += (_unchanged(self._table.metadata, names),)  # type: ignore[operator] # a union of its own

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata with all updates so far; each update is applied once, without a copy."""
        for update in self._updates[self._applied :]:
            self._metadata = _apply_table_update(update, self._metadata, self._context)
        self._applied = len(self._updates)
        return self._metadata


class _SingleOverwrite(_OverwriteFiles):
    """PyIceberg's overwrite, without a retry that ignores our conflict rules (docs/decisions/0002)."""

    def _existing_manifests(self) -> list[ManifestFile]:
        """Return the manifests to keep, without those that list only deleted files."""
        manifests = super()._existing_manifests()
        return [manifest for manifest in manifests if manifest.has_added_files() or manifest.has_existing_files()]

    def _refresh_for_retry(self) -> None:
        """Refuse PyIceberg's retry, which a table may configure: it doesn't check for conflicting runs."""
        raise CommitFailedException(_CONFLICT)


@contextmanager
def note_attempt(what: str) -> Iterator[None]:
    """Add the attempted action as a note to errors of the disk and the database; the catalog's messages use it."""
    try:
        yield
    except (OSError, SQLAlchemyError) as error:
        error.add_note(what)
        raise


def with_retries(what: str, attempt: Callable[[], Result]) -> Result:
    """Return the result of an attempt, and repeat the attempt after a commit conflict.

    Each attempt must load the table again.

    Raises:
        CommitError: if all attempts conflicted with other commits.
    """
    for retry in range(ATTEMPTS):
        try:
            with note_attempt(what):
                return attempt()
        except CommitFailedException:
            max_pause_s = min(_FIRST_PAUSE_S * 2**retry, _MAX_PAUSE_S)
            time.sleep(random.uniform(0, max_pause_s))  # noqa: S311 - jitter, not a secret
    msg = f"could not {what}: all {ATTEMPTS} attempts conflicted with other commits\n\nhint: try again"
    raise CommitError(msg)


def commit_snapshot(
    table: Table,
    operation: Operation,
    added: Sequence[DataFile],
    removed: Sequence[DataFile],
    properties: dict[str, str],
    tag: str | None = None,
) -> Snapshot:
    """Commit one snapshot that removes and adds files, set its tag in the same commit, and return it.

    The snapshot is read back before the commit, to check that readers will see the added and the kept files.

    Raises:
        CommitFailedException: if the table changed since it was loaded; nothing was changed.
        CountError: if the snapshot would not add, remove, and keep exactly these files; nothing was changed.
        LedgerError: if the commit succeeded and its snapshot cannot be found.
    """
    kind = _SingleAppend if operation is Operation.APPEND else _SingleOverwrite
    transaction = OneTransaction(table)
    transaction.require_unchanged((DEFINITION, KEYS))
    with transaction:
        producer = kind(operation, transaction, table.io, snapshot_properties=properties)
        for file in removed:
            producer.delete_data_file(file)
        for file in added:
            producer.append_data_file(file)
        producer.commit()
        _require_exact_files(table, transaction, producer.snapshot_id, added, removed)
        if tag is not None:
            ManageSnapshots(transaction).create_tag(producer.snapshot_id, tag).commit()
    if (snapshot := table.snapshot_by_id(producer.snapshot_id)) is None:
        msg = f"snapshot {producer.snapshot_id} of table `{table.name()[-1]}` is missing after its commit"
        raise LedgerError(msg)
    return snapshot


def _require_exact_files(
    table: Table,
    transaction: Transaction,
    snapshot_id: int,
    added: Sequence[DataFile],
    removed: Sequence[DataFile],
) -> None:
    """Check a snapshot before its commit, by its summary and by the entries of its manifests."""
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


def to_data_files(table: Table, files: Sequence[StagedFile], locations: Sequence[str] = ()) -> list[DataFile]:
    """Return the manifest entries of checked files, in their order.

    PyIceberg's own function refuses Parquet columns that are optional if the table requires a value. Spark writes
    nearly all columns as optional; the checks of staged files have counted the nulls instead.

    Args:
        table: the table to which the entries belong.
        files: the checked files.
        locations: the locations of their copies; empty if the files are used in place.
    """
    schema, spec = table.schema(), table.spec()
    columns, ids = compute_statistics_plan(schema, table.properties), parquet_path_to_id_mapping(schema)

    def to_entry(file: StagedFile, location: str) -> DataFile:
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=_footer(table, file.path),
            stats_columns=columns,
            parquet_column_mapping=ids,
        )
        data_file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=location,
            file_format=FileFormat.PARQUET,
            partition=statistics.partition(spec, schema),
            file_size_in_bytes=file.size_bytes,
            spec_id=spec.spec_id,
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
        data_file.spec_id = spec.spec_id  # `from_args` ignores it, because it isn't a field of the entry
        return data_file

    targets = locations or [location_of(file.path) for file in files]
    return [to_entry(file, target) for file, target in zip(files, targets, strict=True)]


def _footer(table: Table, path: str) -> pq.FileMetaData:
    if "://" not in path:
        return pq.read_metadata(pa.BufferReader(Footer.from_file(path).content))
    with table.io.new_input(path).open() as file:
        return pq.read_metadata(file)
