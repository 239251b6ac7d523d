"""Find the first rows of a day, sorted by all columns, without holding all rows of its files in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import TimestamptzType

from backstream.eventtime.instants import utc_datetime
from backstream.eventtime.intervals import Interval

_BATCH_ROWS = 32_768
_BUFFER_BYTES = 65_536
_MIN_INSTANT = datetime.min.replace(tzinfo=UTC)
"""The assumed first instant of a file or a row group without statistics."""


def first_rows(
    table: Table, tasks: Sequence[FileScanTask], column: str, interval: Interval | None, limit: int
) -> pa.Table | None:
    """Return the first rows of files, sorted by all columns.

    Row groups are read in the order of their minimum instants, up to the last wanted row.

    Args:
        table: the current table; a column that a file lacks is null.
        tasks: the files.
        column: the name of the table's first column, an instant.
        interval: the interval of its instants; None: any instant.
        limit: the maximum number of rows.

    Returns:
        None if backstream did not write all of the files; PyIceberg can read such files.
    """
    fields = table.schema().fields
    target = schema_to_pyarrow(table.schema(), include_field_ids=False)
    begins_with_instant = fields[0].name == column and fields[0].field_type == TimestamptzType()
    is_flat = all(field.field_type.is_primitive for field in fields)
    if not begins_with_instant or not is_flat or not all(map(_is_plain_parquet, tasks)):
        return None
    first = _FirstRows(limit, interval)
    starts = [(_min_instant(task.file, fields[0].field_id), task.file.file_path) for task in tasks]
    for start, path in sorted(starts):
        if first.is_before(start):
            break
        with table.io.new_input(path).open() as source:
            file = pq.ParquetFile(source, pre_buffer=False, buffer_size=_BUFFER_BYTES)
            names = _names_by_field_id(file.schema_arrow)
            if names.get(fields[0].field_id) != column or not _has_readable_columns(file.schema_arrow, names):
                return None
            file_columns = [names.get(field.field_id) for field in fields]
            for batch in _scan_batches(file, column, [name for name in file_columns if name], first):
                first.add(_to_current_columns(batch, file_columns, target), column)
    return first.rows(target)


class _FirstRows:
    """The first rows so far, with some more than wanted, so that they are sorted less often."""

    def __init__(self, limit: int, interval: Interval | None) -> None:
        self._limit, self._tables, self._row_count = limit, list[pa.Table](), 0
        self._since = utc_datetime(interval.start_ms) if interval else None
        self._until = utc_datetime(interval.end_ms) if interval else None
        self._last: datetime | None = None

    def is_before(self, instant: datetime) -> bool:
        """Return whether all wanted rows are before an instant."""
        is_later = self._last is not None and self._last < instant
        return is_later or (self._until is not None and self._until <= instant)

    def is_after(self, instant: datetime) -> bool:
        """Return whether all wanted rows are after an instant."""
        return self._since is not None and instant < self._since

    def add(self, rows: pa.Table, column: str) -> None:
        """Add the rows that may be among the first ones."""
        for bound, is_wanted in (
            (self._since, pc.greater_equal),
            (self._until, pc.less),
            (self._last, pc.less_equal),
        ):
            if bound is not None:
                rows = rows.filter(is_wanted(rows[column], pa.scalar(bound, rows[column].type)))
        self._tables.append(rows)
        self._row_count += rows.num_rows
        if self._row_count >= self._limit + _BATCH_ROWS or (self._last is None and self._row_count >= self._limit):
            self._tables = [self._take_first()]
            self._row_count = self._tables[0].num_rows
            self._last = self._tables[0][column][-1].as_py()

    def rows(self, schema: pa.Schema) -> pa.Table:
        """Return the first rows in order."""
        return self._take_first() if self._row_count else schema.empty_table()

    def _take_first(self) -> pa.Table:
        rows = pa.concat_tables(self._tables, promote_options="permissive")
        rows = rows.sort_by([(name, "ascending") for name in rows.column_names])
        # A slice would keep all rows in memory, so that `take` copies the first ones.
        return rows.take(pa.array(range(min(self._limit, rows.num_rows)), pa.int64()))


def _is_plain_parquet(task: FileScanTask) -> bool:
    return task.file.file_format == FileFormat.PARQUET and not task.delete_files


def _min_instant(file: DataFile, field_id: int) -> datetime:
    """Return the minimum instant of a file from its manifest entry."""
    bound = (file.lower_bounds or {}).get(field_id)
    return _MIN_INSTANT if bound is None else utc_datetime(int(from_bytes(TimestamptzType(), bound)) // 1_000)


def _names_by_field_id(schema: pa.Schema) -> Mapping[int, str]:
    """Return the column names of a file by field id."""
    ids = {field.name: (field.metadata or {}).get(b"PARQUET:field_id") for field in schema}
    return {int(field_id): name for name, field_id in ids.items() if field_id is not None}


def _has_readable_columns(schema: pa.Schema, names: Mapping[int, str]) -> bool:
    """Return whether each column of a file has a field id and no dictionary type, which cannot be cast."""
    return len(names) == len(schema) and not any(map(pa.types.is_dictionary, schema.types))


def _scan_batches(
    file: pq.ParquetFile, column: str, names: Sequence[str], first: _FirstRows
) -> Iterator[pa.RecordBatch]:
    """Read the row groups that may contain first rows."""
    groups = [(*_instants_of(file, number, column), number) for number in range(file.num_row_groups)]
    for min_instant, max_instant, number in sorted(groups, key=lambda group: group[0]):
        if first.is_before(min_instant):
            return
        if max_instant is None or not first.is_after(max_instant):
            yield from file.iter_batches(_BATCH_ROWS, [number], columns=names, use_threads=False)


def _instants_of(file: pq.ParquetFile, number: int, column: str) -> tuple[datetime, datetime | None]:
    """Return the minimum and maximum instant of a row group; without statistics the earliest instant and None."""
    group = file.metadata.row_group(number)
    for chunk in map(group.column, range(group.num_columns)):
        if chunk.path_in_schema == column and chunk.statistics is not None and chunk.statistics.has_min_max:
            return chunk.statistics.min, chunk.statistics.max
    return _MIN_INSTANT, None


def _to_current_columns(batch: pa.RecordBatch, file_columns: Sequence[str | None], target: pa.Schema) -> pa.Table:
    """Return the rows of a file with the current columns of the table."""
    columns = [
        pa.nulls(batch.num_rows, field.type) if name is None else _cast(batch[name], field.type)
        for name, field in zip(file_columns, target, strict=True)
    ]
    return pa.table(columns, names=target.names)


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values in the type of the table; text keeps the type of the file, as PyIceberg does."""
    is_same_text = pa.types.is_large_string(kind) and pa.types.is_string(values.type)
    return values if is_same_text or values.type == kind else values.cast(kind)
