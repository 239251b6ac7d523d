"""Write rows as data files of any partition spec, with PyIceberg's transforms of single values.

PyIceberg computes the transforms of whole columns only with a package in Rust that is not installed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import reduce
from operator import and_

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import write_file
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionFieldValue, PartitionKey
from pyiceberg.table import Table, WriteTask
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType

_PREFIX = "_partition_"


def write_partitioned_files(table: Table, rows: pa.Table) -> list[DataFile]:
    """Write rows as one file per table partition, sorted by the table's sort order, without a commit.

    Args:
        table: the table; its properties select the location and the format of the files.
        rows: the rows, in the schema of the table.
    """
    write_id = uuid.uuid4()
    tasks = (
        WriteTask(write_id, number, table.schema(), part.to_batches(), partition_key=key)
        for number, (key, part) in enumerate(_split_by_partition(table, _sort(table, rows)))
    )
    files = list(write_file(table.io, table.metadata, tasks))
    for file in files:
        file.spec_id = table.spec().spec_id  # `from_args` ignores it, because it isn't a field of the entry
    return files


def _sort(table: Table, rows: pa.Table) -> pa.Table:
    """Sort rows by the fields of the sort order that are columns; a transform of a column is not computed."""
    schema, orders = table.schema(), {"asc": "ascending", "desc": "descending"}
    keys = [
        (schema.find_column_name(field.source_id), orders[str(field.direction.value).lower()])
        for field in table.sort_order().fields
        if isinstance(field.transform, IdentityTransform)
    ]
    return rows.sort_by([key for key in keys if key[0] in rows.column_names]) if keys else rows


def _split_by_partition(table: Table, rows: pa.Table) -> Iterator[tuple[PartitionKey | None, pa.Table]]:
    schema, fields = table.schema(), table.spec().fields
    if not fields:
        yield None, rows
        return
    names, rows = [f"{_PREFIX}{field.name}" for field in fields], rows.combine_chunks()
    values = rows
    for name, field in zip(names, fields, strict=True):
        column = schema.find_column_name(field.source_id)
        source_type = schema.find_field(field.source_id).field_type
        values = values.append_column(name, _transform(rows[column], field, source_type))
    for partition in values.select(names).group_by(names).aggregate([]).to_pylist():
        conditions = [
            pc.field(name).is_null() if value is None else pc.field(name) == value
            for name, value in partition.items()
        ]
        key = [PartitionFieldValue(field, partition[name]) for name, field in zip(names, fields, strict=True)]
        part = values.filter(reduce(and_, conditions)).drop_columns(names)
        yield PartitionKey(key, table.spec(), schema), part


def _transform(column: pa.ChunkedArray, field: PartitionField, source_type: IcebergType) -> pa.Array:
    """Return the partition values of a column; each distinct value is transformed once."""
    encoded = pc.dictionary_encode(_to_physical(column).combine_chunks())
    transform = field.transform.transform(source_type)
    return pa.array([transform(value) for value in encoded.dictionary.to_pylist()]).take(encoded.indices)


def _to_physical(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return timestamps as microseconds and dates as days, which the transforms of PyIceberg take."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    return column.cast(pa.int32()) if pa.types.is_date32(column.type) else column
