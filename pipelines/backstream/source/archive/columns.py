"""Describe the columns of a sample: types, nulls, distinct values, and columns inside of texts that are JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from backstream.source.archive.sampled import Sample, WrittenNumber, shown_text
from backstream.source.column_types import quote_column

_MAX_DEPTH = 5
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PART = re.compile(r"`(?:[^`]|``)+`|[^.]+")
_MAX_LONG = 2**63
_MAX_DIGITS = 38
"""Largest number of digits of Spark's decimals."""


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """A column of a sample, or a field within a column with a dotted path.

    A part of the path that has a dot itself is in backticks. The values are as a run reads them with the type.
    `derived` is SQL that extracts a field from a column of JSON text; `folder` means that folders name the column.
    """

    path: str
    kind: str
    values: Sequence[Any]
    derived: str | None = None
    is_folder: bool = False
    is_instant: bool = False

    @property
    def name(self) -> str:
        """Return the last part of the path in lower case."""
        return split_path(self.path)[-1].lower()

    @property
    def nulls(self) -> int:
        """Return the number of records without a value."""
        return sum(value is None for value in self.values)

    @property
    def present(self) -> list[Any]:
        """Return the values of the records that have one."""
        return [value for value in self.values if value is not None]

    @property
    def distinct(self) -> int:
        """Return the number of distinct values."""
        return len(set(map(_hashable, self.present)))

    @property
    def sql(self) -> str:
        """Return the column as Spark SQL."""
        return ".".join(part if _PLAIN.fullmatch(part) else quote_column(part) for part in split_path(self.path))


def split_path(path: str) -> list[str]:
    """Return the names in a dotted path, of which some are in backticks."""
    parts = _PART.findall(path)
    return [part[1:-1].replace("``", "`") if part[:1] == "`" else part for part in parts]


def _hashable(value: Any) -> Any:
    return value if value.__hash__ else json.dumps(value, default=str, sort_keys=True)


def profile_columns(sample: Sample, folder_columns: Iterable[str]) -> list[ColumnProfile]:
    """Return the columns of a sample, with the fields of structs as columns of their own."""
    folders = set(folder_columns)
    columns = [
        _profile(
            path,
            values,
            derived=sample.derived.get(path),
            is_folder=path in folders,
            is_instant=path in sample.instants,
        )
        for path, values in _leaves(sample.records, "", 0)
    ]
    taken = {split_path(column.path)[0].lower() for column in columns}
    return [each for column in columns for each in (column, *_fields_of_json(column, taken))]


def left_out_lines(sample: Sample) -> list[str]:
    """Return a line per column that a definition cannot name, with the reason."""
    return [f"left out: {shown_text(name)!r}, because {reason}" for name, reason in _left_out(sample).items()]


def _left_out(sample: Sample) -> dict[str, str]:
    found: dict[str, str] = {}
    kept = {name.lower(): name for name in _names(sample.records)}
    for name in dict.fromkeys(name for record in sample.records for name in record):
        if reason := _reason_not_named(name):
            found[name] = reason
        elif kept[name.lower()] != name:
            found[name] = f"it differs from {kept[name.lower()]!r} only in upper and lower case"
    return found


def _reason_not_named(name: str) -> str | None:
    """Return why Spark SQL cannot name a column; None if it can."""
    if not name:
        return "its name is empty"
    is_text = all(character < "\ud800" or character > "\udfff" for character in name) and "\x00" not in name
    return None if is_text else "its name is not text"


def _profile(path: str, values: Sequence[Any], **facts: Any) -> ColumnProfile:
    """Return a column with one type, and its values in this type."""
    kind = _infer_type(values)
    conversions: Mapping[str, Callable[[Any], Any]] = {"double": float, "string": _written_text}
    convert = conversions.get(kind)
    if convert and not all(value is None or type(value) in (str, float) for value in values):
        values = [None if value is None else convert(value) for value in values]
    sql = facts.pop("derived")
    if sql and kind != "string":
        sql = f"try_cast({sql} as {kind})"
    return ColumnProfile(path, kind, values, derived=sql, **facts)


