"""Rows on standard output: for people, for spreadsheets, for programs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from itertools import chain, islice
from math import isfinite
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from backstream.eventtime.instants import epoch_ms, instant_text
from backstream.text import RowFormat

_TABLE_ROWS = 20
_BATCH_ROWS = 50_000
_SPECIAL = re.compile('[,"\r\n]')


def print_rows(tables: Iterable[pa.Table], form: RowFormat, limit: int | None) -> None:
    """Print rows as they come, one table in memory at a time; `limit` None: 20 in a table for people, else all."""
    if form is RowFormat.TABLE:
        _print_table(_rows(tables), limit or _TABLE_ROWS)
    elif form is RowFormat.ARROW:
        _write_stream(_first(tables, limit))
    else:
        _print_lines(_first(tables, limit), form)


def max_rows(form: RowFormat, limit: int | None) -> int | None:
    """How many rows `print_rows` looks at; of a table one more than it prints, to say that there are more."""
    return (limit or _TABLE_ROWS) + 1 if form is RowFormat.TABLE else limit


def _first(tables: Iterable[pa.Table], limit: int | None) -> Iterator[pa.RecordBatch]:
    """So many rows in batches of their own, and no more tables than have them."""
    left = limit
    for table in tables:
        yield from table.slice(0, left).combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)
        left = None if left is None else left - table.num_rows
        if left is not None and left <= 0:
            return


def _print_lines(batches: Iterable[pa.RecordBatch], form: RowFormat) -> None:
    """A line per row: the cells of a batch become text column by column, and lines all at once."""
    is_first = True
    for batch in batches:
        if form is RowFormat.CSV and is_first:
            print(",".join(_csv_text(name) for name in batch.schema.names))
        is_first = False
        pieces = _csv_pieces(batch) if form is RowFormat.CSV else _json_pieces(batch)
        nothing = "" if form is RowFormat.CSV else "null"
        lines = pc.binary_join_element_wise(*pieces, "", null_handling="replace", null_replacement=nothing)
        sys.stdout.write("".join(lines.to_pylist()))


def _csv_pieces(batch: pa.RecordBatch) -> Iterator[Any]:
    for at, column in enumerate(batch.columns):
        if at:
            yield ","
        yield _texts(column, _csv_text)
    yield "\n"


def _json_pieces(batch: pa.RecordBatch) -> Iterator[Any]:
    for at, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        yield f"{', ' if at else '{'}{json.dumps(name)}: "
        yield _texts(column, _json_text)
    yield "}\n"


def _texts(column: pa.Array, tell: Callable[[Any], str]) -> pa.Array:
    """The values of a column as text; each different one is put into words once."""
    if pa.types.is_integer(column.type):
        return column.cast(pa.string())
    if pa.types.is_nested(column.type):
        return pa.array([None if value is None else tell(value) for value in column.to_pylist()], pa.string())
    encoded = column.dictionary_encode()
    return pa.array([tell(value) for value in encoded.dictionary.to_pylist()], pa.string()).take(encoded.indices)


def _csv_text(value: object) -> str:
    """A value as a cell; in quotes where it would be taken for something else."""
    text = str(_plain(value))
    return '"' + text.replace('"', '""') + '"' if _SPECIAL.search(text) else text


def _json_text(value: object) -> str:
    return json.dumps(_plain(value))


def _write_stream(batches: Iterator[pa.RecordBatch]) -> None:
    """Arrow's own stream format."""
    first = next(batches, None)
    if first is None:
        return
    with pa.ipc.new_stream(sys.stdout.buffer, first.schema) as stream:
        for batch in chain([first], batches):
            stream.write_batch(batch)


def _rows(tables: Iterable[pa.Table]) -> Iterator[Mapping[str, Any]]:
    for table in tables:
        for batch in table.to_batches(max_chunksize=1_000):
            yield from ({name: _plain(value) for name, value in row.items()} for row in batch.to_pylist())


def _plain(value: object) -> object:
    """What JSON has a word for; instants with `Z`, decimals exactly, `nan` and `inf` as text."""
    if isinstance(value, datetime):
        return instant_text(epoch_ms(value))
    is_text = isinstance(value, date | Decimal) or (isinstance(value, float) and not isfinite(value))
    return str(value) if is_text else value


def _print_table(rows: Iterator[Mapping[str, Any]], limit: int) -> None:
    shown = list(islice(rows, limit))
    if not shown:
        print("no rows")
        return
    cells = [list(shown[0]), *([_cell(value) for value in row.values()] for row in shown)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(cells[0]))]
    is_number = [isinstance(value, int | float) for value in shown[0].values()]
    for row in cells:
        aligned = zip(row, widths, is_number, strict=True)
        line = "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in aligned)
        print(line.rstrip())
    if next(rows, None) is not None:
        print(f"and more: only the first {limit:,} rows are shown")


def _cell(value: object) -> str:
    return "" if value is None else str(value)
