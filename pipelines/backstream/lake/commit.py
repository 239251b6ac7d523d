"""One commit, one snapshot: what leaves the table and what enters it become true together."""

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
_LONGEST_PAUSE_S = 2.0

_BETWEEN = "another commit came between"

Result = TypeVar("Result")


class _OneAppend(_MergeAppendFiles):
    """PyIceberg's append, which merges manifests once there are many of them (`schemas.py` says how many)."""

    def _refresh_for_retry(self) -> None:
        """As in `_OneSnapshot`."""
        raise CommitFailedException(_BETWEEN)


class _Unchanged(ValidatableTableRequirement):
    """A condition of a commit that Iceberg's own do not state: properties, and the snapshot, are as they were."""

    type: Literal["assert-unchanged"] = "assert-unchanged"
    properties: Mapping[str, str | None]
    snapshot_id: int | None

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override] # as PyIceberg's own do
        """Refuse a commit to another state of the table; the catalog asks just before it commits.

        Raises:
            CommitFailedException: where the state is another.
        """
        if base_metadata is None or self != _unchanged(base_metadata, self.properties):
            raise CommitFailedException(_BETWEEN)


def _unchanged(metadata: TableMetadata, names: Iterable[str]) -> _Unchanged:
    properties = {name: metadata.properties.get(name) for name in names}
    return _Unchanged(properties=properties, snapshot_id=metadata.current_snapshot_id)


class OneTransaction(Transaction):
    """PyIceberg's transaction, which copies the metadata with all snapshots whenever it looks at it."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._applied, self._metadata, self._context = 0, table.metadata, _TableMetadataUpdateContext()

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def require_unchanged(self, names: Iterable[str]) -> None:
        """Have the commit fail if these properties, or the snapshot, changed since the table was loaded."""
        self._requirements += (_unchanged(self._table.metadata, names),)  # type: ignore[operator] # a union of its own

    @property
    def table_metadata(self) -> TableMetadata:
        """The table with what was staged so far; each update is applied once, and nothing is copied for it."""
        for update in self._updates[self._applied :]:
            self._metadata = _apply_table_update(update, self._metadata, self._context)
        self._applied = len(self._updates)
        return self._metadata


class _OneSnapshot(_OverwriteFiles):
    """PyIceberg's overwrite, without what makes it forget our rules (docs/decisions/0002)."""

    def _existing_manifests(self) -> list[ManifestFile]:
        """Manifests that only list files removed long ago say nothing, yet would be carried for ever."""
        kept = super()._existing_manifests()
        return [each for each in kept if each.has_added_files() or each.has_existing_files()]

    def _refresh_for_retry(self) -> None:
        """PyIceberg's own retry, if a table asks for it: it would not look at who came between."""
        raise CommitFailedException(_BETWEEN)


@contextmanager
def retry_attempts(what: str) -> Iterator[None]:
    """Have an error of the disk or of the database carry a note of what could not be done, for `opened`."""
    try:
        yield
    except (OSError, SQLAlchemyError) as error:
        error.add_note(what)
        raise


def with_retries(what: str, attempt: Callable[[], Result]) -> Result:
    """The result of an attempt that reads the table's state anew each time, as often as others get between.

    Raises:
        CommitError: when others got between at every attempt.
    """
    for number in range(ATTEMPTS):
        try:
            with retry_attempts(what):
                return attempt()
        except CommitFailedException:
            longest_s = min(_FIRST_PAUSE_S * 2**number, _LONGEST_PAUSE_S)
            time.sleep(random.uniform(0, longest_s))  # noqa: S311 - jitter, not a secret
    msg = f"could not {what}: other commits came between at all {ATTEMPTS} attempts\n\nhint: try again"
    raise CommitError(msg)


def commit_snapshot(
    table: Table,
    operation: Operation,
    added: Sequence[DataFile],
    removed: Sequence[DataFile],
    properties: dict[str, str],
    tag: str | None = None,
) -> Snapshot:
    """The one snapshot that takes files out of a table and puts others in; its tag is set by the same commit.

    Before it is made, the snapshot is read back: what readers would see is what was to be added and to stay.

    Raises:
        CommitFailedException: when the table is not what it was when it was loaded; nothing was changed.
        CountError: when the snapshot does not add, take away and keep just these files; nothing was changed.
        LedgerError: when the commit succeeded and its snapshot cannot be found.
    """
    kind = _OneAppend if operation is Operation.APPEND else _OneSnapshot
    transaction = OneTransaction(table)
    transaction.require_unchanged((DEFINITION, KEYS))
    with transaction:
        producer = kind(operation, transaction, table.io, snapshot_properties=properties)
        for file in removed:
            producer.delete_data_file(file)
        for file in added:
            producer.append_data_file(file)
        producer.commit()
        _require_whole(table, transaction, producer.snapshot_id, added, removed)
        if tag is not None:
            ManageSnapshots(transaction).create_tag(producer.snapshot_id, tag).commit()
    if (snapshot := table.snapshot_by_id(producer.snapshot_id)) is None:
        msg = f"snapshot {producer.snapshot_id} of table `{table.name()[-1]}` is not there after its commit"
        raise LedgerError(msg)
    return snapshot


