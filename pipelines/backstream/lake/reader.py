"""Read the rows of a table, of a range, or of a snapshot, and compute a hash to compare them."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table import Table

from backstream.errors import ContractError, LedgerError
from backstream.eventtime.intervals import Interval
from backstream.lake.catalog import load_table, open_catalog_for_writing
from backstream.lake.catalog_address import table_identifier
from backstream.lake.list_columns import plain_column, sort_keys
from backstream.lake.published_runs import list_published_run_ids
from backstream.lake.scans import in_interval
from backstream.runs.home import Home

_RANGE_COLUMN = "window_start"
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
    if _RANGE_COLUMN not in table.schema().column_names:
        msg = f"table `{table_name}` has no column `{_RANGE_COLUMN}`, so that {interval} cannot be selected"
        raise ContractError(msg)
    return in_interval(_RANGE_COLUMN, interval)


def _require_snapshot(table: Table, table_name: str, snapshot_id: int | None) -> None:
    if snapshot_id is not None and table.snapshot_by_id(snapshot_id) is None:
        msg = f"table `{table_name}` has no snapshot {snapshot_id}"
        raise LedgerError(msg)


def _sort(table: pa.Table) -> pa.Table:
    return table.sort_by(sort_keys(table))
