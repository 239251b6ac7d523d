"""Add the field ids of list elements to Parquet files, since Spark writes only those of columns."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_FIELD_ID = b"PARQUET:field_id"


def add_element_ids(path: str, ids: Mapping[str, int]) -> None:
    """Write a Parquet file again, with a field id for the elements of some list columns.

    Args:
        path: the file, which is replaced by an atomic rename.
        ids: the field id by column.
    """
    draft, file_path = f"{path}.draft", Path(path)
    with pq.ParquetFile(path) as file:
        schema = _with_ids(file.schema_arrow.remove_metadata(), ids)
        codec = file.metadata.row_group(0).column(0).compression if file.metadata.num_row_groups else "zstd"
        with pq.ParquetWriter(draft, schema, compression=codec, store_schema=False) as writer:
            for batch in file.iter_batches():
                writer.write_batch(batch.cast(schema))
    file_path.with_name(f".{file_path.name}.crc").unlink(missing_ok=True)
    os.replace(draft, path)  # noqa: PTH105 - a plain rename


def _with_ids(schema: pa.Schema, ids: Mapping[str, int]) -> pa.Schema:
    return pa.schema([_with_id(field, ids[field.name]) if field.name in ids else field for field in schema])


def _with_id(field: pa.Field, element_id: int) -> pa.Field:
    element = field.type.value_field.with_metadata({_FIELD_ID: str(element_id)})
    return field.with_type(pa.list_(element))
