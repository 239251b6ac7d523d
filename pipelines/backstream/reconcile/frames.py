"""Which column of a live system's output is which of ours: `window_start=ts:s,departures=n,mean_delay_min=`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from backstream.errors import SpecError

START, END = "window_start", "window_end"
UNITS = ("s", "ms", "us")


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """One of our columns in their output; `unit` says what a number of it counts since 1970, where it is one."""

    name: str
    theirs: str
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class ColumnMappings:
    """The columns to be compared, by our names; `end` None: the definition tells where a window ends."""

    start: ColumnMapping
    end: ColumnMapping | None
    keys: tuple[ColumnMapping, ...]
    aggregates: tuple[ColumnMapping, ...]

    def all(self) -> list[ColumnMapping]:
        """Every column that is read."""
        return [self.start, *([self.end] if self.end else []), *self.keys, *self.aggregates]


def parse_mapping(text: str, known: Sequence[str]) -> dict[str, ColumnMapping | None]:
    """What `--columns` says: our name to their column; None where it is to be left out.

    Raises:
        SpecError: when a part is not `NAME=THEIRS`, or names a column that we do not have.
    """
    found: dict[str, ColumnMapping | None] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, is_pair, theirs = (each.strip() for each in part.partition("="))
        if not is_pair or name not in known:
            msg = f"--columns must be NAME=THEIRS with a NAME of {', '.join(known)}, got {part!r}"
            raise SpecError(msg)
        found[name] = _column(name, theirs) if theirs else None
    return found


def _column(name: str, text: str) -> ColumnMapping:
    theirs, _, unit = text.rpartition(":")
    if name in (START, END) and unit in UNITS and theirs:
        return ColumnMapping(name, theirs, unit)
    return ColumnMapping(name, text)


def map_columns(
    said: Mapping[str, ColumnMapping | None],
    keys: Sequence[str],
    aggregates: Sequence[str],
    there: Sequence[str],
    where: str,
) -> ColumnMappings:
    """The columns to compare, all of them there.

    Args:
        said: what `mapping` made.
        keys: our key columns.
        aggregates: our aggregates.
        there: the columns of theirs.
        where: what theirs is called, for messages.

    Raises:
        SpecError: naming the columns that theirs lacks, or that may not be left out.
    """
    needed = [START, *keys]
    if left_out := [name for name in needed if name in said and said[name] is None]:
        msg = f"{', '.join(left_out)} cannot be left out: windows are matched by it (--columns)"
        raise SpecError(msg)
    wanted = {name: said.get(name, ColumnMapping(name, name)) for name in (*needed, *aggregates)}
    end = said.get(END, ColumnMapping(END, END) if END in there else None)
    kept = [each for each in (*wanted.values(), end) if each is not None]
    if lacking := [each for each in kept if each.theirs not in there]:
        raise _lacking(lacking, there, where)
    values = tuple(each for name in aggregates if (each := wanted[name]) is not None)
    if not values:
        msg = f"nothing is left to compare: --columns leaves out {', '.join(aggregates)}"
        raise SpecError(msg)
    return ColumnMappings(_there(wanted[START]), end, tuple(_there(wanted[name]) for name in keys), values)


def _there(column: ColumnMapping | None) -> ColumnMapping:
    assert column is not None  # noqa: S101 - it was refused to leave it out
    return column


def _lacking(lacking: Sequence[ColumnMapping], there: Sequence[str], where: str) -> SpecError:
    names = ", ".join(
        each.theirs if each.theirs == each.name else f"{each.theirs} (for {each.name})" for each in lacking
    )
    return SpecError(
        f"{where} has no column {names}\n  it has {', '.join(there)}\n\n"
        "hint: --columns NAME=THEIRS says what a column is called there; NAME= leaves an aggregate out"
    )


KEY, START, END = "key", "start_ms", "end_ms"
_PER_UNIT_MS = {"s": 1_000.0, "ms": 1.0, "us": 0.001}
_INSTANT = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class TableShape:
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
        return is_number_type(self.types[aggregate])


def is_number_type(kind: pa.DataType) -> bool:
    """Whether values of a type can be subtracted."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def to_frame(rows: pa.Table, columns: ColumnMappings, shape: TableShape, side: str, where: str) -> pd.DataFrame:
    """Keys, bounds in ms, and each aggregate as `<side>__<aggregate>`: a number, or text.

    Raises:
        SpecError: naming the column that holds no instants, or values of another kind than ours.
    """
    content: dict[str, object] = {
        f"{KEY}{number}": _values(rows, column, shape.types[column.name], where)
        for number, column in enumerate(columns.keys)
    }
    start_ms = column_to_ms(rows, columns.start, where)
    content[START] = start_ms
    if columns.end is not None:
        content[END] = column_to_ms(rows, columns.end, where)
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


def to_series(values: pa.ChunkedArray, kind: pa.DataType) -> pd.Series:
    """Numbers as doubles (null: NaN); anything else as text (null: None), so that null keys meet."""
    if is_number_type(kind):
        return pd.Series(pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    return pd.Series(pc.cast(_undictionaried(values), pa.string()).to_pandas(), dtype=object)


def column_to_ms(rows: pa.Table, column: ColumnMapping, where: str) -> np.ndarray:
    """Epoch milliseconds of a column; a local time without a zone is taken for UTC.

    Raises:
        SpecError: when it holds nulls, or numbers without a unit, or nothing that is an instant.
    """
    values = rows[column.theirs]
    if values.null_count:
        some = f"{values.null_count} of {rows.num_rows} have none"
        msg = f"{column.theirs} must say an instant in each row, {some} ({where})"
        raise SpecError(msg)
    if column.unit is not None and is_number_type(values.type):
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


def _parsed(values: pa.ChunkedArray, column: ColumnMapping, where: str) -> pa.ChunkedArray:
    try:
        found = pd.to_datetime(values.to_pandas(), utc=True, format="ISO8601")
    except ValueError as error:
        msg = f"{column.theirs} must be an instant such as 2013-02-01T05:00Z ({where})\n  {error}"
        raise SpecError(msg) from None
    return pa.chunked_array([pa.array(found, _INSTANT)])


def _values(rows: pa.Table, column: ColumnMapping, kind: pa.DataType, where: str) -> pd.Series:
    values = _undictionaried(rows[column.theirs])
    try:
        if is_number_type(kind):
            return to_series(pc.cast(values, pa.float64(), safe=False), kind)
        return to_series(pc.cast(values, kind), kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        msg = f"{column.theirs} must be a {kind}, as our {column.name} is, got {values.type} ({where})\n  {error}"
        raise SpecError(msg) from None


def _undictionaried(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values
