"""Rows on standard output: for people, for spreadsheets, for programs."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from itertools import islice
from math import isfinite
from typing import Any

import pyarrow as pa

from backstream.core.forms import Format
from backstream.core.instants import epoch_ms, instant_text

_TABLE_ROWS = 20


def print_rows(tables: Iterable[pa.Table], form: Format, limit: int | None) -> None:
    """Print rows as they come, one table in memory at a time; `limit` None: 20 in a table for people, else all."""
    if form is Format.TABLE:
        _print_table(_rows(tables), limit or _TABLE_ROWS)
    elif form is Format.CSV:
        _print_csv(islice(_rows(tables), limit))
    else:
        for row in islice(_rows(tables), limit):
            print(json.dumps(row))


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


def _print_csv(rows: Iterator[Mapping[str, Any]]) -> None:
    writer = None
    for row in rows:
        if writer is None:
            writer = csv.DictWriter(sys.stdout, list(row), lineterminator="\n")
            writer.writeheader()
        writer.writerow(row)


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
