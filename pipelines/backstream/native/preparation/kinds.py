"""Parse the Spark SQL types of declared columns, as far as the native reader supports them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

Kind = str | Mapping[str, Any]
"""The name of a plain type, or the kinds of the fields of a struct by their names."""
Leaf = tuple[str, ...]
"""The names from a column down to a plain value in it, e.g., `("payload", "user", "id")`."""

TIMESTAMP, DOUBLE, STRING = "timestamp", "double", "string"
INTEGERS = {"tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}
_PLAIN = {**INTEGERS, DOUBLE: pa.float64(), "boolean": pa.bool_(), STRING: pa.string()}
_SYNONYMS = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_TOKENS = re.compile(r"\w+|\S", re.ASCII)


def parse_kind(text: str) -> Kind | None:
    """Return the kind of a Spark SQL type; None if the native reader does not support it."""
    tokens = _TOKENS.findall(text)[::-1]
    kind = _take_kind(tokens)
    return None if tokens else kind


def _take_kind(tokens: list[str]) -> Kind | None:
    """Remove the tokens of a type, which are in reverse order, and return its kind."""
    word = tokens.pop().lower() if tokens else ""
    name = _SYNONYMS.get(word, word)
    if name in _PLAIN or name == TIMESTAMP:
        return name
    fields: dict[str, Kind] = {}
    separator = tokens.pop() if word == "struct" and tokens else ""
    while separator == ("," if fields else "<") and len(tokens) > 1:
        field, colon = tokens.pop(), tokens.pop()
        kind = _take_kind(tokens)
        is_new = field.isidentifier() and field.lower() not in map(str.lower, fields)
        if colon != ":" or kind is None or not is_new or not tokens:
            return None
        fields[field] = kind
        separator = tokens.pop()
    return fields if separator == ">" and fields else None


def list_leaves(kinds: Mapping[str, Kind]) -> Iterator[tuple[Leaf, str]]:
    """Yield all plain values of columns, with their types."""
    for name, kind in kinds.items():
        if isinstance(kind, str):
            yield (name,), kind
        else:
            yield from (((name, *rest), plain) for rest, plain in list_leaves(kind))


def arrow_schema(kinds: Mapping[str, Kind]) -> pa.Schema:
    """Return the schema by which Arrow reads JSON. Timestamps are read as text."""
    return pa.schema([(name, _arrow_type(kind)) for name, kind in kinds.items()])


def _arrow_type(kind: Kind) -> pa.DataType:
    if isinstance(kind, str):
        return _PLAIN.get(kind, pa.string())
    return pa.struct([(name, _arrow_type(field)) for name, field in kind.items()])
