"""Describe the columns of a sample: types, nulls, distinct values, and columns inside of texts that are JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from backstream.source.archive.sample import Sample
from backstream.source.column_types import quote_column

_MAX_DEPTH = 5
_PLAIN = re.compile(r"[A-Za-z_]\w*")
_PLAIN_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_MAX_LONG = 2**63
_LARGE = "decimal(38,0)"
"""Type of integers that are larger than 64 bits."""


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """A column of a sample, or a field within a column with a dotted path.

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
        return self.path.rpartition(".")[2].lower()

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
        return ".".join(part if _PLAIN.fullmatch(part) else quote_column(part) for part in self.path.split("."))


def _hashable(value: Any) -> Any:
    return value if value.__hash__ else json.dumps(value, default=str, sort_keys=True)


def profile_columns(sample: Sample, folder_columns: Iterable[str]) -> list[ColumnProfile]:
    """Return the columns of a sample, with the fields of structs as columns of their own."""
    folders = set(folder_columns)
    columns = [
        ColumnProfile(
            path,
            _infer_type(values),
            values,
            is_folder=path in folders,
            is_instant=path in sample.instants,
        )
        for path, values in _leaves(sample.records, "", 0)
    ]
    taken = {column.path.partition(".")[0].lower() for column in columns}
    return [each for column in columns for each in (column, *_fields_of_json(column, taken))]


def _leaves(records: Sequence[Any], prefix: str, depth: int) -> Iterator[tuple[str, list[Any]]]:
    """Yield the path and the values of each column that is not a struct."""
    for name in _names(records):
        values = [record.get(name) if isinstance(record, Mapping) else None for record in records]
        if "." in name:
            continue  # a dotted path could not name it
        present = [value for value in values if value is not None]
        if present and depth < _MAX_DEPTH and all(isinstance(value, Mapping) for value in present):
            yield from _leaves(values, f"{prefix}{name}.", depth + 1)
        else:
            yield prefix + name, values


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
        kind, name = _infer_type(values), _derived_name(path, taken)
        if name and not kind.startswith("array") and _PLAIN_PATH.fullmatch(path):
            extracted = f"get_json_object({text}, '$.{path}')"
            sql = extracted if kind == "string" else f"try_cast({extracted} as {kind})"
            yield ColumnProfile(name, kind, values, derived=sql)


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
        parsed = json.loads(text)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _infer_type(values: Iterable[Any]) -> str:
    """Return the Spark SQL type that holds all values; text if they have several types."""
    kinds = {_type_of(value) for value in values if value is not None} - {"void"}
    if len(kinds) == 1:
        return kinds.pop()
    if kinds and kinds <= {"bigint", "double", _LARGE}:
        return "double" if "double" in kinds else _LARGE
    return "string"


def _type_of(value: Any) -> str:
    for kind, name in _TYPES:
        if isinstance(value, kind):
            return name
    if isinstance(value, int):
        return "bigint" if -_MAX_LONG <= value < _MAX_LONG else _LARGE
    if isinstance(value, datetime):
        return "timestamp" if value.tzinfo else "timestamp_ntz"
    if isinstance(value, Decimal):
        return "decimal(38,9)"
    if isinstance(value, list | tuple):
        return f"array<{_infer_type(value)}>"
    return "struct<>" if isinstance(value, Mapping) else "date" if isinstance(value, date) else "string"


_TYPES = ((bool, "boolean"), (str, "string"), (float, "double"), (bytes, "binary"))


def reader_columns(columns: Sequence[ColumnProfile]) -> dict[str, str]:
    """Return the top columns with their Spark SQL types: fields are put together to structs."""
    tree: dict[str, Any] = {}
    for column in columns:
        if column.derived or column.is_folder:
            continue
        node, parts = tree, column.path.split(".")
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
