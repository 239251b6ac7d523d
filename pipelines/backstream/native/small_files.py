"""Split files of Spark or DuckDB into small ones, each with the rows of one chunk and day, and read them.

For each file, Spark starts three processes that set permissions and writes a checksum, which takes about 20 ms. If
years have few records, this is most of the duration of a run. Arrow takes less than 1 ms per file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backstream.native.record_scans import FILE_NUMBER
from backstream.native.sql import quote_name


def columns_by_group(groups: Sequence[Sequence[str]], names: Sequence[str]) -> list[pa.Table] | None:
    """Return some columns of groups of Parquet files with equal columns, as one table per group.

    DuckDB opens thousands of small files in a third of the time that Arrow takes. The result is None if DuckDB
    cannot read them; reading the files one by one then raises a precise error.
    """
    import duckdb  # not at module level, because tasks import this module

    paths = [path for group in groups for path in group]
    selected = ", ".join(map(quote_name, names))
    try:
        with duckdb.connect(config={"autoinstall_known_extensions": False}) as database:
            database.execute("SET timezone = 'UTC'")
            query = f"SELECT {selected}, {FILE_NUMBER} FROM read_parquet($paths, hive_partitioning = false)"
            rows = database.sql(query, params={"paths": paths}).to_arrow_table()
    except duckdb.Error:
        return None
    numbers = rows[FILE_NUMBER].to_numpy()
    ends = np.searchsorted(numbers, np.cumsum([0, *map(len, groups)]))
    if (numbers[1:] < numbers[:-1]).any():
        return None
    return [rows.select(names).slice(first, end - first) for first, end in pairwise(ends.tolist())]


def split_files(folder: Path, names: Sequence[str]) -> None:
    """Split each Parquet file of a folder, as `split_file` does.

    Args:
        folder: the folder of the files.
        names: the columns by which the rows of each file are sorted.
    """
    for path in sorted(folder.glob("*.parquet")):
        split_file(path, names)


def split_file(path: Path, names: Sequence[str]) -> list[Path]:
    """Split a Parquet file by the values of some columns, and return the new files, which lack these columns.

    The new files are in folders `name=value/`, as with Spark's `partitionBy`, and keep the file name with the task
    number.

    Args:
        path: the file.
        names: the columns by which its rows are sorted.
    """
    with pq.ParquetFile(path) as file:
        targets = list(_split_rows(file, path, names))
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    path.unlink()
    return targets


def _split_rows(file: pq.ParquetFile, path: Path, names: Sequence[str]) -> Iterator[Path]:
    schema = file.schema_arrow.remove_metadata()
    kept = [name for name in schema.names if name not in names]
    if not file.metadata.num_rows:
        return
    codec = file.metadata.row_group(0).column(0).compression
    fields = pa.schema([schema.field(name) for name in kept])
    write = partial(
        pq.ParquetWriter, schema=fields, compression=codec, store_schema=False, store_decimal_as_integer=True
    )
    with ExitStack() as stack:
        last, writer = "", None
        for batch in file.iter_batches():
            rows = batch.select(kept)
            for relative_folder, first, end in _list_folder_runs(batch, names):
                folder, part = f"{path.parent}/{relative_folder}", rows.slice(first, end - first)
                if writer and folder == last:
                    writer.write_batch(part)
                    continue
                stack.close()
                os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - a `Path` doubles the time for thousands of folders
                target, last, writer = f"{folder}/{path.name}", folder, None
                yield Path(target)
                if end < rows.num_rows:
                    _write_at_once(target, part, write)
                else:
                    writer = stack.enter_context(write(target))
                    writer.write_batch(part)


def _write_at_once(target: str, rows: pa.RecordBatch, write: Callable[[Any], pq.ParquetWriter]) -> None:
    """Write a file that has no other rows, by way of memory: else each page of each column is a call."""
    sink = pa.BufferOutputStream()
    with write(sink) as writer:
        writer.write_batch(rows)
    with open(target, "wb") as file:  # noqa: PTH123 - a `Path` doubles the time for thousands of files
        file.write(sink.getvalue())


def _list_folder_runs(rows: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Yield the folder, start, and end of each run of consecutive rows that belong into the same folder."""
    columns = [rows[name] for name in names]
    starts = (
        sorted({0, *(position for column in columns for position in _find_changes(column))})
        if rows.num_rows
        else []
    )
    values = zip(*(column.take(pa.array(starts, pa.int64())).to_pylist() for column in columns), strict=True)
    for (first, end), run_values in zip(pairwise([*starts, rows.num_rows]), values, strict=True):
        yield "/".join(f"{name}={value}" for name, value in zip(names, run_values, strict=True)), first, end


def _find_changes(values: pa.Array) -> list[int]:
    """Return the positions at which the value changes, without NumPy, for which Arrow would import pandas."""
    is_changed = pc.not_equal(values.slice(1), values.slice(0, max(0, len(values) - 1)))
    positions: list[int] = pc.add(pc.indices_nonzero(is_changed), 1).to_pylist()
    return positions
