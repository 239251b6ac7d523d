"""Scan the windows of a table by day, and build its row filters and sort keys."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce

import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    LessThan,
    Reference,
)
from pyiceberg.expressions.literals import literal
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import IntegerType

from backstream.errors import ContractError
from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.intervals import Interval
from backstream.lake.catalog import open_catalog_for_writing
from backstream.lake.catalog_address import table_identifier
from backstream.lake.first_rows import first_rows
from backstream.lake.snapshots import find_commit_of_run
from backstream.runs.home import Home

DAY_COLUMN = "window_start"
_US_PER_MS = 1_000
MAX_ROWS = 500_000
"""The maximum number of rows that are compared at once; a single day may have more."""
_UNKNOWN_DAY = -(2**31)


def list_files(table: Table, interval: Interval, snapshot_id: int | None = None) -> list[DataFile]:
    """Return the files whose windows start in a range of whole days; each file holds one day.

    `snapshot_id` selects the files of a snapshot; None: those of the current one.

    Raises:
        ContractError: if another program wrote a file over several days, or row-level deletes.
    """
    scan = table.scan(row_filter=in_interval(DAY_COLUMN, interval), snapshot_id=snapshot_id)
    tasks = list(scan.plan_files())
    days = range(interval.start_ms // DAY_MS, interval.end_ms // DAY_MS)
    for task in tasks:
        if not _is_within_days(table, task.file, days):
            raise _foreign_file_error(table, task.file, f"has a file that does not hold one day of {interval}")
        if task.delete_files:
            raise _foreign_file_error(table, task.file, "has a file with row-level deletes")
    return [task.file for task in tasks]


def digest_files(table: Table | None, interval: Interval, column: str = DAY_COLUMN) -> str:
    """Return a digest of the paths of the current files that may hold an interval, and of their row-level deletes.

    Args:
        table: a table of windows; None: it does not exist yet.
        interval: the interval of window starts.
        column: the column of the window start, a timestamp.
    """
    tasks = table.scan(row_filter=in_interval(column, interval)).plan_files() if table else ()
    paths = sorted({file.file_path for task in tasks for file in (task.file, *task.delete_files)})
    return hashlib.sha256("\n".join(paths).encode()).hexdigest()[:16]


def count_rows(home: Home, dataset: str, interval: Interval) -> int:
    """Return the number of published rows of a dataset whose windows start in a range of whole days."""
    return sum(count_rows_by_day(home, dataset, interval).values())


def count_rows_by_day(home: Home, dataset: str, interval: Interval, before: str = "") -> dict[int, int]:
    """Return the number of published rows by UTC day (in ms), of windows that start in a range of whole days.

    The counts are read from manifests; no data file is opened. `before` is the run id. If it is published, these
    are the rows that it replaced; none if the snapshot before it has expired.
    """
    with open_catalog_for_writing(home) as catalog:
        try:
            table = catalog.load_table(table_identifier(dataset))
        except NoSuchTableError:
            return {}
        own = find_commit_of_run(table, before) if before else None
        if own and (own.parent_snapshot_id is None or table.snapshot_by_id(own.parent_snapshot_id) is None):
            return {}
        days = _group_files_by_day(list_files(table, interval, own.parent_snapshot_id if own else None))
    return {day * DAY_MS: sum(file.record_count for file in files) for day, files in days.items()}


def scan_rows_by_day(
    table: Table, interval: Interval | None, snapshot_id: int | None, limit: int | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of windows as one table per day, in the order of days, with the current columns of the table.

    Files of another partitioning are read as one day before all others. Manifests are read as days are consumed.

    Args:
        table: the table of windows.
        interval: the interval of window starts; None: all rows.
        snapshot_id: the snapshot to read; None: the current one.
        limit: the maximum number of first rows per day; None: all.
    """
    for part in _split_days(table, interval, snapshot_id):
        row_filter = in_interval(DAY_COLUMN, part) if part else AlwaysTrue()
        days: dict[int, list[FileScanTask]] = defaultdict(list)
        for task in table.scan(row_filter=row_filter, snapshot_id=snapshot_id).plan_files():
            days[task.file.partition[0] if len(task.file.partition) else _UNKNOWN_DAY].append(task)
        for _, tasks in sorted(days.items()):
            rows = None if limit is None else first_rows(table, tasks, DAY_COLUMN, part, limit)
            if rows is None:
                scanned = ArrowScan(table.metadata, table.io, table.schema(), row_filter).to_table(tasks)
                rows = scanned.sort_by(sort_keys(scanned)).slice(0, limit)
            if rows.num_rows:
                yield rows


