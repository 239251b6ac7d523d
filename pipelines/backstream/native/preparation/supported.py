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
from backstream.native.preparation.task import JsonSpec, TimeSpec, UnionSpec

_KEYS = ("options", "records", "transform", "where", "derive", "event_time_pattern", "arrival_time_pattern")
"""Keys of `[source]` that only Spark understands."""
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
    if source.format != "json":
        return f"source.format is {source.format}"
    return next((f"source.{key} is set" for key in _KEYS if getattr(source, key)), None)


def reason_against_columns(definition: Definition, source: Source, folders: Mapping[str, str]) -> str | None:
    """Return the reason in the columns why Spark prepares all files of a source; None if there is none.

    Args:
        definition: the definition.
        source: its source, with the time of the windows as its event time.
        folders: the types of the columns that the names of folders hold.
    """
    return next(_list_reasons(definition, source, folders), None)


def json_spec(definition: Definition, source: Source, folders: Mapping[str, str]) -> JsonSpec:
    """Return how to read the files of a supported source, and the columns of its prepared files."""
    kinds = _kinds(source, folders)
    leaves = dict(list_leaves({**kinds, **folders}))
    (event, *arrival) = [
        TimeSpec(name, _leaf(path), unit, source.time_zone is not None and leaves[_leaf(path)] == STRING)
        for name, path, unit in _times(source)
    ]
    return JsonSpec(
        kinds,
        event,
        arrival[0] if arrival else None,
        {column_of_path(path): _leaf(path) for path in _list_payload(definition, source, folders)},
        UnionSpec(source.name, _optional_leaf(source.partition), _optional_leaf(source.sequence))
        if source.name
        else None,
        folders,
    )


def _list_reasons(definition: Definition, source: Source, folders: Mapping[str, str]) -> Iterator[str]:
    kinds = _kinds(source, folders)
    types = {**source.columns, **folders}
    unknown = (name for name in types if name not in kinds and folders.get(name) not in FOLDER_KINDS)
    yield from (f"column {name} has the type {types[name]}" for name in unknown)
    spellings = Counter(map(str.lower, [*kinds, *folders]))
    if not _RESERVED.isdisjoint(spellings) or max(spellings.values()) > 1 or any("." in name for name in kinds):
        yield "the names of the columns are not unique and plain"
    leaves = dict(list_leaves({**kinds, **folders}))
    for name, path, unit in _times(source):
        kind = leaves.get(_leaf(path)) if _PATH.fullmatch(path) else None
        if kind not in ((STRING, TIMESTAMP) if unit is None else INTEGERS):
            yield f"source.{name} is not a column with a time: {path}"
    paths = _list_payload(definition, source, folders)
    yield from (f"{path} is not a plain value" for path in paths if _leaf(path) not in leaves)
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
