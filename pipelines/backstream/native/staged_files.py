"""Describe the Parquet files that a job stages, and add the field ids that Spark leaves out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backstream.runs.manifest import StagedFile
from backstream.runs.table_schemas import PANES, RECORD_COUNT, SKIPPED, WINDOWS, WITHHELD, pane_count_column
from backstream.storage.columns import SMALL_BYTES, load_columns
from backstream.storage.parquet_footer import Footer

_COUNTED = {
    WINDOWS: RECORD_COUNT,
    WITHHELD: RECORD_COUNT,
    PANES: pane_count_column("final"),
    SKIPPED: pane_count_column("final"),
}
"""The column of a table with the number of records of a row."""
_FIELD_ID = b"PARQUET:field_id"


def describe_staged_file(path: Path, suffix: str) -> StagedFile:
    """Return the description of a file of a table, from its footer and its counts of records.

    Raises:
        OSError: when it cannot be read.
        ValueError: when it is no Parquet file.
    """
    counted = _COUNTED.get(suffix)
    with open(path, "rb") as opened:  # noqa: PTH123 - for thousands of files `Path` is too slow
        content = opened.read(SMALL_BYTES + 1)
    if len(content) <= SMALL_BYTES:  # the footer is most of a small file, so it is read once
        footer, file = Footer.from_content(content), pq.ParquetFile(pa.BufferReader(content))
        rows = file.metadata.num_rows
        values = file.read([counted], use_threads=False) if counted and rows else None
    else:
        footer = Footer.from_file(path)
        rows = pq.read_metadata(pa.BufferReader(footer.content)).num_rows
        values = load_columns(str(path), [counted]) if counted and rows else None
    records = pc.sum(values[counted]).as_py() or 0 if values else 0
    return StagedFile(str(path), footer.size_bytes, rows, records, footer.digest)


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
