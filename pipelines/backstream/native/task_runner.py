"""Run a task of the native engine in DuckDB: read the files, and write the rows and the unreadable records."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.definition.prepared_columns import (
    ARRIVAL_TEXT,
    EVENT_TEXT,
    FILE,
    LINE,
    PREPARED_COLUMNS,
    REASON,
    RECORD,
)
from backstream.eventtime.duplicates import RecordGap
from backstream.eventtime.records import SIDE_OUTPUT, Fate
from backstream.native import record_scans, sql
from backstream.native.cells import CellsTask, GeneratorTask, read_task_cells, run_task_generators
from backstream.native.database import open_database, register_firing_times, split_outputs, write_query
from backstream.native.footers import list_files_with_rest
from backstream.native.record_scans import is_readable, is_within
from backstream.native.records import group_files_by_schema
from backstream.native.sessions.halo import Halo, HaloTask, find_task_halo
from backstream.native.sessions.task import SessionTask, UnitTask
from backstream.native.sessions.task_runner import run_session_task, run_unit_task
from backstream.native.sql import STAGING_CHUNK, cast_columns, is_true, quote_name, quote_path, quote_text
from backstream.native.task import (
    IndexTask,
    ReadSpec,
    RestTask,
    TaskOutput,
    TaskResult,
    WindowTask,
    WrittenFiles,
    duckdb_type,
    own_output,
    own_path,
)
from backstream.native.task_disk import TaskDisk, open_task_disk
from backstream.native.window_queries import WindowQueries
from backstream.runs.table_schemas import DROPPED, PANES, QUARANTINE, WINDOWS
from backstream.storage.files import file_uri
from backstream.storage.stores import NO_STORES, Stores, is_in_store

if TYPE_CHECKING:
    import duckdb


FAILED = "the native engine could not compute"
"""The beginning of a task's error message."""


def run_index_task(task: IndexTask, stores: Stores = NO_STORES) -> pa.Table:
    """Return the rows of the arrival index for some files, with `path`.

    Raises:
        RuntimeError: with a message that begins with `FAILED` and has the task and the cause.
    """
    with _running(task, stores) as disk:
        groups = group_files_by_schema(disk.fetch(task.files, [*task.reading.types]), task.reading)
        with open_database(task.memory_mb) as database:
            rows = database.sql(record_scans.buckets_query(task.reading, groups, task.grid)).to_arrow_table()
        paths = pa.array(map(disk.location_of, record_scans.list_group_files(groups)), pa.string())
        return rows.drop_columns(["file"]).append_column("path", paths.take(rows["file"].combine_chunks()))


def run_halo_task(task: HaloTask, stores: Stores = NO_STORES) -> Halo:
    """Return how far the sessions of a task extend.

    Raises:
        RuntimeError: with a message that begins with `FAILED` and has the task and the cause.
    """
    with _running(task, stores) as disk, open_database(task.memory_mb) as database:
        return find_task_halo(task, disk, database)


def run_cells_task(task: CellsTask, stores: Stores = NO_STORES) -> pa.Table:
    """Return the cells and markers of a task.

    Raises:
        RuntimeError: with a message that begins with `FAILED` and has the task and the cause.
    """
    with _running(task, stores) as disk, open_database(task.memory_mb) as database:
        return read_task_cells(task, disk, database)


def run_generator_task(task: GeneratorTask, stores: Stores = NO_STORES) -> pa.Table:
    """Return the output of the custom generators of a task.

    Raises:
        RuntimeError: with a message that begins with `FAILED` and has the task and the cause.
    """
    with _running(task, stores) as disk, open_database(task.cells.memory_mb) as database:
        return run_task_generators(task, disk, database)


@contextmanager
def _running(task: Task | IndexTask | HaloTask | CellsTask | GeneratorTask, stores: Stores) -> Iterator[TaskDisk]:
    """Provide the disk of a task, and name the task in an error."""
    with open_task_disk(stores) as disk:
        try:
            yield disk
        except Exception as error:
            msg = f"{FAILED} {task}: {disk.with_locations(str(error))}"
            raise RuntimeError(msg) from error


Task = WindowTask | RestTask | UnitTask | SessionTask


def run_native_task(task: Task, stores: Stores = NO_STORES) -> TaskResult:
    """Run a task and return its result.

    Args:
        task: the task.
        stores: the object stores of its files.

    Raises:
        RuntimeError: with a message that begins with `FAILED` and has the task and the cause.
    """
    with _running(task, stores) as disk:
        match task:
            case WindowTask():
                return _run_window_task(task, disk)
            case RestTask():
                return _run_rest_task(task, disk)
            case UnitTask():
                return run_unit_task(task)
            case SessionTask():
                return run_session_task(task, disk)


