"""The first rows of a day, by all columns: its files may have any number of rows, and few of them are held."""

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
_BEGINNING = datetime.min.replace(tzinfo=UTC)
"""Where a file or a row group without statistics may begin."""


def first_rows(
    table: Table, tasks: Sequence[FileScanTask], column: str, interval: Interval | None, limit: int
) -> pa.Table | None:
    """Return the first rows of files, sorted by all columns.

    Row groups are read in the order of their least instants; those after the last row that is wanted are not read.

    Args:
        table: as it is now; a column that a file lacks is null.
        tasks: the files.
        column: the name of the table's first column, an instant.
        interval: where its instants lie; None: anywhere.
        limit: how many rows at most.

    Returns:
        None, if a file is not as backstream writes it: PyIceberg knows how to read it.
    """
    fields = table.schema().fields
    target = schema_to_pyarrow(table.schema(), include_field_ids=False)
    is_ours = fields[0].name == column and fields[0].field_type == TimestamptzType()
    if not is_ours or not all(each.field_type.is_primitive for each in fields) or not all(map(_is_whole, tasks)):
        return None
    first = _First(limit, interval)
    starts = [(_least(task.file, fields[0].field_id), task.file.file_path) for task in tasks]
    for start, path in sorted(starts):
        if first.is_before(start):
            break
        with table.io.new_input(path).open() as opened:
            file = pq.ParquetFile(opened, pre_buffer=False, buffer_size=_BUFFER_BYTES)
            names = _names(file.schema_arrow)
            if names.get(fields[0].field_id) != column or not _is_known(file.schema_arrow, names):
                return None
            known = [names.get(each.field_id) for each in fields]
            for batch in _batches(file, column, [name for name in known if name], first):
                first.add(_as_now(batch, known, target), column)
    return first.rows(target)


class _First:
    """The first rows so far: some more than are wanted, so that few of them are sorted often."""

    def __init__(self, limit: int, interval: Interval | None) -> None:
        self._limit, self._found, self._held = limit, list[pa.Table](), 0
        self._since = utc_datetime(interval.start_ms) if interval else None
        self._until = utc_datetime(interval.end_ms) if interval else None
        self._last: datetime | None = None

    def is_before(self, instant: datetime) -> bool:
        """Return whether no row from an instant on is wanted."""
        is_later = self._last is not None and self._last < instant
        return is_later or (self._until is not None and self._until <= instant)

    def is_after(self, instant: datetime) -> bool:
        """Return whether no row up to an instant is wanted."""
        return self._since is not None and instant < self._since

    def add(self, rows: pa.Table, column: str) -> None:
        """Add the rows that may be among the first."""
        for bound, is_wanted in (
            (self._since, pc.greater_equal),
            (self._until, pc.less),
            (self._last, pc.less_equal),
        ):
            if bound is not None:
                rows = rows.filter(is_wanted(rows[column], pa.scalar(bound, rows[column].type)))
        self._found.append(rows)
        self._held += rows.num_rows
        if self._held >= self._limit + _BATCH_ROWS or (self._last is None and self._held >= self._limit):
            self._found = [self._sorted()]
            self._held = self._found[0].num_rows
            self._last = self._found[0][column][-1].as_py()

    def rows(self, schema: pa.Schema) -> pa.Table:
        """Return the first rows in order."""
        return self._sorted() if self._held else schema.empty_table()

    def _sorted(self) -> pa.Table:
        rows = pa.concat_tables(self._found, promote_options="permissive")
        rows = rows.sort_by([(name, "ascending") for name in rows.column_names])
        # A slice would keep all rows in memory.
        return rows.take(pa.array(range(min(self._limit, rows.num_rows)), pa.int64()))


def _is_whole(task: FileScanTask) -> bool:
    return task.file.file_format == FileFormat.PARQUET and not task.delete_files


def _least(file: DataFile, field_id: int) -> datetime:
    """The least instant of a file, as its manifest gives it."""
    bound = (file.lower_bounds or {}).get(field_id)
    return _BEGINNING if bound is None else utc_datetime(int(from_bytes(TimestamptzType(), bound)) // 1_000)


def _names(schema: pa.Schema) -> Mapping[int, str]:
    """The columns of a file by the ids of their fields."""
    ids = {field.name: (field.metadata or {}).get(b"PARQUET:field_id") for field in schema}
    return {int(field_id): name for name, field_id in ids.items() if field_id is not None}


def _is_known(schema: pa.Schema, names: Mapping[int, str]) -> bool:
    """Return whether each column of a file has an id, and values that can be cast."""
    return len(names) == len(schema) and not any(map(pa.types.is_dictionary, schema.types))


def _batches(file: pq.ParquetFile, column: str, names: Sequence[str], first: _First) -> Iterator[pa.RecordBatch]:
    """The rows of the row groups that may have some of the first."""
    spans = [(*_span(file, number, column), number) for number in range(file.num_row_groups)]
    for least, greatest, number in sorted(spans, key=lambda span: span[0]):
        if first.is_before(least):
            return
        if greatest is None or not first.is_after(greatest):
            yield from file.iter_batches(_BATCH_ROWS, [number], columns=names, use_threads=False)


def _span(file: pq.ParquetFile, number: int, column: str) -> tuple[datetime, datetime | None]:
    """The least and the greatest instant of a row group; without statistics the beginning of time, and None."""
    group = file.metadata.row_group(number)
    for each in map(group.column, range(group.num_columns)):
        if each.path_in_schema == column and each.statistics is not None and each.statistics.has_min_max:
            return each.statistics.min, each.statistics.max
    return _BEGINNING, None


def _as_now(batch: pa.RecordBatch, known: Sequence[str | None], target: pa.Schema) -> pa.Table:
    """The rows of a file with the columns that the table has now."""
    columns = [
        pa.nulls(batch.num_rows, field.type) if name is None else _cast(batch[name], field.type)
        for name, field in zip(known, target, strict=True)
    ]
    return pa.table(columns, names=target.names)


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values as the table has them; text stays as the file has it, like where PyIceberg reads it."""
    is_same_text = pa.types.is_large_string(kind) and pa.types.is_string(values.type)
    return values if is_same_text or values.type == kind else values.cast(kind)
