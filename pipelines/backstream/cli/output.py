"""Print rows on standard output as a table, CSV, JSON, or an Arrow stream."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain, islice
from math import isfinite
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from backstream.eventtime.instants import epoch_ms, instant_text
from backstream.text import RowFormat, print_text, visible_line

_TABLE_ROWS = 20
_BATCH_ROWS = 50_000
_SPECIAL = re.compile('[,"\r\n]')


def print_rows(tables: Iterable[pa.Table], form: RowFormat, limit: int | None) -> None:
    """Print rows, with one table in memory at a time; `limit` None means 20 rows in a table, else all."""
    if form is RowFormat.TABLE:
        _print_table(_plain_rows(tables), limit or _TABLE_ROWS)
    elif form is RowFormat.ARROW:
        _write_stream(_limited_batches(tables, limit))
    else:
        _print_lines(_limited_batches(tables, limit), form)


def max_rows(form: RowFormat, limit: int | None) -> int | None:
    """Return how many rows `print_rows` reads: in a table one more than it prints, to detect more rows."""
    return (limit or _TABLE_ROWS) + 1 if form is RowFormat.TABLE else limit


def _limited_batches(tables: Iterable[pa.Table], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Return the first `limit` rows in batches, and read no more tables than necessary."""
    left = limit
    for table in tables:
        yield from table.slice(0, left).combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)
        left = None if left is None else left - table.num_rows
        if left is not None and left <= 0:
            return


def _print_lines(batches: Iterable[pa.RecordBatch], form: RowFormat) -> None:
    """Print one line per row; whole columns become text first, because this is faster than single cells."""
    is_first = True
    for batch in batches:
        if form is RowFormat.CSV and is_first:
            print(",".join(_csv_text(name) for name in batch.schema.names))
        is_first = False
        parts = _csv_parts(batch) if form is RowFormat.CSV else _json_parts(batch)
        null_text = "" if form is RowFormat.CSV else "null"
        lines = pc.binary_join_element_wise(*parts, "", null_handling="replace", null_replacement=null_text)
        sys.stdout.write("".join(lines.to_pylist()))


def _csv_parts(batch: pa.RecordBatch) -> Iterator[Any]:
    for at, column in enumerate(batch.columns):
        if at:
            yield ","
        yield _column_text(column, _csv_text)
    yield "\n"


def _json_parts(batch: pa.RecordBatch) -> Iterator[Any]:
    for at, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        yield f"{', ' if at else '{'}{json.dumps(name)}: "
        yield _column_text(column, _json_text)
    yield "}\n"


def _column_text(column: pa.Array, to_text: Callable[[Any], str]) -> pa.Array:
    """Return the values of a column as text; each distinct value is converted once."""
    if pa.types.is_integer(column.type):
        return column.cast(pa.string())
    if pa.types.is_nested(column.type):
        return pa.array([None if value is None else to_text(value) for value in column.to_pylist()], pa.string())
    encoded = column.dictionary_encode()
    return pa.array([to_text(value) for value in encoded.dictionary.to_pylist()], pa.string()).take(
        encoded.indices
    )


def _csv_text(value: object) -> str:
    """Return a value as a CSV cell, in quotes if it contains a delimiter."""
    text = _value_text(_plain(value))
    if value == "":
        return '""'  # an empty cell is null
    return '"' + text.replace('"', '""') + '"' if _SPECIAL.search(text) else text


def _json_text(value: object) -> str:
    return json.dumps(_plain(value))


def _write_stream(batches: Iterator[pa.RecordBatch]) -> None:
    """Write batches in the Arrow streaming format."""
    first = next(batches, None)
    if first is None:
        return
    with pa.ipc.new_stream(sys.stdout.buffer, first.schema) as stream:
        for batch in chain([first], batches):
            stream.write_batch(batch)


def _plain_rows(tables: Iterable[pa.Table]) -> Iterator[Mapping[str, Any]]:
    for table in tables:
        for batch in table.to_batches(max_chunksize=1_000):
            yield from ({name: _plain(value) for name, value in row.items()} for row in batch.to_pylist())


def _plain(value: object) -> object:
    """Return a value that JSON can represent; instants get a `Z`, and decimals, `nan`, and `inf` become text.

    Bytes become hexadecimal digits, and a decimal has no exponent.
    """
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, datetime):
        return instant_text(epoch_ms(value))
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return value.hex()
    is_text = isinstance(value, date | time) or (isinstance(value, float) and not isfinite(value))
    return str(value) if is_text else value


def _print_table(rows: Iterator[Mapping[str, Any]], limit: int) -> None:
    shown = list(islice(rows, limit))
    if not shown:
        print_text("no rows")
        return
    cells = [[*map(visible_line, shown[0])], *([_cell(value) for value in row.values()] for row in shown)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(cells[0]))]
    is_number = [isinstance(value, int | float) for value in shown[0].values()]
    for row in cells:
        aligned = zip(row, widths, is_number, strict=True)
        line = "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in aligned)
        print_text(line.rstrip())
    if next(rows, None) is not None:
        print_text(f"and more: only the first {limit:,} rows are shown")


def _cell(value: object) -> str:
    return "" if value is None else visible_line(_value_text(value))


def _value_text(value: object) -> str:
    """Return a plain value as text; lists, structs, and booleans as JSON."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict | bool) else str(value)
