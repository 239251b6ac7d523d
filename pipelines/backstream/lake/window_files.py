"""What the manifests and snapshots of a table of windows tell, read with PyIceberg; `windows.py` keeps it."""

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
from pyiceberg.types import PrimitiveType

from backstream.eventtime.instants import DAY_MS
from backstream.lake import snapshots
from backstream.lake.catalog import load_table, open_catalog_for_writing
from backstream.lake.published_windows import END, RUN, START
from backstream.lake.storage import Warehouse
from backstream.runs.file_summaries import write_summary
from backstream.runs.home import Home

_US_PER_MS = 1_000


def summarize_window_files(home: Home, dataset: str, known: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a table holds, as a summary that is kept; of manifests that are `known` no entry is read again."""
    with open_catalog_for_writing(home) as catalog:
        table = load_table(catalog, dataset)
        columns = table.schema().column_names
        before = known["manifests"] if known and known.get("columns") == columns else {}
        manifests = _manifests(table, before)
    ranges = (
        (snapshots.range_of_snapshot(each), snapshots.summary_property(each, snapshots.RUN_ID))
        for each in snapshots.list_ancestors(table)
    )
    publications = [
        (interval.start_ms, interval.end_ms, run_id) for interval, run_id in ranges if interval and run_id
    ]
    summary = {
        "of": table.metadata_location,
        "columns": columns,
        "manifests": manifests,
        "publications": publications,
    }
    write_summary(home.summary(f"windows-{dataset}"), summary)
    return summary


def scan_window_keys(home: Home, location: str, paths: Collection[str], keys: Sequence[str]) -> pa.Table:
    """Key columns, window and run of the rows of some files of a table as it was at a location of its metadata."""
    names = (START, END, RUN)
    with open_catalog_for_writing(home):  # for its words where a file cannot be read
        table = StaticTable.from_metadata(location, dict(Warehouse.from_home(home).properties))
        tasks = [task for task in table.scan().plan_files() if task.file.file_path in paths]
        found = _read(table, tasks, [*keys, *names])
    columns = [found[key] if key in found.column_names else pa.nulls(found.num_rows) for key in keys]
    return pa.table([*columns, *(found[name] for name in names)], names=[*keys, *names])


def _manifests(table: Table, known: Mapping[str, Any]) -> dict[str, list[Any]]:
    """What each manifest says of its files; all files anew where single rows of any were deleted."""
    current = table.current_snapshot()
    manifests = current.manifests(table.io) if current else []
    if any(manifest.content is ManifestContent.DELETES for manifest in manifests):
        tasks = list(table.scan().plan_files())
        return {"": [_looked_up(table, task) if task.delete_files else _entry(table, task.file) for task in tasks]}
    return {
        each.manifest_path: known[each.manifest_path] if each.manifest_path in known else _entries(table, each)
        for each in manifests
    }


def _entries(table: Table, manifest: ManifestFile) -> list[Any]:
    return [
        _entry(table, each.data_file) for each in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    ]


def _entry(table: Table, file: DataFile) -> list[Any]:
    """A file as its manifest describes it; by its rows where that does not tell their day and run."""
    lower, upper = (_Bounds(table.schema(), of) for of in (file.lower_bounds, file.upper_bounds))
    first_us, run_id = lower.from_column(START), lower.from_column(RUN)
    last_us, end_us = upper.from_column(START), upper.from_column(END)
    if None in {first_us, last_us, end_us, run_id} or run_id != upper.from_column(RUN):
        return _looked_up(table, FileScanTask(file))
    day_ms = _day_ms(first_us)
    if day_ms != _day_ms(last_us):
        return _looked_up(table, FileScanTask(file))
    return [file.file_path, [[day_ms, run_id]], first_us // _US_PER_MS, end_us // _US_PER_MS]


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The least or the greatest values of a file by column."""

    schema: Schema
    by_field: Mapping[int, bytes] | None

    def from_column(self, name: str) -> Any:
        field = self.schema.find_field(name)
        value = (self.by_field or {}).get(field.field_id)
        return None if value is None else from_bytes(cast("PrimitiveType", field.field_type), value)


def _looked_up(table: Table, task: FileScanTask) -> list[Any]:
    """A file by its rows, without making objects of them."""
    found = _read(table, [task], [START, END, RUN])
    days = pc.floor_temporal(found[START], unit="day").cast(pa.int64())
    by_run = pa.table({"day": days, "run": found[RUN]}).group_by(["day", "run"]).aggregate([])
    of_days = sorted([_day_ms(row["day"]), row["run"]] for row in by_run.to_pylist())
    first_us, end_us = pc.min(found[START].cast(pa.int64())).as_py(), pc.max(found[END].cast(pa.int64())).as_py()
    return [task.file.file_path, of_days, (first_us or 0) // _US_PER_MS, (end_us or 0) // _US_PER_MS]


def _read(table: Table, tasks: Sequence[FileScanTask], columns: Sequence[str]) -> pa.Table:
    known = [name for name in dict.fromkeys(columns) if name in table.schema().column_names]
    return ArrowScan(table.metadata, table.io, table.schema().select(*known), AlwaysTrue()).to_table(tasks)


def _day_ms(value_us: int) -> int:
    return value_us // _US_PER_MS // DAY_MS * DAY_MS
