"""Columns of an input file, read without Spark: as Spark would read them, a row group at a time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.errors import PlanError
from backstream.source.files import read_error_text

READERS = min(4, os.cpu_count() or 1)
"""Files that are read at the same time, each with what is computed of it."""


class UnreadableError(PlanError):
    """An input file is damaged."""

    is_retryable = False  # it stays so until somebody writes it anew, and then it is another file than was planned


def scan_row_groups(path: Path, names: Iterable[str]) -> Iterator[pa.Table]:
    """Return columns of each row group; one that the file does not have is null.

    Raises:
        UnreadableError: when the file cannot be read.
    """
    wanted = list(names)
    try:
        # By default Arrow makes nanoseconds of INT96, which end in 2262.
        file = pq.ParquetFile(path, coerce_int96_timestamp_unit="us")
        instants = _int96_columns(file.schema)
        for number in range(file.num_row_groups):
            held = [name for name in wanted if name in file.schema_arrow.names]
            yield _completed(file.read_row_group(number, columns=held), wanted, instants)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        msg = f"cannot read input file {path}: {read_error_text(error)}"
        raise UnreadableError(msg) from None


def _int96_columns(schema: pq.ParquetSchema) -> set[str]:
    columns = [schema.column(number) for number in range(len(schema.names))]
    return {column.path for column in columns if column.physical_type == "INT96"}


def _completed(rows: pa.Table, names: list[str], instants: set[str]) -> pa.Table:
    """The columns in their order; what Spark has written as INT96 is an instant."""
    columns = {}
    for name in names:
        column = rows[name] if name in rows.column_names else pa.chunked_array([pa.nulls(rows.num_rows)])
        columns[name] = column.cast(pa.timestamp("us", "UTC")) if name in instants else column
    return pa.table(columns)
