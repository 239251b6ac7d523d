"""Rows of both sides as frames with the same columns, so that they can be joined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from backstream.core.errors import SpecError
from backstream.steps.reconcile.columns import Column, Columns

KEY, START, END = "key", "start_ms", "end_ms"
_PER_UNIT_MS = {"s": 1_000.0, "ms": 1.0, "us": 0.001}
_INSTANT = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class Shape:
    """What is compared: our key columns and aggregates with their types; `window_ms` where all are one length."""

    keys: tuple[str, ...]
    aggregates: tuple[str, ...]
    types: Mapping[str, pa.DataType]
    window_ms: int | None = None

    @property
    def places(self) -> list[str]:
        """The columns by which windows belong together."""
        return [*(f"{KEY}{number}" for number in range(len(self.keys))), START, END]

    def is_number(self, aggregate: str) -> bool:
        """Whether an aggregate's values can be subtracted."""
        return is_number(self.types[aggregate])


def is_number(kind: pa.DataType) -> bool:
    """Whether values of a type can be subtracted."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def frame(rows: pa.Table, columns: Columns, shape: Shape, side: str, where: str) -> pd.DataFrame:
    """Keys, bounds in ms, and each aggregate as `<side>__<aggregate>`: a number, or text.

    Raises:
        SpecError: naming the column that holds no instants, or values of another kind than ours.
    """
    content: dict[str, object] = {
        f"{KEY}{number}": _values(rows, column, shape.types[column.name], where)
        for number, column in enumerate(columns.keys)
    }
    start_ms = instants_ms(rows, columns.start, where)
    content[START] = start_ms
    if columns.end is not None:
        content[END] = instants_ms(rows, columns.end, where)
    elif shape.window_ms is not None:
        content[END] = start_ms + shape.window_ms
    else:
        msg = (
            f"{where} has no window_end, and the length of the windows differs\n\nhint: --columns window_end=NAME"
        )
        raise SpecError(msg)
    for column in columns.aggregates:
        content[f"{side}__{column.name}"] = _values(rows, column, shape.types[column.name], where)
    return pd.DataFrame(content)


def plain(values: pa.ChunkedArray, kind: pa.DataType) -> pd.Series:
    """Numbers as doubles (null: NaN); anything else as text (null: None), so that null keys meet."""
    if is_number(kind):
        return pd.Series(pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    return pd.Series(pc.cast(_undictionaried(values), pa.string()).to_pandas(), dtype=object)


def instants_ms(rows: pa.Table, column: Column, where: str) -> np.ndarray:
    """Epoch milliseconds of a column; a local time without a zone is taken for UTC.

    Raises:
        SpecError: when it holds nulls, or numbers without a unit, or nothing that is an instant.
    """
    values = rows[column.theirs]
    if values.null_count:
        some = f"{values.null_count} of {rows.num_rows} have none"
        msg = f"{column.theirs} must say an instant in each row, {some} ({where})"
        raise SpecError(msg)
    if column.unit is not None and is_number(values.type):
        numbers = pc.cast(values, pa.float64(), safe=False).to_numpy()
        return np.asarray(np.floor(numbers * _PER_UNIT_MS[column.unit]), dtype=np.int64)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values = _parsed(values, column, where)
    if not (pa.types.is_timestamp(values.type) or pa.types.is_date(values.type)):
        msg = (
            f"{column.theirs} must be an instant, got {values.type} ({where})\n\n"
            f"hint: --columns {column.name}={column.theirs}:ms says that a number counts ms; s and us too"
        )
        raise SpecError(msg)
    at_us = pc.cast(values, _INSTANT, safe=False).cast(pa.int64()).to_numpy()
    return np.asarray(at_us // 1_000, dtype=np.int64)


def _parsed(values: pa.ChunkedArray, column: Column, where: str) -> pa.ChunkedArray:
    try:
        found = pd.to_datetime(values.to_pandas(), utc=True, format="ISO8601")
    except ValueError as error:
        msg = f"{column.theirs} must be an instant such as 2013-02-01T05:00Z ({where})\n  {error}"
        raise SpecError(msg) from None
    return pa.chunked_array([pa.array(found, _INSTANT)])


def _values(rows: pa.Table, column: Column, kind: pa.DataType, where: str) -> pd.Series:
    values = _undictionaried(rows[column.theirs])
    try:
        if is_number(kind):
            return plain(pc.cast(values, pa.float64(), safe=False), kind)
        return plain(pc.cast(values, kind), kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        msg = f"{column.theirs} must be a {kind}, as our {column.name} is, got {values.type} ({where})\n  {error}"
        raise SpecError(msg) from None


def _undictionaried(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values
