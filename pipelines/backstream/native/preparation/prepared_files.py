"""Write prepared files, and join files without any readable record to others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.definition.prepared_columns import EVENT_TIME
from backstream.native.preparation.instants import INSTANT


def write_options(schema: pa.Schema) -> dict[str, Any]:
    """Return the options of Arrow's writer.

    Differences of integers take half of the time of dictionaries, a third less space, and are read twice as fast.
    Without the schema of Arrow, a file has the same columns as one that Spark writes.
    """
    texts = [field.name for field in schema if not pa.types.is_primitive(field.type)]
    numbers = [field.name for field in schema if pa.types.is_integer(field.type) or field.type == INSTANT]
    return {
        "store_schema": False,
        "use_dictionary": texts,
        "compression": {name: "zstd" if name in texts else "snappy" for name in schema.names},
        "column_encoding": dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
    }


def join_unreadable_files(folder: Path, native: Sequence[Path]) -> None:
    """Join prepared files in which no record has a time to the smallest native one, if there is any.

    A footer without times does not show which runs need the file, so each run would read it.
    """
    unreadable = [path for path in sorted(folder.glob("*.parquet")) if _is_unreadable(path)]
    if unreadable and native:
        target = min(native, key=lambda path: (path.stat().st_size, path))
        _join([target, *unreadable], target.with_name(f"joined-{target.name}"))


def _is_unreadable(path: Path) -> bool:
    footer: Any = pq.read_metadata(path)
    position = footer.schema.to_arrow_schema().get_field_index(EVENT_TIME)
    groups = [footer.row_group(number).column(position) for number in range(footer.num_row_groups)]
    return footer.num_rows > 0 and all(
        group.statistics is not None
        and group.statistics.has_null_count
        and group.statistics.null_count == group.num_values
        for group in groups
    )


def _join(paths: Sequence[Path], joined: Path) -> None:
    """Replace files by one with their row groups, and the schema of the first one with nulls allowed."""
    first = pq.read_schema(paths[0]).remove_metadata()
    schema = pa.schema([field.with_nullable(nullable=True) for field in first])
    with pq.ParquetWriter(joined, schema, **write_options(schema)) as writer:
        for path in paths:
            file = pq.ParquetFile(path)
            for number in range(file.num_row_groups):
                rows = file.read_row_group(number)
                writer.write_table(rows.cast(schema), row_group_size=max(1, rows.num_rows))
    for path in paths:
        path.unlink()
