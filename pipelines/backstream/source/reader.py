"""Read columns of an input file without Spark, with the same values as Spark, one row group at a time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.errors import PlanError
from backstream.source.files import read_error_text
from backstream.storage.stores import Stores, explain_reading, is_in_store

READERS = min(4, os.cpu_count() or 1)
"""Number of files that are read and processed at the same time."""


class UnreadableError(PlanError):
    """An input file is damaged."""

    is_retryable = False  # a rewritten file would differ from the planned one

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"cannot read input file {path}: {reason}")
        self.path, self.reason = path, reason

    def explain(self, where: str) -> str:
        """Return the message with the key and the remedy.

        Args:
            where: the file of the definition.
        """
        return (
            f"{self} ({where}, source.path)\n\n"
            'hint: restore the file, move it away, or set source.corrupt_files = "skip"'
        )


def scan_row_groups(path: str, names: Iterable[str]) -> Iterator[pa.Table]:
    """Return columns of each row group; a column that the file lacks is null.

    Raises:
        UnreadableError: when the file cannot be read.
        StorageError: when an object store cannot be read.
    """
    columns = list(names)
    try:
        with explain_reading(path):
            source = Stores.from_environment().parquet_source(path)
            # By default Arrow converts INT96 to nanoseconds, which end in 2262.
            file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=is_in_store(path))
            int96 = _int96_columns(file.schema)
            for number in range(file.num_row_groups):
                present = [name for name in columns if name in file.schema_arrow.names]
                yield _select_columns(file.read_row_group(number, columns=present), columns, int96)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise UnreadableError(path, read_error_text(error)) from None


def _int96_columns(schema: pq.ParquetSchema) -> set[str]:
    columns = [schema.column(number) for number in range(len(schema.names))]
    return {column.path for column in columns if column.physical_type == "INT96"}


def _select_columns(rows: pa.Table, names: list[str], int96: set[str]) -> pa.Table:
    """Return the columns in order; Spark writes instants as INT96."""
    columns = {}
    for name in names:
        column = rows[name] if name in rows.column_names else pa.chunked_array([pa.nulls(rows.num_rows)])
        columns[name] = column.cast(pa.timestamp("us", "UTC")) if name in int96 else column
    return pa.table(columns)