def _run_window_task(planned: WindowTask, disk: TaskDisk) -> TaskResult:
    """Write the windows of a task, and the counts of its records."""
    task = replace(
        planned,
        files=disk.fetch(planned.files, [*planned.reading.types]),
        windows=disk.output_for(own_output(planned.windows)),
        panes=planned.panes and disk.output_for(own_output(planned.panes)),
        dropped=planned.dropped and disk.output_for(own_output(planned.dropped)),
        counts_path=disk.path_for(own_path(planned.counts_path)),
    )
    queries = WindowQueries(task, group_files_by_schema(task.files, task.reading), disk.location_of)
    with open_database(task.memory_mb) as database:
        register_firing_times(database, task.firing_times)
        queries.mark_duplicates(database)
        is_counted = write_query(database, queries.counts(), task.counts_path) > 0
        scanned, dropped = _count_records(database, task.counts_path) if is_counted else (0, 0)
        rows: dict[str, int] = {}
        has_windows = bool(task.numbers)
        if has_windows and task.panes is None:
            rows[WINDOWS] = write_query(database, queries.recomputed_windows(), task.windows.path, task.windows)
        elif has_windows and task.panes is not None:
            rows[PANES] = write_query(database, queries.panes(), task.panes.path, task.panes)
            if rows[PANES]:
                rows[WINDOWS] = write_query(database, queries.published_windows(), task.windows.path, task.windows)
        if dropped and task.dropped is not None:
            rows[DROPPED] = write_query(database, queries.dropped_events(), task.dropped.path, task.dropped)
    files = split_outputs(rows, {WINDOWS: task.windows, PANES: task.panes, DROPPED: task.dropped})
    counts = disk.deliver(task.counts_path) if is_counted else None
    return TaskResult(task.number, socket.gethostname(), scanned, counts, disk.deliver_tables(files))


def _count_records(database: duckdb.DuckDBPyConnection, path: str) -> tuple[int, int]:
    """Return the number of records in a file of counts, and the number of dropped ones."""
    is_dropped = f"fate IN ({', '.join(map(sql.quote_text, SIDE_OUTPUT))})"
    sums = f"sum(events)::BIGINT, coalesce(sum(events) FILTER (WHERE {is_dropped}), 0)::BIGINT"
    ((events, dropped),) = database.execute(f"SELECT {sums} FROM read_parquet({sql.quote_path(path)})").fetchall()
    return int(events), int(dropped)


def _run_rest_task(task: RestTask, disk: TaskDisk) -> TaskResult:
    """Count the records that window tasks leave out, and write counts of unreadable records by owning chunk."""
    candidates = list_files_with_rest(task.files, task.reading, task.interval, disk.stores)
    if not candidates:
        return TaskResult(task.number, socket.gethostname(), 0, None)
    with open_database(task.memory_mb) as database:
        groups = group_files_by_schema(disk.fetch(candidates, [*task.reading.types]), task.reading)
        rows = database.execute(record_scans.rest_query(task, groups)).fetchall()
    files = [disk.location_of(file) for file in record_scans.list_group_files(groups)]
    quarantined = [
        (partition, task.owners[files[number]], events)
        for number, partition, can_be_read, events in rows
        if not can_be_read and files[number] in task.owners
    ]
    counts, written = None, dict[str, WrittenFiles]()
    if quarantined:
        path = disk.path_for(own_path(task.counts_path))
        _write_quarantine_counts(quarantined, Path(path))
        counts = disk.deliver(path)
        unreadable = sorted({files[number] for number, _, can_be_read, _ in rows if not can_be_read})
        written = _write_quarantine(task, [file for file in unreadable if file in task.owners], disk)
    return TaskResult(task.number, socket.gethostname(), sum(row[3] for row in rows), counts, written)


def _write_quarantine(task: RestTask, locations: Sequence[str], disk: TaskDisk) -> dict[str, WrittenFiles]:
    """Write the unreadable records of some files, if the task must; they have all columns of the files."""
    if task.quarantine is None:
        return {}
    output, paths = disk.output_for(own_output(task.quarantine)), disk.fetch(locations)
    files = [
        _QuarantinedFile(path, location, task.owners[location])
        for path, location in zip(paths, locations, strict=True)
    ]
    with open_database(task.memory_mb) as database:
        rows = write_query(database, _quarantine_query(task.reading, files, output), output.path, output)
    return disk.deliver_tables(split_outputs({QUARANTINE: rows}, {QUARANTINE: output}))


def _write_quarantine_counts(quarantined: Sequence[tuple[str | None, int, int]], path: Path) -> None:
    """Write counts of unreadable records: source partition, chunk number, and number of records."""
    partitions, chunks, events = zip(*quarantined, strict=True)
    nulls = pa.nulls(len(quarantined), pa.int64())
    table = pa.table(
        {
            "event_time_ms": nulls,
            "source_partition": pa.array(partitions, pa.string()),
            "fate": pa.array([Fate.QUARANTINED.value] * len(quarantined), pa.string()),
            "chunk_number": pa.array(chunks, pa.int32()),
            "events": pa.array(events, pa.int64()),
            "first_arrival_ms": nulls,
            "last_arrival_ms": nulls,
            **{gap.value: nulls for gap in RecordGap},
        }
    )
    pq.write_table(table, path)


