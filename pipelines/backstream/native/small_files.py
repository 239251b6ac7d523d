"""Many small files, each with the rows of one chunk and day: made from a few that Spark or DuckDB wrote, and read.

For each file that it writes, Spark starts three processes that set permissions, and keeps a checksum beside it:
some 20 ms, which for years of few records is most of all that a run takes. Arrow takes less than one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

_SMALL_BYTES = 1_000_000


def columns_of(path: Path, names: Sequence[str]) -> pa.Table:
    """Return some columns of a Parquet file.

    A small one is read at once, by this thread: to ask for its parts, from several threads, takes longer.
    """
    if path.stat().st_size > _SMALL_BYTES:
        with pq.ParquetFile(path) as file:
            return file.read(names)
    return pq.ParquetFile(pa.BufferReader(path.read_bytes())).read(names, use_threads=False)


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
    with ExitStack() as stack:
        last: Path | None = None
        for batch in file.iter_batches():
            for place, rows in _runs(batch, names):
                target = path.parent / place / path.name
                if target != last:
                    stack.close()
                    target.parent.mkdir(parents=True, exist_ok=True)
                    writer = stack.enter_context(_writer(target, schema, kept, codec))
                    last = target
                    yield target
                writer.write_batch(rows.select(kept))


def _writer(target: Path, schema: pa.Schema, kept: Sequence[str], codec: str) -> pq.ParquetWriter:
    """One that writes columns as Spark does, field ids among them."""
    fields = pa.schema([schema.field(name) for name in kept])
    return pq.ParquetWriter(target, fields, compression=codec, store_schema=False, store_decimal_as_integer=True)


def _runs(rows: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[Path, pa.RecordBatch]]:
    """Rows that follow one another and belong into the same folder, with its path."""
    columns = [rows[name] for name in names]
    changes = [_changes(column.to_numpy(zero_copy_only=False)) for column in columns]
    bounds = [0, *np.unique(np.concatenate(changes)).tolist(), rows.num_rows]
    for first, end in pairwise(bounds):
        if first < end:
            place = (f"{name}={column[first].as_py()}" for name, column in zip(names, columns, strict=True))
            yield Path(*place), rows.slice(first, end - first)


def _changes(values: NDArray[Any]) -> NDArray[np.intp]:
    """Where another value begins."""
    return np.flatnonzero(values[1:] != values[:-1]) + 1
