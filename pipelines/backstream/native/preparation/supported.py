"""Decide by a whitelist which sources are prepared natively; Spark prepares all others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping

from backstream.definition.model import Definition
from backstream.definition.prepared import column_of_path, list_paths
from backstream.definition.prepared_columns import PREPARED_COLUMNS
from backstream.definition.source_section import Source
from backstream.definition.values import TimeUnit
from backstream.native.preparation.csv_lines import CsvForm
from backstream.native.preparation.folders import FOLDER_KINDS
from backstream.native.preparation.kinds import (
    INTEGERS,
    STRING,
    TIMESTAMP,
    Kind,
    Leaf,
    list_leaves,
    parse_kind,
)
from backstream.native.preparation.task import TextSpec, TimeSpec, UnionSpec
from backstream.native.preparation.text_form import TextForm
from backstream.source.raw_files import TEXT_FORMATS

_KEYS = ("records", "transform", "where", "derive", "event_time_pattern", "arrival_time_pattern")
"""Keys of `[source]` that only Spark understands."""
_SEPARATORS = frozenset(",;|\t:")
"""The separators of CSV whose lines are parsed natively."""
_PATH = re.compile(r"(?!(?:null|true|false)\b)[a-z_]\w*(?:\.[a-z_]\w*)*", re.ASCII | re.IGNORECASE)
"""The form of a time expression that is a column, or a field in one."""
_RESERVED = {*PREPARED_COLUMNS, "prepared_malformed", "prepared_is_kept", "_metadata"}


def reason_against_settings(definition: Definition, source: Source) -> str | None:
    """Return the reason in the settings why Spark prepares all files of a source; None if there is none.

    Args:
        definition: the definition.
        source: its source, with the time of the windows as its event time.
    """
    if definition.backfill.engine == "spark":
        return "backfill.engine is spark"
    if source.format == "parquet" and source.computed_times:
        return f"source.{source.computed_times[0]} is computed from columns"
    if source.format not in TEXT_FORMATS:
        return f"source.format is {source.format}"
    if name := next(
        (name for name, value in source.options.items() if not _is_native_option(source, name, value)), None
    ):
        return f"source.options.{name} is set"
    if definition.filter:
        return "filter.where is set"
    return next((f"source.{key} is set" for key in _KEYS if getattr(source, key)), None)


def _is_native_option(source: Source, name: str, value: str) -> bool:
    """Return whether the native reader understands an option of Spark's reader; of JSON, it understands none."""
    form = CsvForm.from_options({name.lower(): value})
    match name.lower() if source.format == "csv" else "":
        case "header":
            return value.lower() in ("true", "false")
        case "sep" | "delimiter":
            return form.separator in _SEPARATORS
        case "quote":
            return form.quote == '"'
        case "escape":
            return form.escape in ('"', "\\")
    return False


def reason_against_columns(definition: Definition, source: Source, folders: Mapping[str, str]) -> str | None:
    """Return the reason in the columns why Spark prepares all files of a source; None if there is none.

    Args:
        definition: the definition.
        source: its source, with the time of the windows as its event time.
        folders: the types of the columns that the names of folders hold.
    """
    return next(_list_reasons(definition, source, folders), None)


def text_spec(definition: Definition, source: Source, folders: Mapping[str, str]) -> TextSpec:
    """Return how to read the text files of a supported source, and the columns of its prepared files."""
    kinds = _kinds(source, folders)
    leaves = dict(list_leaves({**kinds, **folders}))
    (event, *arrival) = [
        TimeSpec(name, _leaf(path), unit, source.time_zone is not None and leaves[_leaf(path)] == STRING)
        for name, path, unit in _times(source)
    ]
    return TextSpec(
        TextForm.from_options(source.format, source.options),
        kinds,
        event,
        arrival[0] if arrival else None,
        {column_of_path(path): _leaf(path) for path in _list_payload(definition, source, folders)},
        UnionSpec(source.name, _optional_leaf(source.partition), _optional_leaf(source.sequence))
        if source.name
        else None,
        folders,
    )


def _reason_against(path: str, types: Mapping[str, str]) -> str:
    is_known = "`" in path or path in types or path.partition(".")[0] in types
    return "not a plain value" if is_known else "no column of source.columns"


def _list_reasons(definition: Definition, source: Source, folders: Mapping[str, str]) -> Iterator[str]:
    kinds = _kinds(source, folders)
    types = {**source.columns, **folders}
    unknown = (name for name in types if name not in kinds and folders.get(name) not in FOLDER_KINDS)
    yield from (f"column {name} has the type {types[name]}" for name in unknown)
    spellings = Counter(map(str.lower, [*kinds, *folders]))
    if not _RESERVED.isdisjoint(spellings) or max(spellings.values()) > 1 or any("." in name for name in kinds):
        yield "the names of the columns are not unique and plain"
    if source.format == "csv":
        yield from (f"column {name} has fields" for name, kind in kinds.items() if not isinstance(kind, str))
    leaves = dict(list_leaves({**kinds, **folders}))
    for name, path, unit in _times(source):
        kind = leaves.get(_leaf(path)) if _PATH.fullmatch(path) else None
        if kind not in ((STRING, TIMESTAMP) if unit is None else INTEGERS):
            yield f"source.{name} is not a column with a time: {path}"
    paths = _list_payload(definition, source, folders)
    yield from (f"{path} is {_reason_against(path, types)}" for path in paths if _leaf(path) not in leaves)
    names = [column_of_path(path).lower() for path in paths]
    if len({*names}) < len(names) or not _RESERVED.isdisjoint(names):
        yield "the names of prepared columns are not unique and plain"
    if source.name:
        yield from _list_union_reasons(definition, source, leaves)


def _list_union_reasons(definition: Definition, source: Source, leaves: Mapping[Leaf, str]) -> Iterator[str]:
    if definition.watermark.marker:
        yield "watermark.marker is set, and there are several sources"
    for path, types in ((source.partition, {*INTEGERS, STRING}), (source.sequence, {*INTEGERS})):
        if path and leaves.get(_leaf(path)) not in types:
            yield f"{path} is not an integer or a string"


def _kinds(source: Source, folders: Container[str]) -> dict[str, Kind]:
    """Return the declared columns of the records whose types are supported."""
    kinds = {name: parse_kind(text) for name, text in source.columns.items() if name not in folders}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def _times(source: Source) -> Iterator[tuple[str, str, TimeUnit | None]]:
    yield "event_time", source.event_time, source.event_time_unit
    if source.arrival_time is not None:
        yield "arrival_time", source.arrival_time, source.arrival_time_unit


def _list_payload(definition: Definition, source: Source, folders: Mapping[str, str]) -> list[str]:
    """Return the paths of the columns that a result needs, in the order of prepared columns."""
    paths = list_paths(definition)
    if not definition.reads_all_columns:
        return paths
    columns = [*(name for name in source.columns if name not in folders), *folders]
    return [*paths, *(name for name in columns if name not in paths)]


def _leaf(path: str) -> Leaf:
    return tuple(path.split("."))


def _optional_leaf(path: str | None) -> Leaf | None:
    return _leaf(path) if path else None