class _QuarantinedFile(NamedTuple):
    """A local file with unreadable records, its location, and the number of the chunk that owns these records."""

    path: str
    location: str
    chunk: int


def _quarantine_query(reading: ReadSpec, files: Sequence[_QuarantinedFile], output: TaskOutput) -> str:
    """Return a query of the rows of the table for all unreadable records of some files."""
    return "\nUNION ALL\n".join(_query_file(reading, file, output) for file in files)


def _query_file(reading: ReadSpec, file: _QuarantinedFile, output: TaskOutput) -> str:
    schema = pq.read_schema(file.path)

    def first_of(name: str, expression: str) -> str:
        """Return the value that the preparation of the source left for a record; another one without it."""
        return f"coalesce({quote_name(name)}, {expression})" if name in schema.names else expression

    missing = [
        f"NULL::{duckdb_type(type_name)} AS {quote_name(name)}"
        for name, type_name in reading.types.items()
        if name not in schema.names
    ]
    values = {
        "reason": first_of(REASON, _reason(reading)),
        "source_partition": f"{quote_name(reading.partition)}::VARCHAR" if reading.partition else "NULL",
        "event_time": first_of(EVENT_TEXT, _time_text(reading, reading.event_time)),
        "arrival_time": first_of(
            ARRIVAL_TEXT, _time_text(reading, reading.arrival_time) if _has_arrival(reading) else "NULL"
        ),
        "record": first_of(RECORD, _record(schema)),
        "file": first_of(FILE, quote_text(_uri(file.location))),
        "line": quote_name(LINE) if LINE in schema.names else "NULL",
        "run_id": quote_text(output.run_id),
        STAGING_CHUNK: str(file.chunk),
    }
    rows = f"SELECT {', '.join(['*', *missing])} FROM read_parquet({quote_path(file.path)})"
    return f"SELECT {cast_columns(values, output)} FROM ({rows}) WHERE NOT {is_true(is_readable(reading))}"


def _uri(location: str) -> str:
    return location if is_in_store(location) else file_uri(location)


def _has_arrival(reading: ReadSpec) -> bool:
    """Return whether the definition has an arrival time; otherwise it is the event time."""
    return reading.arrival_time != reading.event_time


def _reason(reading: ReadSpec) -> str:
    """Return the first reason why a record is unreadable, in the order of Spark."""
    names: Mapping[str, str | None] = {
        "null_source_partition": reading.partition,
        "null_sequence": reading.sequence,
        "null_arrival_time": reading.arrival_time if _has_arrival(reading) else None,
    }
    cases = [
        f"WHEN {quote_name(reading.event_time)} IS NULL THEN 'null_event_time'",
        f"WHEN NOT ({is_within(reading, reading.valid)}) THEN 'absurd_event_time'",
        *(f"WHEN {quote_name(name)} IS NULL THEN {quote_text(reason)}" for reason, name in names.items() if name),
    ]
    return f"CASE {' '.join(cases)} END"


def _time_text(reading: ReadSpec, name: str) -> str:
    column = quote_name(name)
    in_utc = f"{column} AT TIME ZONE 'UTC'" if reading.types[name] == "timestamp" else column
    return f"CAST({in_utc} AS VARCHAR)"


def _record(schema: pa.Schema) -> str:
    """Return all columns of a record as JSON."""
    fields = ", ".join(f"{quote_name(field.name)} := {_json_value(field)}" for field in _unique(schema))
    return f"to_json(struct_pack({fields}))::VARCHAR"


def _unique(schema: pa.Schema) -> Iterable[pa.Field]:
    return {field.name: field for field in schema if field.name not in PREPARED_COLUMNS}.values()


def _json_value(field: pa.Field) -> str:
    column = quote_name(field.name)
    if pa.types.is_floating(field.type):
        # JSON has no such numbers. By way of its text, a narrow number keeps its digits.
        word = f"CASE WHEN isnan({column}) THEN 'NaN' WHEN {column} > 0 THEN 'Infinity' ELSE '-Infinity' END"
        number = f"to_json({column}::VARCHAR::DOUBLE)"
        return f"CASE WHEN {column} IS NULL OR isfinite({column}) THEN {number} ELSE to_json({word}) END"
    if not pa.types.is_timestamp(field.type):
        return column
    in_utc, zone = (f"{column} AT TIME ZONE 'UTC'", " || 'Z'") if field.type.tz else (column, "")
    return f"strftime({in_utc}, '%Y-%m-%dT%H:%M:%S.%g'){zone}"
