"""Decide from the footer of a Parquet file whether both engines can read it in place."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.definition.source_section import Source
from backstream.source.column_types import common_type, united_type
from backstream.source.file_types import load_column_types
from backstream.source.reader import UnreadableError

_MAX_FOOTERS = 50
"""Files whose types are compared before a run. Planning compares the types of all files."""


def have_types_to_unite(paths: Sequence[str], columns: Container[str]) -> bool:
    """Return whether a column has several types in Parquet files, and a preparation can give it one.

    Args:
        paths: the files, of which some are opened. Damaged files are left to planning.
        columns: the columns that a definition reads.
    """
    united: dict[str, str] = {}
    step = -(-len(paths) // _MAX_FOOTERS)
    for path in paths[::step]:
        try:
            types = load_column_types("parquet", path)
        except (UnreadableError, OSError):
            continue
        for name, kind in types.items():
            first = united.setdefault(name, kind)
            common = common_type(first, kind)
            if name in columns and common is None and united_type(first, kind):
                return True
            united[name] = common or first
    return False


def is_readable_in_place(path: str, source: Source, columns: Iterable[str], stream: Any = None) -> bool:
    """Return whether the engines can read a file where it is.

    They cannot if a time is stored as INT96 or in nanoseconds, or if a column is only in the path of the file. A
    file that cannot be read at all is left to planning, which reports it.

    Args:
        path: the file.
        source: its source.
        columns: the columns that a result needs.
        stream: the open file, if it is not on a disk.
    """
    try:
        footer = pq.read_metadata(path if stream is None else stream)
        schema = footer.schema.to_arrow_schema()
    except (pa.ArrowException, OSError):
        return True
    types = {
        footer.schema.column(number).path: footer.schema.column(number) for number in range(footer.num_columns)
    }
    for expression in (source.event_time, source.arrival_time):
        if expression is None or expression not in types:
            continue
        kind = schema.field(expression).type
        if types[expression].physical_type == "INT96" or (pa.types.is_timestamp(kind) and kind.unit == "ns"):
            return False
    in_path = {name for part in Path(path).parts for name in re.findall(r"^([^=]+)=", part)}
    return in_path.isdisjoint(set(columns) - set(schema.names))
