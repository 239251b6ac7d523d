"""Many small files, each with the rows of one chunk and day: made from a few that Spark or DuckDB wrote, and read.

For each file that it writes, Spark starts three processes that set permissions, and keeps a checksum beside it:
some 20 ms, which for years of few records is most of all that a run takes. Arrow takes less than one.
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

from backstream.native.sql import FILE_NUMBER, quote_name

SMALL_BYTES = 1_000_000
"""Files up to this size are read at once."""


def load_columns(path: Path, names: Sequence[str]) -> pa.Table:
    """Return some columns of a Parquet file.

    A small one is read at once, by this thread: to ask for its parts, from several threads, takes longer.
    """
    if path.stat().st_size > SMALL_BYTES:
        with pq.ParquetFile(path) as file:
            return file.read(names)
    return pq.ParquetFile(pa.BufferReader(path.read_bytes())).read(names, use_threads=False)


def columns_by_group(groups: Sequence[Sequence[str]], names: Sequence[str]) -> list[pa.Table] | None:
    """Return some columns of groups of Parquet files with the same columns, a table for each group.

    DuckDB opens thousands of small files in a third of the time that Arrow takes. None: it does not read them, and
    whoever reads them one by one learns why.
    """
    import duckdb  # not when a task starts

    paths = [path for group in groups for path in group]
    wanted = ", ".join(map(quote_name, names))
    try:
        with duckdb.connect(config={"autoinstall_known_extensions": False}) as opened:
            opened.execute("SET timezone = 'UTC'")
            query = f"SELECT {wanted}, {FILE_NUMBER} FROM read_parquet($paths, hive_partitioning = false)"
            rows = opened.sql(query, params={"paths": paths}).to_arrow_table()
    except duckdb.Error:
        return None
    numbers = rows[FILE_NUMBER].to_numpy()
    ends = np.searchsorted(numbers, np.cumsum([0, *map(len, groups)]))
    if (numbers[1:] < numbers[:-1]).any():
        return None
    return [rows.select(names).slice(first, end - first) for first, end in pairwise(ends.tolist())]


def split_files(folder: Path, names: Sequence[str]) -> None:
    """Split each Parquet file of a folder; see `split_file`.

    Args:
        folder: where the files are.
        names: the columns, by which the rows of each file are sorted.
    """
    for path in sorted(folder.glob("*.parquet")):
        split_file(path, names)


def split_file(path: Path, names: Sequence[str]) -> list[Path]:
    """Split a Parquet file into one for each value of some columns, without these columns, and return them.

    The new files lie as Spark's `partitionBy` has them, in `name=value/`, and keep the name, which tells the task.

    Args:
        path: the file.
        names: the columns, by which its rows are sorted.
    """
    with pq.ParquetFile(path) as file:
        targets = list(_split(file, path, names))
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    path.unlink()
    return targets


def _split(file: pq.ParquetFile, path: Path, names: Sequence[str]) -> Iterator[Path]:
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
            for place, first, end in _runs(batch, names):
                folder, part = f"{path.parent}/{place}", rows.slice(first, end - first)
                if writer and folder == last:
                    writer.write_batch(part)
                    continue
                stack.close()
                os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - of thousands; a `Path` takes as long as that
                target, last, writer = f"{folder}/{path.name}", folder, None
                yield Path(target)
                if end < rows.num_rows:
                    _write_whole(target, part, write)
                else:
                    writer = stack.enter_context(write(target))
                    writer.write_batch(part)


def _write_whole(target: str, rows: pa.RecordBatch, write: Callable[[Any], pq.ParquetWriter]) -> None:
    """Write a file that has no other rows, by way of memory: else each page of each column is a call."""
    sink = pa.BufferOutputStream()
    with write(sink) as writer:
        writer.write_batch(rows)
    with open(target, "wb") as file:  # noqa: PTH123 - of thousands; a `Path` takes as long as that
        file.write(sink.getvalue())


def _runs(rows: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Where rows that belong into the same folder, and follow one another, begin and end, with its path."""
    columns = [rows[name] for name in names]
    starts = sorted({0, *(place for column in columns for place in _changes(column))}) if rows.num_rows else []
    values = zip(*(column.take(pa.array(starts, pa.int64())).to_pylist() for column in columns), strict=True)
    for (first, end), of_run in zip(pairwise([*starts, rows.num_rows]), values, strict=True):
        yield "/".join(f"{name}={value}" for name, value in zip(names, of_run, strict=True)), first, end


def _changes(values: pa.Array) -> list[int]:
    """Where another value begins; found without NumPy, for which Arrow would import pandas in each task."""
    is_other = pc.not_equal(values.slice(1), values.slice(0, max(0, len(values) - 1)))
    places: list[int] = pc.add(pc.indices_nonzero(is_other), 1).to_pylist()
    return places
