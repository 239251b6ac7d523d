"""The columns of a source that a definition names: one type each that holds them in all files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from backstream.definition.aggregates import require_columns, source_columns
from backstream.definition.model import Definition
from backstream.definition.time_columns import reason_not_a_time
from backstream.errors import ContractError, PlanError
from backstream.runs.input_files import FileList
from backstream.source.column_types import NANOSECONDS, common_type, spark_type_of_arrow, type_name
from backstream.source.files import SchemaGroup

_COLUMN = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class SourceColumns:
    """The Spark SQL type of each column that a definition names, and the files that lack some of them."""

    types: Mapping[str, str]
    absent: Mapping[str, FileList]


def resolve_columns(shapes: Iterable[SchemaGroup], definition: Definition, where: str) -> SourceColumns:
    """Return the columns that a definition names, of all files; those that it does not name may be as they are.

    Raises:
        SpecError: when no file has one of them.
        PlanError: when no type holds one in all files, or Spark cannot read it.
        ContractError: when a time column names no instant.
    """
    # A file without rows has often no types worth the name; it counts where no other has the column.
    ordered = sorted(shapes, key=lambda shape: not shape.has_rows)
    known = {field.name: type_name(field.type) for shape in ordered for field in shape.schema}
    require_columns(definition, known, where)
    types, absent = {}, {}
    for name in source_columns(definition):
        holding = [shape for shape in ordered if name in shape.schema.names]
        with_rows = [shape for shape in holding if shape.has_rows]
        types[name] = _type_in_all(name, with_rows or holding)
        for shape in ordered:
            _require_spelling(name, shape)
        lacking = [
            path for shape in ordered if shape.has_rows and name not in shape.schema.names for path in shape.paths
        ]
        if lacking:
            absent[name] = FileList.from_paths(lacking)
    _require_instants(definition, types, where)
    return SourceColumns(types, absent)


def _type_in_all(name: str, shapes: Sequence[SchemaGroup]) -> str:
    first, kind = shapes[0], ""
    widest = first
    for shape in shapes:
        found = _readable_type(name, shape.schema.field(name).type, shape.paths[0])
        together = common_type(kind, found) if kind else found
        if together is None:
            raise _two_types(name, (kind, widest.paths[0]), (found, shape.paths[0]))
        if together != kind:
            kind, widest = together, shape
    return kind


def _readable_type(name: str, kind: pa.DataType, path: str) -> str:
    if type_name(kind) == NANOSECONDS:
        msg = (
            f"column {name!r} is a {NANOSECONDS}, which Spark reads as a number only ({path})\n\n"
            "hint: write microseconds; pyarrow does with coerce_timestamps='us'"
        )
        raise PlanError(msg)
    found = spark_type_of_arrow(kind)
    if found is None:
        msg = f"column {name!r} is of a type that Spark cannot read: {kind} ({path})"
        raise PlanError(msg)
    return found


def _two_types(name: str, one: tuple[str, str], other: tuple[str, str]) -> PlanError:
    facts = f"\n  {one[0]} in {one[1]}\n  {other[0]} in {other[1]}"
    return PlanError(f"column {name!r} has two types in the files, and none that holds both{facts}")


def _require_spelling(name: str, shape: SchemaGroup) -> None:
    """Spark takes columns whose names differ in case only for the same."""
    alike = [other for other in shape.schema.names if other != name and other.lower() == name.lower()]
    if alike:
        msg = f"column {name!r} is written {alike[0]!r} too, which Spark takes for the same ({shape.paths[0]})"
        raise PlanError(msg)


def _require_instants(definition: Definition, types: Mapping[str, str], where: str) -> None:
    """Check the time columns that are named as they are; what SQL makes of others only Spark can tell."""
    source = definition.timed_source
    for key, expression in (
        ("source.event_time", source.event_time),
        ("source.arrival_time", source.arrival_time),
    ):
        written = (expression or "").strip()
        if (
            _COLUMN.fullmatch(written)
            and written in types
            and (wrong := reason_not_a_time(key, written, types[written], where))
        ):
            raise ContractError(wrong)