def _split_days(table: Table, interval: Interval | None, snapshot_id: int | None) -> Iterator[Interval | None]:
    """Yield consecutive parts of the days, each twice as long as the previous one; None for all days at once.

    A part opens only the manifests that contain its days, so that the first rows arrive early.
    """
    days = _day_range(table, snapshot_id)
    if days is None:
        yield interval
        return
    start_ms, end_ms = days.start * DAY_MS, days.stop * DAY_MS
    if interval:
        start_ms, end_ms = max(start_ms, interval.start_ms), min(end_ms, interval.end_ms)
    length_ms = DAY_MS
    while start_ms < end_ms:
        until_ms = min(start_ms - start_ms % DAY_MS + length_ms, end_ms)
        yield Interval(start_ms, until_ms)
        start_ms, length_ms = until_ms, length_ms * 2


def _day_range(table: Table, snapshot_id: int | None) -> range | None:
    """Return the days of a table, counted from 1970-01-01, by its manifest list; None if the list lacks them."""
    snapshot = table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    days: list[int] = []
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        partitions = manifest.partitions or []
        if manifest.partition_spec_id != table.spec().spec_id or len(partitions) != 1:
            return None
        lower, upper = partitions[0].lower_bound, partitions[0].upper_bound
        if partitions[0].contains_null or lower is None or upper is None:
            return None
        days += [int(from_bytes(IntegerType(), bound)) for bound in (lower, upper)]
    return range(min(days), max(days) + 1) if days else None


def _group_files_by_day(files: Iterable[DataFile]) -> Mapping[int, list[DataFile]]:
    """Return the files by day, counted from 1970-01-01."""
    files_by_day: dict[int, list[DataFile]] = defaultdict(list)
    for file in files:
        files_by_day[file.partition[0]].append(file)
    return files_by_day


def pair_files_by_day(
    old: Iterable[DataFile], new: Iterable[DataFile]
) -> Iterator[tuple[Sequence[DataFile], Sequence[DataFile]]]:
    """Yield the old and the new files of the same whole days, in the order of days.

    Days are combined up to `MAX_ROWS` rows, because each scan costs milliseconds even for a few rows.
    """
    old_by_day, new_by_day = _group_files_by_day(old), _group_files_by_day(new)
    old_files: list[DataFile] = []
    new_files: list[DataFile] = []
    pending_rows = 0
    for day in sorted({*old_by_day, *new_by_day}):
        old_of_day, new_of_day = old_by_day.get(day, ()), new_by_day.get(day, ())
        rows = sum(file.record_count for file in (*old_of_day, *new_of_day))
        if pending_rows and pending_rows + rows > MAX_ROWS:
            yield old_files, new_files
            old_files, new_files, pending_rows = [], [], 0
        old_files += old_of_day
        new_files += new_of_day
        pending_rows += rows
    if pending_rows:
        yield old_files, new_files


def scan_files(table: Table, files: Iterable[DataFile]) -> pa.Table:
    """Return the rows of files with the current columns of the table; a column that a file lacks is null."""
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    return scan.to_table([FileScanTask(file) for file in files])


def scan_batches(table: Table, files: Iterable[DataFile]) -> Iterator[pa.Table]:
    """Yield the rows of `scan_files`, a part of a file at a time; only one file is in memory."""
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    for file in files:
        for batch in scan.to_record_batches([FileScanTask(file)]):
            yield pa.Table.from_batches([batch])


def _is_within_days(table: Table, file: DataFile, days: range) -> bool:
    """Return whether all rows of the file are of these days; a file of another partitioning may have more."""
    return file.spec_id == table.spec().spec_id and file.partition[0] in days


def _foreign_file_error(table: Table, file: DataFile, problem: str) -> ContractError:
    return ContractError(f"table `{table.name()[-1]}` {problem}\n  {file.file_path}")


def in_interval(column: str, interval: Interval) -> BooleanExpression:
    """Return the condition that a timestamp is in `[start, end)`."""
    since, until = (literal(value_ms * _US_PER_MS) for value_ms in (interval.start_ms, interval.end_ms))
    term = Reference(column)
    return And(GreaterThanOrEqual(term=term, value=since), LessThan(term=term, value=until))


def equal_values(**values: str) -> BooleanExpression:
    """Return the condition that each named column has its value."""
    conditions: list[BooleanExpression] = [
        EqualTo(term=Reference(column), value=literal(value)) for column, value in values.items()
    ]
    return reduce(And, conditions)


def plain_column(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return lists as JSON text, which Arrow can compare and write as CSV; other values are unchanged."""
    if not pa.types.is_nested(values.type):
        return values
    texts = [None if value is None else json.dumps(value, default=str) for value in values.to_pylist()]
    return pa.chunked_array([pa.array(texts, pa.string())])


def sort_keys(table: pa.Table) -> list[tuple[str, str]]:
    """Return the sort keys of all columns that Arrow can sort by, which are not lists."""
    return [(field.name, "ascending") for field in table.schema if not pa.types.is_nested(field.type)]
