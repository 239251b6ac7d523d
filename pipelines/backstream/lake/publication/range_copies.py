"""Copy a published range into a table of another owner, in one commit; rows outside the range stay as they are."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import write_file
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionFieldValue, PartitionKey
from pyiceberg.table import Table, WriteTask
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType

from backstream.errors import PlanError
from backstream.eventtime.instants import utc_datetime
from backstream.eventtime.intervals import Interval
from backstream.lake import snapshots
from backstream.lake.catalog import load_table
from backstream.lake.commit import commit_snapshot, with_retries
from backstream.lake.publication.conflicts import Base, require_unchanged
from backstream.lake.publication.target_table import TargetTable
from backstream.lake.published_runs import PublishedRun
from backstream.lake.scans import MAX_ROWS, digest_files, in_interval, scan_files, scan_rows_by_day
from backstream.lake.tables import iceberg_type
from backstream.runs.plan import Plan, definition_id
from backstream.runs.results import rollback_id
from backstream.runs.table_schemas import Column
from backstream.text import text_logger

log = text_logger(__name__)
_PREFIX = "_partition_"


@dataclass(frozen=True, slots=True)
class RangeCopy:
    """A range of a dataset for a table; `base_id` is the snapshot of the table that the run assumed."""

    dataset: str
    run_id: str
    interval: Interval
    definition_id: str
    target: TargetTable
    base: Base

    @classmethod
    def from_plan(cls, plan: Plan) -> Self | None:
        """Return the copy that a run makes; None if its definition names no other table."""
        target = TargetTable.from_definition(plan.definition)
        if target is None:
            return None
        base = Base(plan.base_snapshots.get(target.table), plan.base_files.get(target.table, ""))
        writer = definition_id(Path(plan.definition_path))
        return cls(plan.dataset, plan.run_id, plan.range, writer, target, base)

    @classmethod
    def from_rollback(cls, catalog: Catalog, run: PublishedRun) -> Self | None:
        """Return the copy for the rollback of a run; None if the run made none, or the table does not exist."""
        text = snapshots.summary_property(run.snapshot, snapshots.TARGET)
        target = TargetTable.from_text(text) if text else None
        if target is None or not catalog.table_exists(target.identifier):
            return None
        table = target.load(catalog)
        copied = snapshots.find_snapshot_of_run(table, run.run_id)
        if copied is None and not snapshots.is_history_expired(table):
            return None
        writer = snapshots.summary_property(run.snapshot, snapshots.DEFINITION) or ""
        base = Base(copied.snapshot_id if copied else None)
        return cls(run.dataset, rollback_id(run.run_id), run.interval, writer, target, base)

    @property
    def text(self) -> str:
        """The copy as an action."""
        return f"publish {self.dataset} {self.interval} into `{self.target.table}`"


def plan_target(
    catalog: Catalog, target: TargetTable, columns: Sequence[Column], writer: str, interval: Interval | None = None
) -> Base:
    """Return the current state of a table, after a check that a run can publish into it.

    An interval asks for the digest of its files.

    Raises:
        PlanError: if there is no such table, or it cannot take the rows.
    """
    table = target.load(catalog)
    target.require_writable(table, {column.name: iceberg_type(column.type) for column in columns}, writer)
    files = digest_files(table, interval, target.window_start) if interval else ""
    return Base(table.metadata.current_snapshot_id, files)


def require_copyable(catalog: Catalog, copy: RangeCopy, columns: Mapping[str, IcebergType]) -> Table | None:
    """Return the table of a copy that can be made now; None if it was made.

    Raises:
        PlanError: if the table cannot take the rows.
        ConflictError: if another program changed the range of the table since the base.
    """
    table = copy.target.load(catalog)
    if snapshots.find_commit_of_run(table, copy.run_id):
        return None
    copy.target.require_writable(table, columns, copy.definition_id)

    def is_own(snapshot: Snapshot) -> bool:
        return snapshots.summary_property(snapshot, snapshots.DEFINITION) == copy.definition_id

    require_unchanged(table, copy.base, copy.interval, copy.text, is_own, copy.target.window_start)
    return table


def copy_range(catalog: Catalog, copy: RangeCopy) -> None:
    """Replace a range of a table with the rows that the dataset has there now; a second call changes nothing.

    Raises:
        PlanError: if the table cannot take the rows, or has row-level deletes in the range.
        ConflictError: if another program changed the range of the table since the base.
        ContractError: if a row lacks a value that the table requires.
    """

    def attempt() -> None:
        windows = load_table(catalog, copy.dataset)
        table = require_copyable(catalog, copy, column_types(windows))
        if table is None:
            return
        removed, kept = _split_replaced_files(table, copy)
        added = [file for rows in _new_rows(windows, table, copy) for file in write_partitioned_files(table, rows)]
        commit_snapshot(table, Operation.OVERWRITE, [*added, *kept], removed, _summary(copy))
        log.info("Published %s rows to `%s`.", f"{sum(file.record_count for file in added):,}", copy.target.table)

    with_retries(copy.text, attempt)


def column_types(table: Table) -> dict[str, IcebergType]:
    """Return the types of a table's columns by name."""
    return {field.name: field.field_type for field in table.schema().fields}


