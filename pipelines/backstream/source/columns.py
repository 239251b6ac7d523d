"""Resolve the source columns that a definition names: each gets one type that holds its values in all files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from backstream.definition.columns import require_columns, source_columns
from backstream.definition.model import Definition
from backstream.errors import ContractError, PlanError
from backstream.runs.input_files import FileList
from backstream.source.column_types import (
    NANOSECONDS,
    common_type,
    reason_not_a_time,
    spark_type_of_arrow,
    type_name,
    united_type,
)
from backstream.source.files import SchemaGroup

_COLUMN = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class SourceColumns:
    """The Spark SQL type of each column of a definition, and by column the files that lack it."""

    types: Mapping[str, str]
    absent: Mapping[str, FileList]


def resolve_columns(shapes: Iterable[SchemaGroup], definition: Definition, where: str) -> SourceColumns:
    """Return the columns that a definition names, over all files; other columns may differ between files.

    Raises:
        SpecError: when no file has a column.
        PlanError: when no type holds the values of a column in all files, or Spark cannot read it.
        ContractError: when a time column does not hold instants.
    """
    # The types of a file without rows are often arbitrary. They only count if no other file has the column.
    ordered = sorted(shapes, key=lambda shape: not shape.has_rows)
    type_names = {field.name: type_name(field.type) for shape in ordered for field in shape.schema}
    require_columns(definition, type_names, where)
    types, absent = {}, {}
    for name in source_columns(definition, type_names):
        having = [shape for shape in ordered if name in shape.schema.names]
        having_rows = [shape for shape in having if shape.has_rows]
        types[name] = _common_type_of_files(name, having_rows or having)
        for shape in ordered:
            _require_unambiguous_name(name, shape)
        lacking = [
            path for shape in ordered if shape.has_rows and name not in shape.schema.names for path in shape.paths
        ]
        if lacking:
            absent[name] = FileList.from_paths(lacking)
    _require_instants(definition, types, where)
    return SourceColumns(types, absent)


def _common_type_of_files(name: str, shapes: Sequence[SchemaGroup]) -> str:
    widest = shapes[0]
    widest_type = ""
    for shape in shapes:
        file_type = _readable_type(name, shape.schema.field(name).type, shape.paths[0])
        merged = common_type(widest_type, file_type) if widest_type else file_type
        if merged is None:
            raise conflicting_types_error(name, (widest_type, widest.paths[0]), (file_type, shape.paths[0]))
        if merged != widest_type:
            widest_type, widest = merged, shape
    return widest_type


def _readable_type(name: str, kind: pa.DataType, path: str) -> str:
    if type_name(kind) == NANOSECONDS:
        msg = (
            f"column {name!r} is a {NANOSECONDS}, which Spark reads as a number only ({path})\n\n"
            "hint: write microseconds; in pyarrow, use coerce_timestamps='us'"
        )
        raise PlanError(msg)
    spark_type = spark_type_of_arrow(kind)
    if spark_type is None:
        msg = f"column {name!r} is of a type that Spark cannot read: {kind} ({path})"
        raise PlanError(msg)
    return spark_type


def conflicting_types_error(name: str, first: tuple[str, str], second: tuple[str, str]) -> PlanError:
    """Return the error for a column with two types, each with a file, and a hint."""
    facts = f"\n  {first[0]} in {first[1]}\n  {second[0]} in {second[1]}"
    hint = f'declare its type, e.g., columns = {{ "{name}" = "string" }} in [source]'
    if united := united_type(first[0], second[0]):
        hint = f"set source.prepare = true, so that the values of both become {united}"
    return PlanError(
        f"column {name!r} has two types in the files, and no type holds the values of both{facts}\n\nhint: {hint}"
    )


def _require_unambiguous_name(name: str, shape: SchemaGroup) -> None:
    """Check that no other column differs only in case, since Spark does not distinguish them."""
    variants = [other for other in shape.schema.names if other != name and other.lower() == name.lower()]
    if variants:
        msg = (
            f"column {name!r} is also written {variants[0]!r}; Spark does not distinguish them ({shape.paths[0]})"
        )
        raise PlanError(msg)


def _require_instants(definition: Definition, types: Mapping[str, str], where: str) -> None:
    """Check the time columns that are plain names; only Spark can determine the type of other expressions."""
    source = definition.timed_source
    for key, expression in (
        ("source.event_time", source.event_time),
        ("source.arrival_time", source.arrival_time),
    ):
        column = (expression or "").strip()
        if (
            _COLUMN.fullmatch(column)
            and column in types
            and (reason := reason_not_a_time(key, column, types[column], where))
        ):
            raise ContractError(reason)
