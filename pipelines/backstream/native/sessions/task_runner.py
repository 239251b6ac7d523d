"""Tasks of sessions: units of a stretch of time, and sessions of a share of the keys."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from backstream.eventtime.records import Fate
from backstream.native import sql
from backstream.native.database import duckdb_version, open_database, split_outputs, write_query
from backstream.native.records import group_files_by_schema
from backstream.native.sessions.arrow_replay import fated, in_windows, replay_islands
from backstream.native.sessions.queries import UNIT, SessionQueries, UnitQueries
from backstream.native.sessions.task import SessionTask, UnitTask
from backstream.native.task import TaskResult, own_output, own_path
from backstream.runs.table_schemas import DROPPED, PANES, WINDOWS

if TYPE_CHECKING:
    import duckdb


def run_unit_task(task: UnitTask) -> TaskResult:
    """Write the units of a stretch, a file for each share of the keys, and the counts of its records."""
    counts_path, units_path = own_path(task.counts_path), Path(own_path(task.units_path))
    queries = UnitQueries(task, group_files_by_schema(task.files, task.reading))
    with open_database(task.memory_mb) as opened:
        queries.mark_copies(opened)
        is_counted = write_query(opened, queries.counts(), counts_path) > 0
        scanned, copies = _records(opened, counts_path) if is_counted else (0, 0)
        if task.watermarks is not None:
            opened.execute(f"CREATE TEMP TABLE blocks AS {queries.blocks(task.watermarks)}")
            opened.execute(f"CREATE TEMP TABLE stragglers AS {queries.stragglers()}")
        opened.execute(f"CREATE TEMP TABLE units AS {queries.units()}")
        paths = {share: str(units_path.with_stem(f"{units_path.stem}-{share}")) for share in range(task.shares)}
        units = {
            share: path for share, path in paths.items() if write_query(opened, queries.of_share(share), path)
        }
    return TaskResult(
        number=task.number,
        host=socket.gethostname(),
        scanned=scanned,
        counts=counts_path if is_counted else None,
        units=units,
        in_units=scanned - copies,
        hashed_by=duckdb_version(),
    )


def _records(opened: duckdb.DuckDBPyConnection, path: str) -> tuple[int, int]:
    """How many records a file of counts is made of, and how many of them are copies."""
    copies = f"coalesce(sum(events) FILTER (WHERE fate = {sql.quote_text(Fate.DUPLICATE)}), 0)::BIGINT"
    query = f"SELECT sum(events)::BIGINT, {copies} FROM read_parquet({sql.quote_path(path)})"
    ((events, several),) = opened.execute(query).fetchall()
    return int(events), int(several)


def run_session_task(asked: SessionTask) -> TaskResult:
    """Write the sessions of a share of the keys; in a replay also what it adds to the counts of records."""
    task = replace(
        asked,
        windows=own_output(asked.windows),
        panes=asked.panes and own_output(asked.panes),
        dropped=asked.dropped and own_output(asked.dropped),
        counts_path=own_path(asked.counts_path),
    )
    queries, rows, is_moved = SessionQueries(task), dict[str, int](), False
    with open_database(task.memory_mb) as opened:
        if task.panes is None:
            opened.execute(f"CREATE TEMP TABLE islands AS {queries.islands(queries.placed())}")
            rows[WINDOWS] = write_query(opened, queries.recomputed(), task.windows.path, task.windows)
        else:
            opened.execute(f"CREATE TEMP TABLE placed AS {queries.placed()}")
            opened.execute(f"CREATE TEMP TABLE islands AS {queries.islands('FROM placed')}")
            has_dirty = _play(opened, queries)
            rows[PANES] = write_query(opened, queries.panes(has_dirty=has_dirty), task.panes.path, task.panes)
            if rows[PANES]:
                rows[WINDOWS] = write_query(opened, queries.published(), task.windows.path, task.windows)
            if has_dirty:
                is_moved = write_query(opened, queries.moved(), task.counts_path) > 0
            if has_dirty and task.dropped is not None:
                rows[DROPPED] = write_query(opened, queries.dropped(), task.dropped.path, task.dropped)
        ((records, ours),) = opened.execute(queries.totals()).fetchall()
    return TaskResult(
        number=task.number,
        host=socket.gethostname(),
        scanned=0,
        counts=task.counts_path if is_moved else None,
        written=split_outputs(rows, {WINDOWS: task.windows, PANES: task.panes, DROPPED: task.dropped}),
        in_units=int(records),
        in_windows=int(ours),
    )


def _play(opened: duckdb.DuckDBPyConnection, queries: SessionQueries) -> bool:
    """Play the islands that lateness may have split: the tables `members` and `fates`; False: there are none.

    A member is a unit in a window that fired, or in the session as it is with all events.
    """
    opened.execute(f"CREATE TEMP TABLE dirty AS {queries.dirty()}")
    ((units,),) = opened.execute("SELECT count(*) FROM dirty").fetchall()
    if not units:
        return False
    batches = iter(opened.sql(queries.to_play()).to_arrow_table().to_batches())
    for number, (members, fates) in enumerate(replay_islands(batches, in_windows, fated)):
        for name, table, columns in (("members", members, in_windows), ("fates", fates, fated)):
            opened.register("told", table.select([UNIT, *columns.types]))
            into = f"INSERT INTO {name}" if number else f"CREATE TEMP TABLE {name} AS"
            opened.execute(f"{into} SELECT * FROM told")
            opened.unregister("told")
    return True
