"""The table of the recorded job `iceberg`: its snapshots are made again, with the ids that the job wrote down."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from tests.sources.tables import Archive, compact
from tests.structured_streaming.recorded import JOBS

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("key", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("value", pa.int64()),
    ]
)


def recorded_snapshots() -> list[dict[str, Any]]:
    """Return the snapshots of the table, the oldest first."""
    return [json.loads(line) for line in (JOBS / "iceberg/snapshots.jsonl").read_text().splitlines()]


def create_table(folder: Path) -> Archive:
    """Create the table without a snapshot."""
    folder.mkdir(parents=True)
    archive = Archive(f"sqlite:///{folder}/archive.db", f"file://{folder}/warehouse", {})
    with archive.catalog() as catalog:
        catalog.create_namespace("sales")
        catalog.create_table("sales.orders", SCHEMA)
    return archive


def add_snapshot(archive: Archive, snapshot: Mapping[str, Any]) -> None:
    """Make the next recorded snapshot; only those that append need the recorded id."""
    if snapshot["operation"] == "replace":
        compact(archive)
        return
    with archive.table() as table:
        if "where" in snapshot:
            table.delete(snapshot["where"])
        else:
            _append(table, snapshot)


def _append(table: Table, snapshot: Mapping[str, Any]) -> None:
    with table.transaction() as transaction:
        commit = _FastAppendFiles(Operation.APPEND, transaction, table.io)
        commit._snapshot_id = snapshot["snapshot_id"]  # noqa: SLF001 - the job names it
        for records in snapshot["files"]:
            rows = pa.Table.from_pylist([{**record, "ts": record["ts_us"]} for record in records], SCHEMA)
            for file in _dataframe_to_data_files(table.metadata, rows, table.io):
                commit.append_data_file(file)
        commit.commit()


def expire(archive: Archive, count: int) -> None:
    """Remove the oldest snapshots from the history of the table."""
    with archive.table() as table:
        ids = [snapshot.snapshot_id for snapshot in table.snapshots()[:count]]
        table.maintenance.expire_snapshots().by_ids(ids).commit()
