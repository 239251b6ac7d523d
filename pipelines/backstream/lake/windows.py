"""Which windows are published, by which runs: file by file, as the table's manifests tell it.

A data file never changes, and its entry in a manifest says its day, its bounds and its run: rows are read only of
the files that somebody asks for, and of a file that another program wrote over several days or runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import PrimitiveType

from backstream.core.folders import Home
from backstream.core.instants import DAY_MS
from backstream.core.intervals import Interval
from backstream.lake import history
from backstream.lake.catalog import NAMESPACE, opened
from backstream.lake.filters import within
from backstream.lake.history import run_undone
from backstream.lake.ledger import Status, runs

START, END, RUN = "window_start", "window_end", "run_id"
_US_PER_MS = 1_000


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A data file: UTC days, in ms, and runs of its rows, the first start of a window in it and the last end."""

    task: FileScanTask
    runs: frozenset[tuple[int, str]]
    first_ms: int
    end_ms: int

    @property
    def path(self) -> str:
        """Where it lies."""
        return self.task.file.file_path


@dataclass(frozen=True, slots=True)
class Published:
    """The data files of a dataset as its table was when they were looked up; none without a table."""

    home: Home
    files: tuple[PublishedFile, ...] = ()
    table: Table | None = None

    def rows(self, wanted: Callable[[PublishedFile], bool], keys: Sequence[str]) -> pa.Table:
        """Key columns, window and run of the rows of some files; null where the table has no such key column."""
        tasks = [file.task for file in self.files if wanted(file)]
        names = (START, END, RUN)
        if self.table is None or not tasks:
            return pa.table({name: pa.nulls(0) for name in (*keys, *names)})
        with opened(self.home):  # for its words where a file cannot be read
            found = _read(self.table, tasks, [*keys, *names])
        columns = [found[key] if key in found.column_names else pa.nulls(found.num_rows) for key in keys]
        return pa.table([*columns, *(found[name] for name in names)], names=[*keys, *names])


def published(home: Home, dataset: str, interval: Interval | None = None) -> Published:
    """The files of a dataset, with the days that lie in an interval of whole days when given."""
    with opened(home) as catalog:
        try:
            table = catalog.load_table((NAMESPACE, dataset))
        except NoSuchTableError:
            return Published(home)
        scan = table.scan(row_filter=within(START, interval) if interval else AlwaysTrue())
        files = tuple(_told(table, task) or _looked_up(table, task) for task in scan.plan_files())
    return Published(home, files, table)


def runs_by_day(home: Home, dataset: str, files: Iterable[PublishedFile]) -> dict[int, set[str]]:
    """UTC day, in ms, to the runs that published it; where it has no rows, the newest run that covers it."""
    found: dict[int, set[str]] = {}
    for file in files:
        for day_ms, run_id in file.runs:
            found.setdefault(day_ms, set()).add(run_id)
    for interval, run_id in _ranges(home, dataset):
        for day_ms in range(interval.start_ms, interval.end_ms, DAY_MS):
            found.setdefault(day_ms, {run_id})
    return found


def _told(table: Table, task: FileScanTask) -> PublishedFile | None:
    """A file as its manifest describes it; None where that does not tell the day and the run of all its rows."""
    lower, upper = (_Bounds(table.schema(), of) for of in (task.file.lower_bounds, task.file.upper_bounds))
    first_us, last_us, end_us, run_id = lower.of(START), upper.of(START), upper.of(END), lower.of(RUN)
    if task.delete_files or None in {first_us, last_us, end_us, run_id} or run_id != upper.of(RUN):
        return None
    day_ms = _day_ms(first_us)
    if day_ms != _day_ms(last_us):
        return None
    return PublishedFile(task, frozenset({(day_ms, run_id)}), first_us // _US_PER_MS, end_us // _US_PER_MS)


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The least or the greatest values of a file by column."""

    schema: Schema
    by_field: Mapping[int, bytes] | None

    def of(self, name: str) -> Any:
        field = self.schema.find_field(name)
        value = (self.by_field or {}).get(field.field_id)
        return None if value is None else from_bytes(cast("PrimitiveType", field.field_type), value)


def _looked_up(table: Table, task: FileScanTask) -> PublishedFile:
    """A file by its rows, without making objects of them."""
    found = _read(table, [task], [START, END, RUN])
    days = pc.floor_temporal(found[START], unit="day").cast(pa.int64())
    by_run = pa.table({"day": days, "run": found[RUN]}).group_by(["day", "run"]).aggregate([])
    of_days = frozenset((_day_ms(row["day"]), row["run"]) for row in by_run.to_pylist())
    first_us, end_us = pc.min(found[START].cast(pa.int64())).as_py(), pc.max(found[END].cast(pa.int64())).as_py()
    return PublishedFile(task, of_days, (first_us or 0) // _US_PER_MS, (end_us or 0) // _US_PER_MS)


def _read(table: Table, tasks: Sequence[FileScanTask], columns: Sequence[str]) -> pa.Table:
    known = [name for name in dict.fromkeys(columns) if name in table.schema().column_names]
    return ArrowScan(table.metadata, table.io, table.schema().select(*known), AlwaysTrue()).to_table(tasks)


def _day_ms(value_us: int) -> int:
    return value_us // _US_PER_MS // DAY_MS * DAY_MS


def _ranges(home: Home, dataset: str) -> Iterator[tuple[Interval, str]]:
    """What runs published, the newest first; a run that was rolled back, and its rollback, published nothing."""
    undone: set[str] = set()
    for interval, run_id in _publications(home, dataset):
        if run_id in undone:
            continue
        if (of_run := run_undone(run_id)) is not None:
            undone.add(of_run)
        else:
            yield interval, run_id


def _publications(home: Home, dataset: str) -> Iterator[tuple[Interval, str]]:
    """As snapshots tell it, and the ledger where they were expired; the newest first."""
    with opened(home) as catalog:
        try:
            table = catalog.load_table((NAMESPACE, dataset))
        except NoSuchTableError:
            return
    for snapshot in history.lineage(table):
        interval, run_id = history.interval_of(snapshot), history.said(snapshot, history.RUN_ID)
        if interval and run_id:
            yield interval, run_id
    for run in runs(home, dataset):
        if run.status in (Status.PUBLISHED, Status.ALREADY_PUBLISHED):
            yield Interval(run.since_ms, run.until_ms), run.run_id
