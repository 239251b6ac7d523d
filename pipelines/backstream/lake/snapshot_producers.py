"""Produce snapshots with PyIceberg's private classes; no other module may use private names of PyIceberg.

`tests/lake/test_pyiceberg_contract.py` guards what these classes rely on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self

import pyarrow as pa
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    ValidatableTableRequirement,
    _apply_table_update,
    _TableMetadataUpdateContext,
)
from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles

_MAIN = "main"


class _Unchanged(ValidatableTableRequirement):
    """A commit requirement that the specification lacks: unchanged table properties.

    Catalogs whose requirements PyIceberg checks itself (all but REST) accept it.
    """

    type: Literal["assert-unchanged"] = "assert-unchanged"
    properties: Mapping[str, str | None]

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override] # as PyIceberg's own do
        """Refuse a commit to a changed table; the catalog validates just before it commits.

        Raises:
            CommitFailedException: if the table has changed.
        """
        if base_metadata is None or self != _require_properties(base_metadata, self.properties):
            msg = "another commit was made in the meantime"
            raise CommitFailedException(msg)


def _require_properties(metadata: TableMetadata, names: Iterable[str]) -> _Unchanged:
    return _Unchanged(properties={name: metadata.properties.get(name) for name in names})


class OneTransaction(Transaction):
    """PyIceberg's transaction without copies of the metadata, without retries, and without a cleanup of manifests.

    PyIceberg copies the metadata, with all snapshots, whenever it reads it. Its retry doesn't check for
    conflicting runs. Its cleanup after a rejected commit would damage the table if the commit had been applied: a
    proxy may send a request twice, and the answer is that of the second one. `commit_snapshot` looks first.
    """

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._applied, self._metadata, self._context = 0, table.metadata, _TableMetadataUpdateContext()

    def __enter__(self) -> Self:
        """Begin the transaction."""
        return self

    def require_current_snapshot(self, properties: Iterable[str] = ()) -> None:
        """Make the commit fail if the current snapshot changed since the table was loaded.

        So do changes of the named properties, except in a REST catalog, which has no such requirement.
        """
        metadata = self._table.metadata
        current = {"ref": _MAIN, "snapshot-id": metadata.current_snapshot_id}
        self._requirements += (AssertRefSnapshotId.model_validate(current),)
        if isinstance(self._table.catalog, MetastoreCatalog):
            self._requirements += (_require_properties(metadata, properties),)  # type: ignore[operator] # a union of its own

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata with all updates so far; each update is applied once, without a copy."""
        for update in self._updates[self._applied :]:
            self._metadata = _apply_table_update(update, self._metadata, self._context)
        self._applied = len(self._updates)
        return self._metadata

    def _register_snapshot_producer(self, producer: Any) -> None:
        """Leave the producer out of PyIceberg's retries and cleanups."""


class _SingleAppend(_MergeAppendFiles):
    """PyIceberg's append, which merges manifests when there are many (`tables.py` sets how many)."""


class _SingleOverwrite(_OverwriteFiles):
    """PyIceberg's overwrite, without manifests that list only deleted files."""

    def _existing_manifests(self) -> list[ManifestFile]:
        manifests = super()._existing_manifests()
        return [manifest for manifest in manifests if manifest.has_added_files() or manifest.has_existing_files()]


SnapshotProducer = _SingleAppend | _SingleOverwrite


def stage_snapshot(
    transaction: OneTransaction,
    table: Table,
    operation: Operation,
    added: Sequence[DataFile],
    removed: Sequence[DataFile],
    properties: dict[str, str],
) -> SnapshotProducer:
    """Write the manifests of one snapshot, add it to a transaction, and return its producer."""
    kind = _SingleAppend if operation is Operation.APPEND else _SingleOverwrite
    producer = kind(operation, transaction, table.io, snapshot_properties=properties)
    for file in removed:
        producer.delete_data_file(file)
    for file in added:
        producer.append_data_file(file)
    producer.commit()
    return producer


def remove_manifests(producer: SnapshotProducer) -> None:
    """Remove the manifests of a snapshot that was not committed."""
    producer._clean_all_uncommitted()  # noqa: SLF001 - the purpose of this module


def write_data_files(table: Table, rows: pa.Table) -> list[DataFile]:
    """Write rows as data files in the layout of a table (partitions, sizes, format), without a commit."""
    files = list(_dataframe_to_data_files(table.metadata, rows, table.io))
    for file in files:
        file.spec_id = table.spec().spec_id  # `from_args` ignores it, because it isn't a field of the entry
    return files
