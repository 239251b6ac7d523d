"""Reading the lake back: rows of a table, of a range, as of a snapshot; and a hash to compare them."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table import Table

from backstream.errors import ContractError, LedgerError
from backstream.eventtime.intervals import Interval
from backstream.lake.catalog import NAMESPACE, load_table, open_catalog_for_writing
from backstream.lake.published_runs import list_published_run_ids
from backstream.lake.scans import in_interval
from backstream.runs.home import Home

_RANGE_COLUMN = "window_start"
_RUN_COLUMN = "run_id"


def load_rows(
    home: Home, table_name: str, interval: Interval | None = None, snapshot_id: int | None = None
) -> pa.Table:
    """The rows of a table, sorted by all columns; of the windows that start in the interval, when given.

    `snapshot_id` reads the table as it was then; None: as it is now.

    Raises:
        LedgerError: when there is no such table or snapshot.
        ContractError: when an interval is given and the table has no windows.
    """
    with open_catalog_for_writing(home) as catalog:
        table = load_table(catalog, table_name)
        _require_snapshot(table, table_name, snapshot_id)
        found = table.scan(
            row_filter=_range_filter(table, table_name, interval), snapshot_id=snapshot_id
        ).to_arrow()
    return _sorted(found)


def load_published_rows(home: Home, dataset: str, suffix: str, interval: Interval | None = None) -> pa.Table:
    """The rows of a side table that published runs wrote, sorted: a run that ended early has left rows there too.

    Without a row where no run has made the table yet.

    Raises:
        LedgerError: when there is no such dataset.
    """
    with open_catalog_for_writing(home) as catalog:
        published = list_published_run_ids(home, load_table(catalog, dataset))
        name = f"{dataset}__{suffix}"
        if not catalog.table_exists((NAMESPACE, name)):
            return pa.table({})
    found = load_rows(home, name, interval)
    return found.filter(pc.is_in(found[_RUN_COLUMN], pa.array(sorted(published), found[_RUN_COLUMN].type)))


def content_hash(table: pa.Table) -> str:
    """A hash of what the rows say, in any order, and whichever run wrote them."""
    said = table.select([name for name in table.column_names if name != _RUN_COLUMN])
    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(_sorted(said), sink)
    return hashlib.sha256(sink.getvalue()).hexdigest()


def _range_filter(table: Table, table_name: str, interval: Interval | None) -> BooleanExpression:
    if interval is None:
        return AlwaysTrue()
    if _RANGE_COLUMN not in table.schema().column_names:
        msg = f"table `{table_name}` has no column `{_RANGE_COLUMN}` to take {interval} from"
        raise ContractError(msg)
    return in_interval(_RANGE_COLUMN, interval)


def _require_snapshot(table: Table, table_name: str, snapshot_id: int | None) -> None:
    if snapshot_id is not None and table.snapshot_by_id(snapshot_id) is None:
        msg = f"table `{table_name}` has no snapshot {snapshot_id}"
        raise LedgerError(msg)


def _sorted(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in table.column_names])
