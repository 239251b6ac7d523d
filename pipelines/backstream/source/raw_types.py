"""Find the types of the columns of raw files without Spark, as far as they are known before the files are read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from backstream.definition.columns import column_error, list_missing_columns, list_unknown_columns
from backstream.definition.model import Definition
from backstream.definition.prepared import column_of_path, list_paths
from backstream.definition.result_types import ResultTypes, field_type, spark_type
from backstream.definition.source_section import Source
from backstream.source.column_types import reason_not_prepared_time
from backstream.source.file_types import load_column_types
from backstream.source.raw_files import TEXT_FORMATS
from backstream.source.reader import UnreadableError

_UNKNOWN = ""
"""A type that only Spark knows."""
_METADATA = "_metadata"
"""Spark's own column, with the path of the file."""
_SYNONYMS = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "decimal": "decimal(10,0)",
    "timestamp_ltz": "timestamp",
}
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
    return {**folders, **own, **{name: _name_of(kind) for name, kind in source.columns.items()}}


def _name_of(kind: str) -> str:
    """Return the name that Spark has for a declared type in a schema, e.g., `bigint`; nested types as they are."""
    plain = re.sub(r"^(dec|numeric)\b", "decimal", kind.lower().replace(" ", ""))
    return kind if "<" in kind else _SYNONYMS.get(plain, plain)


def _folder_columns(path: str) -> Iterator[str]:
    for part in Path(path).parts[:-1]:
        name, is_column, _ = part.partition("=")
        if is_column and name:
            yield name


def require_columns_of_files(definition: Definition, paths: Iterable[str], place: str) -> None:
    """Check that raw files together have the columns and fields that a definition needs; only few are opened.

    A damaged file is left to the preparation, which skips or names it.

    Raises:
        SpecError: with each column that is missing, or each time that cannot be one.
    """
    raw, problems = dict[str, str](), list[str]()
    for path in paths:
        with suppress(UnreadableError):
            types = load_raw_types(definition.source, path)
            if types.keys() - raw.keys():
                raw = types | raw
                problems = _list_problems(definition, raw)
        if raw and not problems:
            return
    if problems:
        raise column_error(problems, raw, place)


def require_raw_columns(definition: Definition, raw: Mapping[str, str], place: str) -> None:
    """Check that files have the columns and fields that a definition needs, and that its times can be times.

    Args:
        definition: the definition.
        raw: the Spark SQL types of the columns of the files.
        place: the file of the definition.

    Raises:
        SpecError: with each column that is missing, or each time that cannot be one.
    """
    if problems := _list_problems(definition, raw):
        raise column_error(problems, raw, place)


def _list_problems(definition: Definition, raw: Mapping[str, str]) -> list[str]:
    known = {**dict.fromkeys(definition.source.derive, _UNKNOWN), **raw}
    has = partial(_has_path, types=known)
    problems = list_missing_columns(definition, has)
    for name, call in definition.aggregates.items():
        problems += list_unknown_columns(f"aggregates.{name}", call, has)
    return [*problems, *_list_problems_of_records(definition, raw)]


def _list_problems_of_records(definition: Definition, raw: Mapping[str, str]) -> Iterator[str]:
    """Yield the problems of the SQL of a source, whose columns Spark finds by any spelling."""
    source, types = definition.source, {name.lower(): kind.lower() for name, kind in raw.items()}

    def has(path: str) -> bool:
        return _has_path(path.lower(), types)

    for name, text in source.derive.items():
        yield from list_unknown_columns(f"source.derive.{name}", text, has)
        types[name] = _type_of(text, types)
    conditions = {"source": source.where or "true", "filter": definition.condition or "true"}
    for key, text in conditions.items():
        unknown, kind = list_unknown_columns(f"{key}.where", text, has), _type_of(text, types)
        yield from unknown
        if not unknown and kind not in ("boolean", _UNKNOWN):
            yield f"{key}.where must be true or false, got {kind} from {text!r}"
    is_arrival_only = definition.timed_source is not source
    for name in ("event_time", "arrival_time")[is_arrival_only:]:
        key, text = f"source.{name}", getattr(source, name) or "null"
        unknown, kind = list_unknown_columns(key, text, has), _type_of(text, types)
        yield from unknown
        if not unknown and kind not in ("void", _UNKNOWN):
            unit = getattr(source, f"{name}_unit")
            problem = reason_not_prepared_time(key, text, kind, unit=unit, zone=source.time_zone)
            yield from [problem] if problem else []


def _type_of(text: str, types: Mapping[str, str]) -> str:
    """Return the type of an expression, given those of columns in lower case."""
    known = {name: kind for name, kind in types.items() if kind != _UNKNOWN}
    try:
        return ResultTypes(known).of(sqlglot.parse_one(text.lower(), dialect="spark")) or _UNKNOWN
    except SqlglotError:
        return _UNKNOWN


def _has_path(path: str, types: Mapping[str, str]) -> bool:
    """Return whether files have a column, and the fields behind it; only structs have no other fields."""
    name, *fields = path.split(".")
    if path in types or name not in types:
        return path in types or name == _METADATA
    kind: str | None = types[name]
    for field in fields:
        if not kind or not kind.lower().startswith("struct<"):
            break
        kind = field_type(kind, field)
    return kind is not None


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
