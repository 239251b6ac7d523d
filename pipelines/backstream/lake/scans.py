"""A range's files by days: whole files are what a publication replaces, a day is what fits into memory."""

from __future__ import annotations

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
from backstream.lake.catalog import NAMESPACE, open_catalog_for_writing
from backstream.lake.first_rows import first_rows
from backstream.runs.home import Home

DAY_COLUMN = "window_start"
MOST_ROWS = 500_000
"""Of two states of a table that are compared at once, unless one day alone has more."""
_NO_DAY = -(2**31)


def list_files(table: Table, interval: Interval, snapshot_id: int | None = None) -> list[DataFile]:
    """The files whose windows start in a range of whole days: each file holds one day.

    `snapshot_id` takes those of the table as it was then; None: as it is now.

    Raises:
        ContractError: when another program wrote a file over several days, or deletes of single rows.
    """
    scan = table.scan(row_filter=in_interval(DAY_COLUMN, interval), snapshot_id=snapshot_id)
    tasks = list(scan.plan_files())
    days = range(interval.start_ms // DAY_MS, interval.end_ms // DAY_MS)
    for task in tasks:
        if not _is_one_day(table, task.file, days):
            raise _foreign(table, task.file, f"has a file that is not of one day of {interval}")
        if task.delete_files:
            raise _foreign(table, task.file, "has a file of which single rows were deleted")
    return [task.file for task in tasks]


def count_rows(home: Home, dataset: str, interval: Interval) -> int:
    """Return how many rows of a dataset are published of the windows that start in a range of whole days.

    The manifests tell; no file is opened.
    """
    with open_catalog_for_writing(home) as catalog:
        try:
            table = catalog.load_table((NAMESPACE, dataset))
        except NoSuchTableError:
            return 0
        return sum(file.record_count for file in list_files(table, interval))


def scan_rows_by_day(
    table: Table, interval: Interval | None, snapshot_id: int | None, limit: int | None = None
) -> Iterator[pa.Table]:
    """The rows of the windows that start in an interval (None: all), a table per day, days in order.

    With the columns that the table has now. A file of another partitioning is a day of its own, before all others.
    `limit` takes the first so many rows of each day; None: all. Manifests are read as days are asked for.
    """
    for part in _parts(table, interval, snapshot_id):
        wanted = in_interval(DAY_COLUMN, part) if part else AlwaysTrue()
        days: dict[int, list[FileScanTask]] = defaultdict(list)
        for task in table.scan(row_filter=wanted, snapshot_id=snapshot_id).plan_files():
            days[task.file.partition[0] if len(task.file.partition) else _NO_DAY].append(task)
        for _, tasks in sorted(days.items()):
            rows = None if limit is None else first_rows(table, tasks, DAY_COLUMN, part, limit)
            if rows is None:
                found = ArrowScan(table.metadata, table.io, table.schema(), wanted).to_table(tasks)
                rows = found.sort_by([(name, "ascending") for name in found.column_names]).slice(0, limit)
            if rows.num_rows:
                yield rows


def _parts(table: Table, interval: Interval | None, snapshot_id: int | None) -> Iterator[Interval | None]:
    """One part of the days after the other, each twice as long as the one before it; None: all days at once.

    Manifests of which nothing lies in a part are not opened: the first days are there before the last are known.
    """
    days = _days_of(table, snapshot_id)
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


def _days_of(table: Table, snapshot_id: int | None) -> range | None:
    """The days of a table as its manifest list tells them, counted from 1970-01-01; None where it does not."""
    snapshot = table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    found: list[int] = []
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        told = manifest.partitions or []
        if manifest.partition_spec_id != table.spec().spec_id or len(told) != 1:
            return None
        lower, upper = told[0].lower_bound, told[0].upper_bound
        if told[0].contains_null or lower is None or upper is None:
            return None
        found += [int(from_bytes(IntegerType(), bound)) for bound in (lower, upper)]
    return range(min(found), max(found) + 1) if found else None


def group_files_by_day(files: Iterable[DataFile]) -> Mapping[int, list[DataFile]]:
    """The files per day, counted from 1970-01-01."""
    found: dict[int, list[DataFile]] = defaultdict(list)
    for file in files:
        found[file.partition[0]].append(file)
    return found


def pair_files_by_day(
    old: Iterable[DataFile], new: Iterable[DataFile]
) -> Iterator[tuple[Sequence[DataFile], Sequence[DataFile]]]:
    """The old and the new files of the same whole days, in the order of days.

    Days go together up to `MOST_ROWS`: a scan costs milliseconds, however few its rows are.
    """
    was, now = group_files_by_day(old), group_files_by_day(new)
    before: list[DataFile] = []
    after: list[DataFile] = []
    held = 0
    for day in sorted({*was, *now}):
        rows = sum(file.record_count for file in (*was.get(day, ()), *now.get(day, ())))
        if held and held + rows > MOST_ROWS:
            yield before, after
            before, after, held = [], [], 0
        before += was.get(day, ())
        after += now.get(day, ())
        held += rows
    if held:
        yield before, after


def scan_files(table: Table, files: Iterable[DataFile]) -> pa.Table:
    """The rows of files with the columns that the table has now; null where a file lacks one."""
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    return scan.to_table([FileScanTask(file) for file in files])


def _is_one_day(table: Table, file: DataFile, days: range) -> bool:
    """Written under another partitioning, a file may reach beyond the range: removing it would lose rows."""
    return file.spec_id == table.spec().spec_id and file.partition[0] in days


def _foreign(table: Table, file: DataFile, what: str) -> ContractError:
    return ContractError(f"table `{table.name()[-1]}` {what}\n  {file.file_path}")


_US_PER_MS = 1_000


def in_interval(column: str, interval: Interval) -> BooleanExpression:
    """Rows whose timestamp lies in `[start, end)`."""
    since, until = (literal(value_ms * _US_PER_MS) for value_ms in (interval.start_ms, interval.end_ms))
    term = Reference(column)
    return And(GreaterThanOrEqual(term=term, value=since), LessThan(term=term, value=until))


def equal_values(**values: str) -> BooleanExpression:
    """Rows that have each of the values in the column of its name."""
    each: list[BooleanExpression] = [
        EqualTo(term=Reference(column), value=literal(value)) for column, value in values.items()
    ]
    return reduce(And, each)
