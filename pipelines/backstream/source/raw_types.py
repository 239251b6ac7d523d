"""Find the types of the columns of raw files without Spark, as far as they are known before the files are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from sqlglot import exp

from backstream.definition.model import Definition
from backstream.definition.prepared import column_of_path, list_paths
from backstream.definition.result_types import spark_type
from backstream.definition.source_section import Source
from backstream.source.file_types import load_column_types
from backstream.source.raw_files import TEXT_FORMATS

_FOLDER_COLUMN = "string"
"""Assumed type of a column in the names of folders; Spark derives it from the values."""


def load_raw_types(source: Source, path: str) -> dict[str, str]:
    """Return the Spark SQL types of the columns of a raw file: declared ones, and those in the file.

    A file of Parquet or ORC without records has no types.

    Args:
        source: the source with the format of the file.
        path: the file.

    Raises:
        UnreadableError: when the file is damaged.
    """
    folders = dict.fromkeys(_folder_columns(path), _FOLDER_COLUMN)
    own = {} if source.format in TEXT_FORMATS else load_column_types(source.format, path)
    return {**folders, **own, **source.columns}


def _folder_columns(path: str) -> Iterator[str]:
    for part in Path(path).parts[:-1]:
        name, is_column, _ = part.partition("=")
        if is_column and name:
            yield name


def list_missing_paths(definition: Definition, raw: Mapping[str, str]) -> list[str]:
    """Return the columns, or fields of columns, that a definition needs and the files do not have."""
    known = {*raw, *definition.source.derive}
    return [path for path in list_paths(definition) if path not in known and _find_type(path, raw) is None]


def plain_types(definition: Definition, raw: Mapping[str, str]) -> dict[str, str] | None:
    """Return the types of the prepared columns of a definition; None if only Spark knows one of them."""
    types = {column_of_path(path): _find_type(path, raw) for path in list_paths(definition)}
    known = {name: kind for name, kind in types.items() if kind is not None}
    is_derived = any(column_of_path(name) in types for name in definition.source.derive)
    return None if is_derived or len(known) < len(types) else known


def _find_type(path: str, raw: Mapping[str, str]) -> str | None:
    """Return the type of a column or of a field with a dotted path; None if there is none."""
    if path in raw:
        return raw[path]
    name, _, rest = path.partition(".")
    kind = exp.DataType.build(raw[name], dialect="spark") if name in raw else None
    for part in rest.split(".") if kind is not None else ():
        fields = {each.name: each.args.get("kind") for each in (kind.expressions if kind is not None else ())}
        kind = fields.get(part)
    return None if kind is None else spark_type(kind)
