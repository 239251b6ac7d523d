"""Read the published rows of single windows and keys; other files are not opened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import And, BooleanExpression, EqualTo, In, IsNull, Or, Reference
from pyiceberg.expressions.literals import literal

from backstream.eventtime.instants import DAY_MS, utc_datetime
from backstream.eventtime.intervals import Interval, merge_intervals
from backstream.lake.catalog import open_catalog_for_writing
from backstream.lake.catalog_address import table_identifier
from backstream.lake.scans import in_interval
from backstream.runs.home import Home

_START = "window_start"


def load_rows_in_spans(home: Home, dataset: str, spans: Sequence[Interval]) -> pa.Table:
    """Return the published rows of windows that start in some intervals; empty if there is no table.

    Args:
        home: the home of the lake.
        dataset: the dataset.
        spans: the intervals.
    """
    with open_catalog_for_writing(home) as catalog:
        try:
            table = catalog.load_table(table_identifier(dataset))
        except NoSuchTableError:
            return pa.table({})
        if not spans:
            return table.schema().as_arrow().empty_table()
        merged = merge_intervals(spans)
        if all(span.length_ms == 1 for span in merged):
            # Many single instants are faster as a set. PyIceberg does not select files by a large set.
            days = [Interval(*_day_of(span.start_ms)) for span in merged]
            is_in_days = reduce(Or, [in_interval(_START, day) for day in merge_intervals(days)])
            is_wanted: BooleanExpression = And(is_in_days, _starts_at(span.start_ms for span in merged))
        else:
            is_wanted = reduce(Or, [in_interval(_START, span) for span in merged])
        rows: pa.Table = table.scan(row_filter=is_wanted).to_arrow()
    return rows


def _day_of(at_ms: int) -> tuple[int, int]:
    start_ms = at_ms // DAY_MS * DAY_MS
    return start_ms, start_ms + DAY_MS


def _starts_at(starts_ms: Iterable[int]) -> BooleanExpression:
    starts = {literal(utc_datetime(start_ms).isoformat()) for start_ms in starts_ms}
    return In(term=Reference(_START), values=starts)


def load_window_rows(
    home: Home, dataset: str, starts_ms: Sequence[int], key: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return the published rows of windows with these starts; empty if there is no table.

    Args:
        home: the home of the lake.
        dataset: the dataset.
        starts_ms: the starts of the windows.
        key: the values of the key columns; None: all keys.
    """
    is_wanted: list[BooleanExpression] = [_starts_at(starts_ms)]
    is_wanted += [_equals(name, value) for name, value in (key or {}).items()]
    with open_catalog_for_writing(home) as catalog:
        try:
            table = catalog.load_table(table_identifier(dataset))
        except NoSuchTableError:
            return []
        known = set(table.schema().column_names)
        if not set(key or {}) <= known:
            return []
        rows: pa.Table = table.scan(row_filter=reduce(And, is_wanted)).to_arrow()
    found: list[dict[str, Any]] = rows.to_pylist()
    return found


def _equals(name: str, value: Any) -> BooleanExpression:
    return IsNull(term=Reference(name)) if value is None else EqualTo(term=Reference(name), value=literal(value))