def _split_replaced_files(table: Table, copy: RangeCopy) -> tuple[list[DataFile], list[DataFile]]:
    """Return the files that have rows of the range, and new files with their rows outside it."""
    column, removed, kept = copy.target.window_start, list[DataFile](), list[DataFile]()
    for task in table.scan(row_filter=in_interval(column, copy.interval)).plan_files():
        if task.delete_files:
            failure = f"cannot publish into table `{copy.target.table}`"
            msg = (
                f"{failure}: a file of {copy.interval} has row-level deletes\n  {task.file.file_path}\n\n"
                "hint: compact the table, then publish again"
            )
            raise PlanError(msg)
        rows = scan_files(table, [task.file])
        outside = rows.filter(_is_outside(rows[column], copy.interval))
        if outside.num_rows == rows.num_rows:
            continue
        removed.append(task.file)
        if outside.num_rows:
            kept += write_partitioned_files(table, outside.cast(table.schema().as_arrow()))
    return removed, kept


def _is_outside(starts: pa.ChunkedArray, interval: Interval) -> pa.ChunkedArray:
    """Return whether each window start is outside the interval; a null is."""
    since, until = (
        pa.scalar(utc_datetime(at_ms)).cast(pa.timestamp("us", tz=starts.type.tz))
        for at_ms in (interval.start_ms, interval.end_ms)
    )
    is_inside = pc.and_(pc.greater_equal(starts, since), pc.less(starts, until))
    return pc.fill_null(pc.invert(is_inside), fill_value=True)


def _new_rows(windows: Table, table: Table, copy: RangeCopy) -> Iterator[pa.Table]:
    """Yield the rows of the range in the schema of the table, in parts of whole days that fit into memory."""
    pending: list[pa.Table] = []
    snapshot = windows.current_snapshot()
    for rows in scan_rows_by_day(windows, copy.interval, snapshot.snapshot_id) if snapshot else ():
        if pending and _count(pending) + rows.num_rows > MAX_ROWS:
            yield pa.concat_tables(pending)
            pending = []
        pending.append(copy.target.convert(rows, table.schema()))
    if pending:
        yield pa.concat_tables(pending)


def _count(parts: Sequence[pa.Table]) -> int:
    return sum(part.num_rows for part in parts)


def _summary(copy: RangeCopy) -> dict[str, str]:
    """Return the properties of the snapshot: the run, its range, and its definition."""
    return {
        snapshots.RUN_ID: copy.run_id,
        snapshots.SINCE_MS: str(copy.interval.start_ms),
        snapshots.UNTIL_MS: str(copy.interval.end_ms),
        snapshots.DEFINITION: copy.definition_id,
    }


def write_partitioned_files(table: Table, rows: pa.Table) -> list[DataFile]:
    """Write rows as one file per table partition, sorted by the table's sort order, without a commit.

    Args:
        table: the table; its properties select the location and the format of the files.
        rows: the rows, in the schema of the table.
    """
    write_id = uuid.uuid4()
    tasks = (
        WriteTask(write_id, number, table.schema(), part.to_batches(), partition_key=key)
        for number, (key, part) in enumerate(_split_by_partition(table, _sort(table, rows)))
    )
    files = list(write_file(table.io, table.metadata, tasks))
    for file in files:
        file.spec_id = table.spec().spec_id  # `from_args` ignores it, because it isn't a field of the entry
    return files


def _sort(table: Table, rows: pa.Table) -> pa.Table:
    """Sort rows by the fields of the sort order that are columns; a transform of a column is not computed."""
    schema, orders = table.schema(), {"asc": "ascending", "desc": "descending"}
    keys = [
        (schema.find_column_name(field.source_id), orders[str(field.direction.value).lower()])
        for field in table.sort_order().fields
        if isinstance(field.transform, IdentityTransform)
    ]
    return rows.sort_by([key for key in keys if key[0] in rows.column_names]) if keys else rows


def _split_by_partition(table: Table, rows: pa.Table) -> Iterator[tuple[PartitionKey | None, pa.Table]]:
    schema, fields = table.schema(), table.spec().fields
    if not fields:
        yield None, rows
        return
    names, rows = [f"{_PREFIX}{field.name}" for field in fields], rows.combine_chunks()
    values = rows
    for name, field in zip(names, fields, strict=True):
        column = schema.find_column_name(field.source_id)
        source_type = schema.find_field(field.source_id).field_type
        values = values.append_column(name, _transform(rows[column], field, source_type))
    for partition in values.select(names).group_by(names).aggregate([]).to_pylist():
        conditions = [
            pc.field(name).is_null() if value is None else pc.field(name) == value
            for name, value in partition.items()
        ]
        key = [PartitionFieldValue(field, partition[name]) for name, field in zip(names, fields, strict=True)]
        part = values.filter(reduce(and_, conditions)).drop_columns(names)
        yield PartitionKey(key, table.spec(), schema), part


def _transform(column: pa.ChunkedArray, field: PartitionField, source_type: IcebergType) -> pa.Array:
    """Return the partition values of a column; each distinct value is transformed once."""
    encoded = pc.dictionary_encode(_to_physical(column).combine_chunks())
    transform = field.transform.transform(source_type)
    return pa.array([transform(value) for value in encoded.dictionary.to_pylist()]).take(encoded.indices)


def _to_physical(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return timestamps as microseconds and dates as days, which the transforms of PyIceberg take."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    return column.cast(pa.int32()) if pa.types.is_date32(column.type) else column
