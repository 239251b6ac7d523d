"""Handle list columns, which Arrow can neither compare, nor sort by, nor write as CSV."""

from __future__ import annotations

import json

import pyarrow as pa


def plain_column(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return lists as JSON text, which Arrow can compare and write as CSV; other values are unchanged."""
    if not pa.types.is_nested(values.type):
        return values
    texts = [None if value is None else json.dumps(value, default=str) for value in values.to_pylist()]
    return pa.chunked_array([pa.array(texts, pa.string())])


def sort_keys(table: pa.Table) -> list[tuple[str, str]]:
    """Return the sort keys of all columns that Arrow can sort by, which are not lists."""
    return [(field.name, "ascending") for field in table.schema if not pa.types.is_nested(field.type)]
