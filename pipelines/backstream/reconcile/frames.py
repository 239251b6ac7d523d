"""Map the columns of a live system's output to the published ones, and convert both sides to such frames.

A mapping is written `window_start=ts:s,departures=n,mean_delay_min=`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from backstream.errors import SpecError
from backstream.runs.table_schemas import WINDOW_END, WINDOW_START

KEY, START, END = "key", "start_ms", "end_ms"
"""Columns of frames; the number of the key column follows `KEY`."""
_UNITS = ("s", "ms", "us")
_PER_UNIT_MS = {"s": 1_000.0, "ms": 1.0, "us": 0.001}
_INSTANT = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """One of our columns and its name in the live output; `unit` is the unit of numbers since 1970."""

    name: str
    theirs: str
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class ColumnMappings:
    """Columns to compare; if `end` is None, the definition determines the end of a window."""

    start: ColumnMapping
    end: ColumnMapping | None
    keys: tuple[ColumnMapping, ...]
    aggregates: tuple[ColumnMapping, ...]

    def all(self) -> list[ColumnMapping]:
        """Return all columns to read."""
        return [self.start, *([self.end] if self.end else []), *self.keys, *self.aggregates]


@dataclass(frozen=True, slots=True)
class TableShape:
    """Our key columns and aggregates with their types; `window_ms` if all windows have the same length."""

    keys: tuple[str, ...]
    aggregates: tuple[str, ...]
    types: Mapping[str, pa.DataType]
    window_ms: int | None = None

    @property
    def places(self) -> list[str]:
        """Columns of a frame that identify a window of one key."""
        return [*(f"{KEY}{number}" for number in range(len(self.keys))), START, END]

    def is_number(self, aggregate: str) -> bool:
        """Return whether values of an aggregate can be subtracted."""
        return is_number_type(self.types[aggregate])


def parse_mapping(text: str, names: Sequence[str]) -> dict[str, ColumnMapping | None]:
    """Return the mappings of `--columns` by our name; None for an excluded column.

    Raises:
        SpecError: when a part is not `NAME=THEIRS`, or its name is unknown.
    """
    mappings: dict[str, ColumnMapping | None] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, is_pair, theirs = (word.strip() for word in part.partition("="))
        if not is_pair or name not in names:
            msg = f"--columns must be NAME=THEIRS with a NAME of {', '.join(names)}, got {part!r}"
            raise SpecError(msg)
        mappings[name] = _parse_column(name, theirs) if theirs else None
    return mappings


def _parse_column(name: str, text: str) -> ColumnMapping:
    theirs, _, unit = text.rpartition(":")
    if name in (WINDOW_START, WINDOW_END) and unit in _UNITS and theirs:
        return ColumnMapping(name, theirs, unit)
    return ColumnMapping(name, text)


def map_columns(
    mappings: Mapping[str, ColumnMapping | None],
    keys: Sequence[str],
    aggregates: Sequence[str],
    live_columns: Sequence[str],
    where: str,
) -> ColumnMappings:
    """Return the columns to compare, after a check that the live output has all of them.

    Args:
        mappings: result of `parse_mapping`.
        keys: our key columns.
        aggregates: our aggregates.
        live_columns: columns of the live output.
        where: name of the live output for messages.

    Raises:
        SpecError: when the live output lacks columns, or a required column is excluded.
    """
    required = [WINDOW_START, *keys]
    if excluded := [name for name in required if name in mappings and mappings[name] is None]:
        msg = f"{', '.join(excluded)} cannot be excluded: windows are matched by it (--columns)"
        raise SpecError(msg)
    wanted = {name: mappings.get(name, ColumnMapping(name, name)) for name in (*required, *aggregates)}
    end = mappings.get(WINDOW_END, ColumnMapping(WINDOW_END, WINDOW_END) if WINDOW_END in live_columns else None)
    columns = [column for column in (*wanted.values(), end) if column is not None]
    if missing := [column for column in columns if column.theirs not in live_columns]:
        raise _missing_columns_error(missing, live_columns, where)
    values = tuple(column for name in aggregates if (column := wanted[name]) is not None)
    if not values:
        msg = f"no aggregate to compare: --columns excludes {', '.join(aggregates)}"
        raise SpecError(msg)
    start, *key_columns = (_require_column(wanted[name]) for name in required)
    return ColumnMappings(start, end, tuple(key_columns), values)


def _require_column(column: ColumnMapping | None) -> ColumnMapping:
    assert column is not None  # noqa: S101 - map_columns rejects an excluded required column
    return column


def _missing_columns_error(missing: Sequence[ColumnMapping], live_columns: Sequence[str], where: str) -> SpecError:
    names = ", ".join(
        column.theirs if column.theirs == column.name else f"{column.theirs} (for {column.name})"
        for column in missing
    )
    return SpecError(
        f"{where} has no column {names}\n  it has {', '.join(live_columns)}\n\n"
        "hint: map a column with --columns NAME=THEIRS, or exclude an aggregate with --columns NAME="
    )


def is_number_type(kind: pa.DataType) -> bool:
    """Return whether values of a type can be subtracted."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def to_frame(rows: pa.Table, columns: ColumnMappings, shape: TableShape, side: str, where: str) -> pd.DataFrame:
    """Return keys, bounds in ms, and each aggregate as `<side>__<aggregate>`, a number or text.

    Raises:
        SpecError: when a column has no instants, or values of another type than the published ones.
    """
    content: dict[str, object] = {
        f"{KEY}{number}": _column_values(rows, column, shape.types[column.name], where)
        for number, column in enumerate(columns.keys)
    }
    start_ms = _column_to_ms(rows, columns.start, where)
    content[START] = start_ms
    if columns.end is not None:
        content[END] = _column_to_ms(rows, columns.end, where)
    elif shape.window_ms is not None:
        content[END] = start_ms + shape.window_ms
    else:
        msg = (
            f"{where} has no window_end, and the windows have different lengths\n\n"
            "hint: name the column with --columns window_end=NAME"
        )
        raise SpecError(msg)
    for column in columns.aggregates:
        content[f"{side}__{column.name}"] = _column_values(rows, column, shape.types[column.name], where)
    return pd.DataFrame(content)


