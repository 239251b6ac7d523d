"""Append rows to the tables of the ledger, read them back, and summarize them by data file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, And, In, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation

from backstream.eventtime.instants import epoch_ms
from backstream.lake.catalog import open_catalog_for_writing
from backstream.lake.commit import commit_snapshot, with_retries
from backstream.lake.compaction import compact_data_files, expire_old_snapshots
from backstream.lake.scans import equal_values
from backstream.lake.snapshot_producers import write_data_files
from backstream.lake.tables import create_or_evolve_table
from backstream.runs.file_summaries import write_summary
from backstream.runs.home import Home
from backstream.runs.table_schemas import Table


def append_rows(
    home: Home, name: str, wanted: Table, key: Sequence[str], stored: Sequence[Mapping[str, Any]]
) -> bool:
    """Append rows to a table of the ledger; return False if a row with the first row's key exists."""
    if not stored:
        return False
    with open_catalog_for_writing(home) as catalog:

        def attempt() -> bool:
            table = create_or_evolve_table(catalog, name, wanted)
            if key and _contains(table, {column: stored[0][column] for column in key}):
                return False
            rows = pa.Table.from_pylist(list(stored), schema=table.schema().as_arrow())
            files = write_data_files(table, rows)
            commit_snapshot(table, Operation.APPEND, files, [], {})
            return True

        is_new = with_retries(f"record in table `{name}`", attempt)
        if is_new:
            compact_data_files(catalog, name)
            expire_old_snapshots(catalog, name)
    return is_new


def scan_rows(
    home: Home, name: str, wanted: Table, dataset: str, run_ids: Collection[str] | None = None
) -> list[dict[str, Any]]:
    """Return the rows of a dataset in a table of the ledger, for some runs or for all."""
    row_filter = equal_values(dataset=dataset)
    if run_ids is not None:
        row_filter = And(row_filter, In(term=Reference("run_id"), values={literal(run_id) for run_id in run_ids}))
    with open_catalog_for_writing(home) as catalog:
        table = create_or_evolve_table(catalog, name, wanted)
        rows: list[dict[str, Any]] = table.scan(row_filter=row_filter).to_arrow().to_pylist()
    return rows


def summarize_files(home: Home, name: str, wanted: Table, known: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the rows of a table of the ledger by data file, and keep them as a summary.

    Args:
        home: the home of the ledger.
        name: of the table.
        wanted: its columns.
        known: an earlier summary; its files are not read again.
    """
    with open_catalog_for_writing(home) as catalog:
        table = create_or_evolve_table(catalog, name, wanted)
        columns = [column.name for column in wanted.columns]
        known_files = known["files"] if known and known.get("columns") == columns else {}
        tasks = {task.file.file_path: task for task in table.scan().plan_files()}
        files = {
            path: known_files[path] if path in known_files else _load_values(table, task, columns)
            for path, task in tasks.items()
        }
    summary = {"of": table.metadata_location, "columns": columns, "files": files}
    write_summary(home.summary(name), summary)
    return summary


def _load_values(table: IcebergTable, task: FileScanTask, columns: Sequence[str]) -> list[list[Any]]:
    """Return the rows of a file as JSON values, with instants in epoch milliseconds."""
    rows = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table([task])
    return [[_to_json(row[name]) for name in columns] for row in rows.to_pylist()]


def _to_json(value: object) -> object:
    return epoch_ms(value) if isinstance(value, datetime) else value


def _contains(table: IcebergTable, values: Mapping[str, Any]) -> bool:
    return bool(table.scan(row_filter=equal_values(**values), limit=1).to_arrow().num_rows)
