"""Read the rows of a table, of a range, of a snapshot, or of single windows, and compute a hash of rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, In, IsNull, Or, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.table import Table

from backstream.errors import ContractError, LedgerError
from backstream.eventtime.instants import DAY_MS, utc_datetime
from backstream.eventtime.intervals import Interval, merge_intervals
from backstream.lake.catalog import load_table, open_catalog_for_writing
from backstream.lake.catalog_address import table_identifier
from backstream.lake.published_runs import list_published_run_ids
from backstream.lake.scans import in_interval, plain_column, sort_keys
from backstream.runs.home import Home
from backstream.runs.table_schemas import WINDOW_START

_RUN_COLUMN = "run_id"


def load_rows(
    home: Home, table_name: str, interval: Interval | None = None, snapshot_id: int | None = None
) -> pa.Table:
    """Return the rows of a table, sorted by all columns.

    Args:
        home: the home of the lake.
        table_name: the name of the table.
        interval: selects the rows whose windows start in the interval; None: all rows.
        snapshot_id: the snapshot to read; None: the current one.

    Raises:
        LedgerError: if there is no such table or snapshot.
        ContractError: if an interval is given and the table has no windows.
    """
    with open_catalog_for_writing(home) as catalog:
        table = load_table(catalog, table_name)
        _require_snapshot(table, table_name, snapshot_id)
        row_filter = _range_filter(table, table_name, interval)
        rows = table.scan(row_filter=row_filter, snapshot_id=snapshot_id).to_arrow()
    return _sort(rows)


def load_published_rows(home: Home, dataset: str, suffix: str, interval: Interval | None = None) -> pa.Table:
    """Return the rows of a side table that published runs wrote, sorted by all columns.

    The rows of runs that failed before their publication are left out. Return an empty table if no run has created
    the side table yet.

    Raises:
        LedgerError: if there is no such dataset.
    """
    with open_catalog_for_writing(home) as catalog:
        published = list_published_run_ids(home, load_table(catalog, dataset))
        name = f"{dataset}__{suffix}"
        if not catalog.table_exists(table_identifier(name)):
            return pa.table({})
    rows = load_rows(home, name, interval)
    return rows.filter(pc.is_in(rows[_RUN_COLUMN], pa.array(sorted(published), rows[_RUN_COLUMN].type)))


def content_hash(table: pa.Table) -> str:
    """Return a hash of the rows that depends neither on their order nor on their run ids."""
    content = table.select([name for name in table.column_names if name != _RUN_COLUMN])
    sink = pa.BufferOutputStream()
    plain = pa.table({name: plain_column(content[name]) for name in content.column_names})
    pyarrow.csv.write_csv(_sort(plain), sink)
    return hashlib.sha256(sink.getvalue()).hexdigest()


def _range_filter(table: Table, table_name: str, interval: Interval | None) -> BooleanExpression:
    if interval is None:
        return AlwaysTrue()
    if WINDOW_START not in table.schema().column_names:
        msg = f"table `{table_name}` has no column `{WINDOW_START}`, so that {interval} cannot be selected"
        raise ContractError(msg)
    return in_interval(WINDOW_START, interval)


def _require_snapshot(table: Table, table_name: str, snapshot_id: int | None) -> None:
    if snapshot_id is not None and table.snapshot_by_id(snapshot_id) is None:
        msg = f"table `{table_name}` has no snapshot {snapshot_id}"
        raise LedgerError(msg)


def _sort(table: pa.Table) -> pa.Table:
    return table.sort_by(sort_keys(table))


def load_rows_in_spans(
    home: Home, dataset: str, spans: Sequence[Interval], *, are_in_us: bool = False
) -> pa.Table:
    """Return the published rows of windows that start in some intervals; empty if there is no table.

    Args:
        home: the home of the lake.
        dataset: the dataset.
        spans: the intervals.
        are_in_us: whether windows may start within a millisecond.
    """
    with open_catalog_for_writing(home) as catalog:
        try:
            table = catalog.load_table(table_identifier(dataset))
        except NoSuchTableError:
            return pa.table({})
        if not spans:
            return table.schema().as_arrow().empty_table()
        merged = merge_intervals(spans)
        if not are_in_us and all(span.length_ms == 1 for span in merged):
            # Many single instants are faster as a set. PyIceberg does not select files by a large set.
            days = [Interval(*_day_of(span.start_ms)) for span in merged]
            is_in_days = reduce(Or, [in_interval(WINDOW_START, day) for day in merge_intervals(days)])
            is_wanted: BooleanExpression = And(is_in_days, _starts_at(span.start_ms for span in merged))
        else:
            is_wanted = reduce(Or, [in_interval(WINDOW_START, span) for span in merged])
        rows: pa.Table = table.scan(row_filter=is_wanted).to_arrow()
    return rows


def _day_of(at_ms: int) -> tuple[int, int]:
    start_ms = at_ms // DAY_MS * DAY_MS
    return start_ms, start_ms + DAY_MS


def _starts_at(starts_ms: Iterable[int]) -> BooleanExpression:
    starts = {literal(utc_datetime(start_ms).isoformat()) for start_ms in starts_ms}
    return In(term=Reference(WINDOW_START), values=starts)


def load_window_rows(
    home: Home, dataset: str, starts_ms: Sequence[int], key: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return the published rows of windows with these starts; empty if there is no table.

    Args:
        home: the home of the lake.
        dataset: the dataset.
        starts_ms: the starts of the windows; one with microseconds starts in the millisecond.
        key: the values of the key columns; None: all keys.
    """
    starts = [in_interval(WINDOW_START, Interval(start_ms, start_ms + 1)) for start_ms in starts_ms]
    is_wanted: list[BooleanExpression] = [reduce(Or, starts)]
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