def to_series(values: pa.ChunkedArray, kind: pa.DataType) -> pd.Series:
    """Return numbers as doubles (null as NaN) and other values as text (null as None), so that null keys match."""
    if is_number_type(kind):
        return pd.Series(pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    return pd.Series(pc.cast(_decode_dictionary(values), pa.string()).to_pandas(), dtype=object)


def _column_to_ms(rows: pa.Table, column: ColumnMapping, where: str) -> np.ndarray:
    """Return epoch milliseconds of a column; a time without a zone is read as UTC.

    Raises:
        SpecError: when the column has nulls, numbers without a unit, or no instants.
    """
    values = rows[column.theirs]
    if values.null_count:
        msg = (
            f"{column.theirs} must have an instant in each row, "
            f"{values.null_count} of {rows.num_rows} rows have none ({where})"
        )
        raise SpecError(msg)
    if column.unit is not None and is_number_type(values.type):
        numbers = pc.cast(values, pa.float64(), safe=False).to_numpy()
        return np.asarray(np.floor(numbers * _PER_UNIT_MS[column.unit]), dtype=np.int64)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values = _parse_instants(values, column, where)
    if not (pa.types.is_timestamp(values.type) or pa.types.is_date(values.type)):
        msg = (
            f"{column.theirs} must be an instant, got {values.type} ({where})\n\n"
            f"hint: set the unit of a number, s, ms, or us: --columns {column.name}={column.theirs}:ms"
        )
        raise SpecError(msg)
    at_us = pc.cast(values, _INSTANT, safe=False).cast(pa.int64()).to_numpy()
    return np.asarray(at_us // 1_000, dtype=np.int64)


def _parse_instants(values: pa.ChunkedArray, column: ColumnMapping, where: str) -> pa.ChunkedArray:
    try:
        instants = pd.to_datetime(values.to_pandas(), utc=True, format="ISO8601")
    except ValueError as error:
        msg = f"{column.theirs} must be an instant such as 2013-02-01T05:00Z ({where})\n  {error}"
        raise SpecError(msg) from None
    return pa.chunked_array([pa.array(instants, _INSTANT)])


def _column_values(rows: pa.Table, column: ColumnMapping, kind: pa.DataType, where: str) -> pd.Series:
    values = _decode_dictionary(rows[column.theirs])
    try:
        if is_number_type(kind):
            return to_series(pc.cast(values, pa.float64(), safe=False), kind)
        return to_series(pc.cast(values, kind), kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        msg = (
            f"{column.theirs} must be of type {kind}, like {column.name} of the dataset, "
            f"got {values.type} ({where})\n  {error}"
        )
        raise SpecError(msg) from None


def _decode_dictionary(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values