def _require_whole(
    table: Table,
    transaction: Transaction,
    snapshot_id: int,
    added: Sequence[DataFile],
    removed: Sequence[DataFile],
) -> None:
    """Check a snapshot that is about to be committed, by its summary and by what its manifests list."""
    metadata = transaction.table_metadata
    snapshot = metadata.snapshot_by_id(snapshot_id)
    if snapshot is None or snapshot.summary is None:
        msg = f"snapshot {snapshot_id} of table `{table.name()[-1]}` is not there before its commit"
        raise CountError(msg)
    wanted, leaving = _rows_by_path(added), _rows_by_path(removed)
    said = {name: int(snapshot.summary.get(name) or 0) for name in _SUMMED}
    counted = dict(
        zip(_SUMMED, (len(wanted), sum(wanted.values()), len(leaving), sum(leaving.values())), strict=True)
    )
    faults = [
        f"the snapshot's summary says {name} = {said[name]:,}, staged were {counted[name]:,}"
        for name in _SUMMED
        if said[name] != counted[name]
    ]
    faults += _listed_faults(table, snapshot, wanted, leaving)
    if len(wanted) != len(added):
        faults.append(f"{len(added) - len(wanted)} of {len(added)} files are listed more than once")
    if faults:
        facts = "".join(f"\n  {fault}" for fault in faults)
        msg = f"the commit to table `{table.name()[-1]}` would not hold what was staged{facts}\n\nhint: try again"
        raise CountError(msg)


_SUMMED = ("added-data-files", "added-records", "deleted-data-files", "deleted-records")


def _listed_faults(
    table: Table, snapshot: Snapshot, wanted: dict[str, int], leaving: dict[str, int]
) -> Iterator[str]:
    """What the manifests that this snapshot adds list otherwise than it was wanted."""
    found: dict[ManifestEntryStatus, dict[str, int]] = {status: {} for status in ManifestEntryStatus}
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
            if entry.snapshot_id in (None, snapshot.snapshot_id):
                found[entry.status][entry.data_file.file_path] = entry.data_file.record_count
    if found[ManifestEntryStatus.ADDED] != wanted:
        yield _difference_text("added", found[ManifestEntryStatus.ADDED], wanted)
    if found[ManifestEntryStatus.DELETED] != leaving:
        yield _difference_text("taken away", found[ManifestEntryStatus.DELETED], leaving)


def _difference_text(what: str, found: dict[str, int], wanted: dict[str, int]) -> str:
    return (
        f"the manifests list {len(found):,} files of {sum(found.values()):,} rows as {what},"
        f" expected {len(wanted):,} of {sum(wanted.values()):,}"
    )


def _rows_by_path(files: Sequence[DataFile]) -> dict[str, int]:
    return {file.file_path: file.record_count for file in files}


def to_data_files(table: Table, files: Sequence[StagedFile], locations: Sequence[str] = ()) -> list[DataFile]:
    """The entries that make checked files part of a table, in their order.

    PyIceberg's own function refuses Parquet columns that are optional where the table requires a value, and
    Spark writes nearly all columns so; the checks have counted the nulls instead.

    Args:
        table: which they become part of.
        files: where they were checked.
        locations: where their copies are; empty: they are taken from where they are.
    """
    schema, spec = table.schema(), table.spec()
    columns, ids = compute_statistics_plan(schema, table.properties), parquet_path_to_id_mapping(schema)

    def entry(file: StagedFile, location: str) -> DataFile:
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=_footer(table, file.path),
            stats_columns=columns,
            parquet_column_mapping=ids,
        )
        made = DataFile.from_args(
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
        made.spec_id = spec.spec_id  # not a field of the entry, so that `from_args` leaves it out
        return made

    places = locations or [location_of(file.path) for file in files]
    return [entry(file, place) for file, place in zip(files, places, strict=True)]


def _footer(table: Table, path: str) -> pq.FileMetaData:
    if "://" not in path:
        return pq.read_metadata(pa.BufferReader(Footer.from_file(path).content))
    with table.io.new_input(path).open() as file:
        return pq.read_metadata(file)
