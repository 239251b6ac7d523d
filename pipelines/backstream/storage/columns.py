"""Read or copy some columns of a Parquet file, so that the others are not read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backstream.storage.stores import NO_STORES, Stores, explain_reading, is_in_store

if TYPE_CHECKING:
    import pyarrow as pa

SMALL_BYTES = 1_000_000
"""The size up to which a file is read into memory as a whole."""
_WHOLE_FILE_SHARE = 0.7
"""Share of the bytes of a Parquet file from which on copying it is faster than selecting its columns."""


def copy_columns(stream: Any, columns: Sequence[str], draft: Path) -> bool:
    """Write columns of a Parquet file, one row group at a time.

    Returns:
        Whether it did; not if the columns are most of the file, or it is damaged, which planning reports.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(stream, pre_buffer=True, coerce_int96_timestamp_unit="us")
    except pa.ArrowException:
        return False
    lower_case = {name.lower() for name in columns}  # readers reject names that differ only in case
    wanted = [name for name in file.schema_arrow.names if name.lower() in lower_case]
    if not wanted or _share_of_bytes(file.metadata, wanted) >= _WHOLE_FILE_SHARE:
        return False
    groups = (file.read_row_group(number, columns=wanted) for number in range(file.num_row_groups))
    write_groups(draft, pa.schema([file.schema_arrow.field(name) for name in wanted]), groups)
    return True


def write_groups(draft: Path, schema: Any, groups: Any) -> None:
    """Write each table as one row group of a Parquet file."""
    import pyarrow.parquet as pq

    with pq.ParquetWriter(draft, schema) as writer:
        for rows in groups:
            writer.write_table(rows, row_group_size=max(1, rows.num_rows))


def _share_of_bytes(metadata: Any, columns: Sequence[str]) -> float:
    roots, wanted, total = set(columns), 0, 0
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            total += column.total_compressed_size
            wanted += column.total_compressed_size * (column.path_in_schema.partition(".")[0] in roots)
    return wanted / total if total else 1.0


def load_columns(location: str, names: Sequence[str] | None, stores: Stores = NO_STORES) -> pa.Table:
    """Return some columns of a Parquet file; all columns if `names` is None.

    A small file is read with one call in this thread, which is faster than reads of its parts in several threads.

    Raises:
        StorageError: when a store cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if is_in_store(location):
        with explain_reading(location), stores.open_file(location) as stream:
            if stream.size() > SMALL_BYTES:
                return pq.ParquetFile(stream, pre_buffer=True).read(names)
            content = stream.read()
    elif (path := Path(location)).stat().st_size > SMALL_BYTES:
        with pq.ParquetFile(path) as file:
            return file.read(names)
    else:
        content = path.read_bytes()
    return pq.ParquetFile(pa.BufferReader(content)).read(names, use_threads=False)
