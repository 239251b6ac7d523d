"""Read the manifests and snapshots of a table of windows with PyIceberg, for `published_windows.py`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, StaticTable, Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import PrimitiveType

from backstream.eventtime.instants import DAY_MS
from backstream.lake import snapshots
from backstream.lake.catalog import load_table, open_catalog_for_writing
from backstream.runs.file_summaries import write_summary
from backstream.runs.home import Home
from backstream.runs.table_schemas import WINDOW_END, WINDOW_START

_US_PER_MS = 1_000


def summarize_window_files(home: Home, dataset: str, known: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the data files and publications of a table, and keep them as a summary.

    Args:
        home: the home of the lake.
        dataset: the dataset.
        known: an earlier summary; its manifests are not read again.
    """
    with open_catalog_for_writing(home) as catalog:
        table = load_table(catalog, dataset)
        columns = table.schema().column_names
        known_manifests = known["manifests"] if known and known.get("columns") == columns else {}
        manifests = _summarize_manifests(table, known_manifests)
    commits = [commit for snapshot in snapshots.list_commits(table) if (commit := _summarize_commit(snapshot))]
    summary = {
        "of": table.metadata_location,
        "columns": columns,
        "manifests": manifests,
        "commits": commits,
    }
    write_summary(home.summary(f"windows-{dataset}"), summary)
    return summary


def scan_window_keys(
    home: Home, dataset: str, location: str, paths: Collection[str], keys: Sequence[str]
) -> pa.Table:
    """Return key columns, window, and run of the rows of some files.

    `location` is that of a metadata file: the table is read in this state. A key that the table lacks is null.
    """
    names = (WINDOW_START, WINDOW_END, "run_id")
    with open_catalog_for_writing(home) as catalog:
        properties = load_table(catalog, dataset).io.properties
        table = StaticTable.from_metadata(location, properties)
        tasks = [task for task in table.scan().plan_files() if task.file.file_path in paths]
        rows = _scan_columns(table, tasks, [*keys, *names])
    columns = [rows[key] if key in rows.column_names else pa.nulls(rows.num_rows) for key in keys]
    return pa.table([*columns, *(rows[name] for name in names)], names=[*keys, *names])


def _summarize_commit(snapshot: Snapshot) -> list[Any] | None:
    """Return the range, run, time, and rows of a snapshot; None if another program made it."""
    interval = snapshots.range_of_snapshot(snapshot)
    run_id = snapshots.summary_property(snapshot, snapshots.RUN_ID)
    if interval is None or run_id is None:
        return None
    rows = snapshots.summary_number(snapshot, snapshots.ROWS)
    return [interval.start_ms, interval.end_ms, run_id, snapshot.timestamp_ms, rows]


def _summarize_manifests(table: Table, known: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the files of each manifest; all files are read again if any file has row-level deletes."""
    current = table.current_snapshot()
    manifests = current.manifests(table.io) if current else []
    if any(manifest.content is ManifestContent.DELETES for manifest in manifests):
        tasks = list(table.scan().plan_files())
        files = [
            _summarize_rows(table, task) if task.delete_files else _summarize_file(table, task.file)
            for task in tasks
        ]
        return {"": files}
    return {
        path: known[path] if path in known else _summarize_manifest(table, manifest)
        for path, manifest in ((manifest.manifest_path, manifest) for manifest in manifests)
    }


def _summarize_manifest(table: Table, manifest: ManifestFile) -> list[Any]:
    entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    return [_summarize_file(table, entry.data_file) for entry in entries]


def _summarize_file(table: Table, file: DataFile) -> list[Any]:
    """Return the path, days, and bounds of a file, from its manifest entry or else from its rows."""
    lower, upper = (_Bounds(table.schema(), bounds) for bounds in (file.lower_bounds, file.upper_bounds))
    first_us, run_id = lower.from_column(WINDOW_START), lower.from_column("run_id")
    last_us, end_us = upper.from_column(WINDOW_START), upper.from_column(WINDOW_END)
    if None in {first_us, last_us, end_us, run_id} or run_id != upper.from_column("run_id"):
        return _summarize_rows(table, FileScanTask(file))
    day_ms = _day_ms(first_us)
    if day_ms != _day_ms(last_us):
        return _summarize_rows(table, FileScanTask(file))
    return [file.file_path, [[day_ms, run_id]], first_us // _US_PER_MS, end_us // _US_PER_MS]


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The minimum or the maximum values of a file by column."""

    schema: Schema
    by_field: Mapping[int, bytes] | None

    def from_column(self, name: str) -> Any:
        field = self.schema.find_field(name)
        value = (self.by_field or {}).get(field.field_id)
        return None if value is None else from_bytes(cast("PrimitiveType", field.field_type), value)


def _summarize_rows(table: Table, task: FileScanTask) -> list[Any]:
    """Return the path, days, and bounds of a file from its rows, computed in Arrow without Python objects."""
    rows = _scan_columns(table, [task], [WINDOW_START, WINDOW_END, "run_id"])
    days = pc.floor_temporal(rows[WINDOW_START], unit="day").cast(pa.int64())
    day_runs = pa.table({"day": days, "run": rows["run_id"]}).group_by(["day", "run"]).aggregate([])
    days_and_runs = sorted([_day_ms(row["day"]), row["run"]] for row in day_runs.to_pylist())
    first_us, end_us = (
        pc.min(rows[WINDOW_START].cast(pa.int64())).as_py(),
        pc.max(rows[WINDOW_END].cast(pa.int64())).as_py(),
    )
    return [task.file.file_path, days_and_runs, (first_us or 0) // _US_PER_MS, (end_us or 0) // _US_PER_MS]


def _scan_columns(table: Table, tasks: Sequence[FileScanTask], columns: Sequence[str]) -> pa.Table:
    existing = [name for name in dict.fromkeys(columns) if name in table.schema().column_names]
    return ArrowScan(table.metadata, table.io, table.schema().select(*existing), AlwaysTrue()).to_table(tasks)


def _day_ms(value_us: int) -> int:
    return value_us // _US_PER_MS // DAY_MS * DAY_MS