def _written_text(value: Any) -> str:
    """Return a value of several types as the text that a run reads."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | list | Mapping):
        return json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":"))
    return str(value)


def _leaves(records: Sequence[Any], prefix: str, depth: int) -> Iterator[tuple[str, list[Any]]]:
    """Yield the path and the values of each column that is not a struct."""
    for name in _names(records):
        if _reason_not_named(name):
            continue
        values = [record.get(name) if isinstance(record, Mapping) else None for record in records]
        part = quote_column(name) if "." in name or "`" in name else name
        present = [value for value in values if value is not None]
        if present and depth < _MAX_DEPTH and all(isinstance(value, Mapping) and value for value in present):
            yield from _leaves(values, f"{prefix}{part}.", depth + 1)
        else:
            yield prefix + part, values


def _names(records: Sequence[Any]) -> list[str]:
    """Return the names in the order of their first record; Spark does not distinguish upper and lower case."""
    names: dict[str, str] = {}
    for record in records:
        for name in record if isinstance(record, Mapping) else ():
            names.setdefault(name.lower(), name)
    return list(names.values())


def _fields_of_json(column: ColumnProfile, taken: set[str]) -> Iterator[ColumnProfile]:
    """Yield the fields of a column whose texts are JSON objects, such as the value of a Kafka record."""
    if column.kind not in ("string", "binary"):
        return
    objects = [_json_object(value) for value in column.values]
    if sum(each is not None for each in objects) < max(1, len(column.present) * 9 // 10):
        return
    text = f"cast({column.sql} as string)" if column.kind == "binary" else column.sql
    for path, values in _leaves(objects, "", 0):
        parts, name = split_path(path), _derived_name(path, taken)
        if not name or any(set(part) & set("'\\?") for part in parts):
            continue
        json_path = "".join(f".{part}" if _PLAIN.fullmatch(part) else f"[\\'{part}\\']" for part in parts)
        profile = _profile(name, values, derived=f"get_json_object({text}, '${json_path}')")
        if not profile.kind.startswith("array"):
            yield profile


def _derived_name(path: str, taken: set[str]) -> str:
    """Return a name in snake case that no column of the files has; empty if there is none."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", path)
    name = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")
    while name in taken:
        name = f"value_{name}"
    return name if name[:1].isalpha() else ""


def _json_object(value: Any) -> Mapping[str, Any] | None:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    if not isinstance(text, str) or not text.lstrip().startswith("{"):
        return None
    try:
        parsed = json.loads(text, parse_float=WrittenNumber)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _infer_type(values: Iterable[Any]) -> str:
    """Return the Spark SQL type that holds all values with all their digits; text if they have several types."""
    present = [value for value in values if value is not None]
    kinds = {_type_of(value) for value in present} - {"void"}
    if kinds and kinds <= {"integer", "number", "double"}:
        return _type_of_numbers(present, has_fractions=kinds != {"integer"})
    return kinds.pop() if len(kinds) == 1 else "string"


def _type_of_numbers(values: Sequence[Any], *, has_fractions: bool) -> str:
    """Return `bigint` or `double` if it holds all numbers exactly, or else a decimal, or else text."""
    if not has_fractions and all(-_MAX_LONG <= value < _MAX_LONG for value in values):
        return "bigint"
    if has_fractions and all(map(_is_double, values)):
        return "double"
    if any(isinstance(value, float) for value in values):
        return "double"  # not written digits, but a value of a binary file
    exact = [Decimal(value) for value in values]
    scale = max(0, *(-int(number.as_tuple().exponent) for number in exact))
    whole = max(1, *(number.adjusted() + 1 for number in exact))
    if whole + scale > _MAX_DIGITS:
        return "string"
    return f"decimal({whole + scale if scale else _MAX_DIGITS},{scale})"


def _is_double(value: Any) -> bool:
    """Return whether a double holds a number so that its digits can be written again."""
    try:
        return isinstance(value, float) or Decimal(repr(float(value))) == value
    except OverflowError:
        return False


def _type_of(value: Any) -> str:
    for kind, name in _TYPES:
        if isinstance(value, kind):
            return name
    if isinstance(value, datetime):
        return "timestamp" if value.tzinfo else "timestamp_ntz"
    if isinstance(value, Decimal):
        scale = max(0, -int(value.as_tuple().exponent)) if value.is_finite() else 0
        return f"decimal({_MAX_DIGITS},{scale})"
    if isinstance(value, list | tuple):
        return f"array<{_infer_type(value)}>"
    return "struct<>" if isinstance(value, Mapping) else "date" if isinstance(value, date) else "string"


_TYPES = (
    *((bool, "boolean"), (str, "string"), (float, "double"), (bytes, "binary"), (int, "integer")),
    (WrittenNumber, "number"),
)


def reader_columns(columns: Sequence[ColumnProfile]) -> dict[str, str]:
    """Return the top columns with their Spark SQL types: fields are put together to structs."""
    tree: dict[str, Any] = {}
    for column in columns:
        if column.derived or column.is_folder:
            continue
        node, parts = tree, split_path(column.path)
        for part in parts[:-1]:
            node = node.setdefault(part, {})
        node[parts[-1]] = "string" if "struct<>" in column.kind else column.kind
    return {name: _ddl(kind) for name, kind in tree.items()}


def _ddl(kind: str | dict[str, Any]) -> str:
    if isinstance(kind, str):
        return kind
    fields = ", ".join(
        f"{name if _PLAIN.fullmatch(name) else quote_column(name)}: {_ddl(each)}" for name, each in kind.items()
    )
    return f"struct<{fields}>"
