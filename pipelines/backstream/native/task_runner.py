"""One task of the native engine, run in DuckDB: it reads the files itself, and writes the rows that it makes."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.eventtime.records import Fate
from backstream.native import sql
from backstream.native.database import open_database, register_thresholds, split_outputs, write_query
from backstream.native.records import group_files_by_schema
from backstream.native.sessions.task import SessionTask, UnitTask
from backstream.native.sessions.task_runner import run_session_task, run_unit_task
from backstream.native.task import IndexTask, RestTask, TaskResult, WindowTask, own_output, own_path
from backstream.native.window_queries import WindowQueries
from backstream.runs.table_schemas import DROPPED, PANES, WINDOWS

if TYPE_CHECKING:
    import duckdb

FAILED = "the native engine could not compute"
"""How the error of a task begins."""


def run_index_task(task: IndexTask) -> pa.Table:
    """Return the rows of the arrival index for some files, with `path`.

    Raises:
        RuntimeError: beginning with `FAILED`, and naming what could not be computed and why.
    """
    try:
        groups = group_files_by_schema(task.files, task.reading)
        with open_database(task.memory_mb) as opened:
            found = opened.sql(sql.buckets_query(task.reading, groups, task.grid)).to_arrow_table()
        paths = pa.array(sql.list_group_files(groups), pa.string())
        return found.drop_columns(["file"]).append_column("path", paths.take(found["file"].combine_chunks()))
    except Exception as error:
        msg = f"{FAILED} {task}: {error}"
        raise RuntimeError(msg) from error


Task = WindowTask | RestTask | UnitTask | SessionTask


def run_native_task(task: Task) -> TaskResult:
    """Do what a task says.

    Raises:
        RuntimeError: beginning with `FAILED`, and naming what could not be computed and why.
    """
    try:
        match task:
            case WindowTask():
                return _run_window_task(task)
            case RestTask():
                return _run_rest_task(task)
            case UnitTask():
                return run_unit_task(task)
            case SessionTask():
                return run_session_task(task)
    except Exception as error:
        msg = f"{FAILED} {task}: {error}"
        raise RuntimeError(msg) from error


def _run_window_task(asked: WindowTask) -> TaskResult:
    """Write the windows of a task, and the counts of its stretch."""
    task = replace(
        asked,
        windows=own_output(asked.windows),
        panes=asked.panes and own_output(asked.panes),
        dropped=asked.dropped and own_output(asked.dropped),
        counts_path=own_path(asked.counts_path),
    )
    queries = WindowQueries(task, group_files_by_schema(task.files, task.reading))
    with open_database(task.memory_mb) as opened:
        register_thresholds(opened, task.thresholds)
        queries.mark_copies(opened)
        is_counted = write_query(opened, queries.counts(), task.counts_path) > 0
        scanned, dropped = _records(opened, task.counts_path) if is_counted else (0, 0)
        rows: dict[str, int] = {}
        has_windows = task.numbers[0] < task.numbers[1]
        if has_windows and task.panes is None:
            rows[WINDOWS] = write_query(opened, queries.recomputed(), task.windows.path, task.windows)
        elif has_windows and task.panes is not None:
            rows[PANES] = write_query(opened, queries.panes(), task.panes.path, task.panes)
            if rows[PANES]:
                rows[WINDOWS] = write_query(opened, queries.published(), task.windows.path, task.windows)
        if dropped and task.dropped is not None:
            rows[DROPPED] = write_query(opened, queries.dropped(), task.dropped.path, task.dropped)
    files = split_outputs(rows, {WINDOWS: task.windows, PANES: task.panes, DROPPED: task.dropped})
    return TaskResult(task.number, socket.gethostname(), scanned, task.counts_path if is_counted else None, files)


def _records(opened: duckdb.DuckDBPyConnection, path: str) -> tuple[int, int]:
    """Return how many records a file of counts is made of, and how many of them were dropped."""
    is_dropped = f"fate = {sql.quote_text(Fate.DROPPED)}"
    sums = f"sum(events)::BIGINT, coalesce(sum(events) FILTER (WHERE {is_dropped}), 0)::BIGINT"
    ((events, dropped),) = opened.execute(f"SELECT {sums} FROM read_parquet({sql.quote_path(path)})").fetchall()
    return int(events), int(dropped)


def _run_rest_task(task: RestTask) -> TaskResult:
    """Count what window tasks leave out, and write counts of the unreadable records that the chunks answer for."""
    with open_database(task.memory_mb) as opened:
        groups = group_files_by_schema(task.files, task.reading)
        found = opened.execute(sql.rest_query(task, groups)).fetchall()
    files = sql.list_group_files(groups)
    ours = [
        (partition, task.owners[files[number]], events)
        for number, partition, is_readable, events in found
        if not is_readable and files[number] in task.owners
    ]
    path = own_path(task.counts_path) if ours else None
    if path is not None:
        _write_quarantined(ours, Path(path))
    return TaskResult(task.number, socket.gethostname(), sum(each[3] for each in found), path)


def _write_quarantined(found: Sequence[tuple[str | None, int, int]], path: Path) -> None:
    """Write counts of unreadable records: source partition, number of the chunk, number of records."""
    partitions, chunks, events = zip(*found, strict=True)
    nothing = pa.nulls(len(found), pa.int64())
    table = pa.table(
        {
            "event_time_ms": nothing,
            "source_partition": pa.array(partitions, pa.string()),
            "fate": pa.array([Fate.QUARANTINED.value] * len(found), pa.string()),
            "chunk_number": pa.array(chunks, pa.int32()),
            "events": pa.array(events, pa.int64()),
            "first_arrival_ms": nothing,
            "last_arrival_ms": nothing,
        }
    )
    pq.write_table(table, path)
