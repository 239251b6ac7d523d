"""Make Iceberg tables with PyIceberg, and change them as other tools do: compactions and row-level deletes too."""

from __future__ import annotations

import copy
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _FastAppendFiles, _OverwriteFiles
from pyiceberg.typedef import Record
from tests.prepared.events import Event, columns

SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("received", pa.timestamp("us", "UTC")),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("user", pa.string()),
        ("amount", pa.int32()),
    ]
)
CATALOG, NAME = "archive", "sales.orders"


def to_rows(events: Iterable[Event]) -> pa.Table:
    return pa.Table.from_pylist(list(map(columns, events)), SCHEMA)


@dataclass(frozen=True)
class Archive:
    """A catalog on a disk or in a store, with one table of orders."""

    uri: str
    warehouse: str
    properties: dict[str, str]

    @contextmanager
    def catalog(self) -> Iterator[SqlCatalog]:
        """Open the catalog."""
        catalog = SqlCatalog(CATALOG, uri=self.uri, warehouse=self.warehouse, **self.properties)
        try:
            yield catalog
        finally:
            catalog.close()

    def create(self) -> None:
        """Create the table."""
        with self.catalog() as catalog:
            catalog.create_namespace("sales")
            catalog.create_table(NAME, SCHEMA)

    @contextmanager
    def table(self) -> Iterator[Table]:
        """Load the table in its current state."""
        with self.catalog() as catalog:
            yield catalog.load_table(NAME)

    def append(self, events: Sequence[Event]) -> None:
        """Append events as one file."""
        with self.table() as table:
            table.append(to_rows(events))

    def configure(self, setenv: Callable[[str, str], None]) -> None:
        """Configure the catalog as PyIceberg reads it."""
        for name, value in {"uri": self.uri, "warehouse": self.warehouse, **self.properties}.items():
            variable = name.upper().replace(".", "__").replace("-", "_")
            setenv(f"PYICEBERG_CATALOG__{CATALOG.upper()}__{variable}", value)


def on_disk(folder: Path) -> Archive:
    folder.mkdir(parents=True, exist_ok=True)
    archive = Archive(f"sqlite:///{folder}/archive.db", f"file://{folder}/warehouse", {})
    archive.create()
    return archive


class _Replacement(_OverwriteFiles):
    """A commit as compactions make it; PyIceberg has none."""

    def _summary(self, snapshot_properties: dict[str, str] = {}) -> Summary:  # noqa: B006 - as PyIceberg
        counted = super()._summary(snapshot_properties)
        return Summary(operation=Operation.REPLACE, **counted.additional_properties)


def compact(archive: Archive, wanted: Callable[[DataFile], bool] = lambda _: True) -> int:
    """Replace some files by one with the same live rows, and return their number."""
    with archive.table() as table:
        tasks = [task for task in table.scan().plan_files() if wanted(task.file)]
        if not tasks:
            return 0
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        rows = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table(tasks)
        with table.transaction() as transaction:
            commit = _Replacement(Operation.OVERWRITE, transaction, table.io)
            for task in tasks:
                commit.delete_data_file(task.file)
            if rows.num_rows:
                for file in _dataframe_to_data_files(table.metadata, rows, table.io):
                    commit.append_data_file(file)
            commit.commit()
        return len(tasks)


class _DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _RowDelete(_FastAppendFiles):
    """A commit of files that delete rows; PyIceberg reads but does not write them."""

    def new_manifest_writer(self, spec: Any) -> ManifestWriterV2:
        return _DeleteManifest(
            spec, self._transaction.table_metadata.schema(), self.new_manifest_output(), self._snapshot_id, "null"
        )


class _DeleteReplacement(_RowDelete):
    """A commit that replaces all files that delete rows by others, as `rewrite_position_delete_files` does."""

    def _deletes(self) -> Iterator[ManifestEntry]:
        snapshot = self._transaction.table_metadata.current_snapshot()
        for manifest in snapshot.manifests(self._io) if snapshot else ():
            if manifest.content == ManifestContent.DELETES:
                yield from manifest.fetch_manifest_entry(self._io)

    def _existing_manifests(self) -> list[ManifestFile]:
        return [each for each in super()._existing_manifests() if each.content != ManifestContent.DELETES]

    def _deleted_entries(self) -> list[ManifestEntry]:
        return [
            ManifestEntry.from_args(
                status=ManifestEntryStatus.DELETED,
                snapshot_id=self._snapshot_id,
                sequence_number=entry.sequence_number,
                file_sequence_number=entry.file_sequence_number,
                data_file=entry.data_file,
            )
            for entry in self._deletes()
        ]

    def _summary(self, snapshot_properties: dict[str, str] = {}) -> Summary:  # noqa: B006 - as PyIceberg
        return Summary(operation=Operation.REPLACE, **super()._summary(snapshot_properties).additional_properties)


def replace_deletes(archive: Archive) -> int:
    """Replace all files with positions of deleted rows by copies with another name, and return their number."""
    with archive.table() as table:
        tasks = table.scan().plan_files()
        former = {each.file_path: each for task in tasks for each in task.delete_files}
        if not former:
            return 0
        with table.transaction() as transaction:
            commit = _DeleteReplacement(Operation.APPEND, transaction, table.io)
            for path, file in former.items():
                target = f"{path.rpartition('/')[0]}/delete-{uuid.uuid4().hex}.parquet"
                shutil.copy(path.removeprefix("file://"), target.removeprefix("file://"))
                copied = copy.copy(file)
                copied._data = [target if value == path else value for value in file._data]  # noqa: SLF001
                commit.append_data_file(copied)
            commit.commit()
        return len(former)


def append_with_format(archive: Archive, form: FileFormat) -> None:
    """Append a file with another name and format; it does not exist."""
    with archive.table() as table:
        (task, *_) = table.scan().plan_files()
        file = copy.copy(task.file)
        other = {FileFormat.PARQUET: form, file.file_path: f"{file.file_path}.{form.value.lower()}"}
        file._data = [other.get(value, value) if isinstance(value, str) else value for value in file._data]  # noqa: SLF001
        with table.transaction() as transaction:
            commit = _FastAppendFiles(Operation.APPEND, transaction, table.io)
            commit.append_data_file(file)
            commit.commit()


def delete_positions(archive: Archive, path: str, positions: Sequence[int], *, by_value: bool = False) -> None:
    """Delete rows of a data file by their positions; `by_value`: mark the file as one with equality deletes."""
    with archive.table() as table:
        location = f"{table.location()}/data/delete-{uuid.uuid4().hex}.parquet"
        ids = {"file_path": 2147483546, "pos": 2147483545}
        schema = pa.schema(
            [
                pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": str(ids[name])})
                for name, kind in (("file_path", pa.string()), ("pos", pa.int64()))
            ]
        )
        with table.io.new_output(location).create() as file:
            pq.write_table(pa.table([[path] * len(positions), sorted(positions)], schema=schema), file)
        content = DataFileContent.EQUALITY_DELETES if by_value else DataFileContent.POSITION_DELETES
        deletes = DataFile.from_args(
            content=content,
            file_path=location,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=len(positions),
            file_size_in_bytes=len(table.io.new_input(location)),
            equality_ids=[1] if by_value else None,
            key_metadata=None,
            sort_order_id=None,
            split_offsets=None,
            column_sizes={},
            value_counts={},
            null_value_counts={},
            nan_value_counts={},
            lower_bounds={},
            upper_bounds={},
        )
        deletes.spec_id = 0
        with table.transaction() as transaction:
            commit = _RowDelete(Operation.APPEND, transaction, table.io)
            commit.append_data_file(deletes)
            commit.commit()
