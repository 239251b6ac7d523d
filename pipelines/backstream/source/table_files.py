"""Read one data file of an Iceberg table, with the columns of its current schema."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField

from backstream.source.column_types import common_type, spark_type_of_arrow

# PyIceberg logs for each file with INT96 that it rounds nanoseconds down.
logging.getLogger("pyiceberg.io.pyarrow").addFilter(lambda each: "'ns' timestamp precision" not in str(each.msg))
_FIELD_ID = b"PARQUET:field_id"
_ROWS_PER_GROUP = 1_000_000


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file with its row-level deletes; `metadata` has no snapshots."""

    scan: FileScanTask
    metadata: TableMetadata
    io: FileIO

    @property
    def schema(self) -> Schema:
        """The current schema of the table."""
        return self.metadata.schema()

    def fields(self, columns: Sequence[str] | None) -> list[NestedField]:
        """Return the fields of the columns that the table has; None: of all columns."""
        return [field for field in self.schema.fields if columns is None or field.name in set(columns)]


def link_table_file(file: TableFile, columns: Sequence[str] | None, target: Path) -> bool:
    """Make a hard link to a data file, and return whether it was possible.

    It is possible if the file is on the same disk, and its columns are those of the table's current schema. The
    content of a data file never changes, and the link keeps it when its snapshot expires.
    """
    path = re.sub("^file:/+", "/", file.scan.file.file_path)
    if not path.startswith("/"):
        return False
    try:
        if not _has_current_columns(file, columns, pq.read_metadata(path)):
            return False
        os.link(path, target)
    except FileExistsError:
        return True
    except (OSError, pa.ArrowException):
        return False
    return True


def _has_current_columns(file: TableFile, columns: Sequence[str] | None, footer: Any) -> bool:
    """Return whether a reader that knows only names reads the same values as PyIceberg by field ids."""
    if file.scan.delete_files or file.scan.file.file_format != FileFormat.PARQUET:
        return False
    schema = footer.schema.to_arrow_schema()
    ids = {column.name: int((column.metadata or {}).get(_FIELD_ID, -1)) for column in schema}
    return all(_is_current(file, field, schema, ids) for field in file.fields(columns))


def _is_current(file: TableFile, field: NestedField, schema: pa.Schema, ids: Mapping[str, int]) -> bool:
    if field.name not in ids:  # readers use null, and so does PyIceberg unless it knows another value
        is_partition = any(
            part.source_id == field.field_id and isinstance(part.transform, IdentityTransform)
            for spec in file.metadata.specs().values()
            for part in spec.fields
        )
        return field.field_id not in ids.values() and field.initial_default is None and not is_partition
    if ids[field.name] != field.field_id or not field.field_type.is_primitive:
        return False
    current = spark_type_of_arrow(schema_to_pyarrow(Schema(field)).field(0).type)
    found = spark_type_of_arrow(schema.field(field.name).type)
    return current is not None and found is not None and common_type(found, current) == current


def copy_table_file(file: TableFile, columns: Sequence[str] | None, draft: Path) -> None:
    """Write the live rows of a data file, with the names and types of the table's current schema.

    Raises:
        OSError: when the file cannot be read; FileNotFoundError when it is missing.
    """
    from backstream.storage.columns import copy_columns, write_groups

    fields = file.fields(columns)
    if not file.scan.delete_files and file.scan.file.file_format == FileFormat.PARQUET:
        with file.io.new_input(file.scan.file.file_path).open(seekable=True) as stream:
            is_current = _has_current_columns(file, columns, pq.read_metadata(stream))
            if is_current and copy_columns(stream, [field.name for field in fields], draft):
                return
    projected = Schema(*fields)
    schema = schema_to_pyarrow(projected, include_field_ids=False)
    scan = ArrowScan(file.metadata, file.io, projected, AlwaysTrue())
    rows = scan.to_table([file.scan]).select(schema.names).cast(schema)
    write_groups(
        draft, schema, (rows.slice(at, _ROWS_PER_GROUP) for at in range(0, rows.num_rows, _ROWS_PER_GROUP))
    )
