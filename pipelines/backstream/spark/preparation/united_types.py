"""Give a column one type if files have several types for it, and lose no value in silence."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import reduce
from operator import or_

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backstream.chunks.preparation.settings import MALFORMED
from backstream.definition.source_section import Source
from backstream.source.column_types import int96_columns, quote_column, united_type
from backstream.source.columns import conflicting_types_error
from backstream.source.file_types import load_column_types
from backstream.source.reader import UnreadableError

_MERGED = ("parquet", "iceberg")
"""Formats of which Spark reads files with different columns together."""
_NUMBERS = {"tinyint", "smallint", "int", "bigint", "float", "double", "decimal"}
_EXACT = "decimal(38,18)"
_UNKNOWN_CODECS = {"BROTLI", "LZO"}
"""Compressions of Parquet that Spark lacks."""


def split_by_types(
    source: Source, paths: Sequence[str], is_read: Callable[[str], bool]
) -> list[tuple[list[str], Mapping[str, str | None]]]:
    """Return groups of files that Spark can read together, and the type of each column whose types differ.

    None: no type holds the values of all files, and the definition does not read the column.

    Args:
        source: the source; its `columns` decide before the types of the files.
        paths: the files.
        is_read: whether the definition reads a column.

    Raises:
        PlanError: with a column, two files, and their types, if no type holds the values of both.
        UnreadableError: when a file is damaged.
    """
    types = {path: load_column_types(source.format, path) for path in paths}
    in_nanoseconds = {path: _find_nanoseconds(path) if source.format in _MERGED else () for path in paths}
    united: dict[str, str | None] = {}
    for name in dict.fromkeys(name for own in types.values() for name in own):
        examples = {own[name]: path for path, own in reversed(types.items()) if name in own}
        if len(examples) > 1 or name in source.columns:
            united[name] = source.columns.get(name) or _unite(name, examples, is_needed=is_read(name))
    groups: dict[Hashable, list[str]] = {}
    filled = {path: own for path, own in types.items() if own}
    for path, own in (filled or types).items():
        # Spark merges other columns of Parquet files only.
        kinds = tuple(map(own.get, united)) if source.format in _MERGED else tuple(own.items())
        groups.setdefault((kinds, in_nanoseconds[path]), []).append(path)
    return [(files, united) for files in groups.values()]


def _find_nanoseconds(path: str) -> tuple[str, ...]:
    """Return the columns with times in nanoseconds, which Spark reads as numbers.

    Raises:
        UnreadableError: when Spark cannot read the compression of the file.
    """
    footer = pq.read_metadata(path)
    codecs = {
        footer.row_group(group).column(column).compression
        for group in range(footer.num_row_groups)
        for column in range(footer.num_columns)
    }
    if unknown := codecs & _UNKNOWN_CODECS:
        codec = unknown.pop().lower()
        raise UnreadableError(path, f"Spark cannot read its compression {codec}: write it with zstd or snappy")
    int96 = int96_columns(footer)  # Arrow has them in nanoseconds, and Spark reads them as times
    return tuple(
        field.name
        for field in footer.schema.to_arrow_schema()
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns" and field.name not in int96
    )


def _unite(name: str, examples: Mapping[str, str], *, is_needed: bool) -> str | None:
    """Return the type that holds the values of several types, given with a file of each."""
    (first, path), *others = sorted(examples.items(), key=lambda example: example[1])
    united: str = first
    for kind, other in others:
        wider = united_type(united, kind)
        if wider is None:
            if is_needed:
                raise conflicting_types_error(name, (united, path), (kind, other))
            return None
        united = wider
    return united


def convert_columns(rows: DataFrame, types: Mapping[str, str | None]) -> DataFrame:
    """Return rows with columns of these types; a record with a value that its type cannot hold is malformed."""
    present = {field.name: field.dataType.simpleString() for field in rows.schema}
    own = {name: kind for name, kind in types.items() if name in present and present[name] != kind}
    kept = rows.select(*(quote_column(name) for name in rows.columns if own.get(name, "") is not None))
    casts = {name: kind for name, kind in own.items() if kind is not None}
    if not casts:
        return kept
    columns = {name: F.col(quote_column(name)) for name in kept.columns}
    is_lost = reduce(or_, (_is_lost(columns[name], present[name], kind) for name, kind in casts.items()))
    whole = F.to_json(F.struct(*(column for name, column in columns.items() if name != MALFORMED)))
    marked = columns | {MALFORMED: F.when(is_lost, whole)}
    marked |= {name: columns[name].try_cast(kind) for name, kind in casts.items()}
    return kept.select(*(column.alias(name) for name, column in marked.items()))


def _is_lost(column: Column, kind: str, target: str) -> Column:
    converted = column.try_cast(target)
    is_lost = column.isNotNull() & converted.isNull()
    if target == "string":
        return is_lost
    # Equal numbers can have several texts, such as 1.50 and 1.5.
    own = _EXACT if kind == "string" and target.partition("(")[0] in _NUMBERS else kind
    before, after = column.try_cast(own), converted.try_cast(own)
    return is_lost | (before.isNotNull() & ~after.eqNullSafe(before))
