"""Run the tasks of sessions, which make units of an interval of time or sessions of a share of the keys."""

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
from backstream.native.task_disk import TaskDisk
from backstream.runs.table_schemas import DROPPED, PANES, WINDOWS

if TYPE_CHECKING:
    import duckdb


def run_unit_task(task: UnitTask) -> TaskResult:
    """Write the units of an interval, one file for each share of the keys, and the counts of its records."""
    counts_path, units_path = own_path(task.counts_path), Path(own_path(task.units_path))
    queries = UnitQueries(task, group_files_by_schema(task.files, task.reading))
    with open_database(task.memory_mb) as database:
        queries.mark_duplicates(database)
        is_counted = write_query(database, queries.counts(), counts_path) > 0
        scanned, in_units = _count_records(database, counts_path) if is_counted else (0, 0)
        if task.watermarks is not None:
            database.execute(f"CREATE TEMP TABLE blocks AS {queries.blocks(task.watermarks)}")
            database.execute(f"CREATE TEMP TABLE stragglers AS {queries.stragglers()}")
        database.execute(f"CREATE TEMP TABLE units AS {queries.units()}")
        paths = {share: str(units_path.with_stem(f"{units_path.stem}-{share}")) for share in range(task.shares)}
        units = {
            share: path for share, path in paths.items() if write_query(database, queries.of_share(share), path)
        }
    return TaskResult(
        number=task.number,
        host=socket.gethostname(),
        scanned=scanned,
        counts=counts_path if is_counted else None,
        units=units,
        in_units=in_units,
        hashed_by=duckdb_version(),
    )


def _count_records(database: duckdb.DuckDBPyConnection, path: str) -> tuple[int, int]:
    """Return the number of records in a file of counts, and the number of those in units."""
    in_units = f"coalesce(sum(events) FILTER (WHERE fate = {sql.quote_text(Fate.ON_TIME)}), 0)::BIGINT"
    query = f"SELECT sum(events)::BIGINT, {in_units} FROM read_parquet({sql.quote_path(path)})"
    ((events, counted),) = database.execute(query).fetchall()
    return int(events), int(counted)


def run_session_task(planned: SessionTask, disk: TaskDisk) -> TaskResult:
    """Write the sessions of a share of the keys; in a replay also the corrections of record counts."""
    task = replace(
        planned,
        windows=disk.output_for(own_output(planned.windows)),
        panes=planned.panes and disk.output_for(own_output(planned.panes)),
        dropped=planned.dropped and disk.output_for(own_output(planned.dropped)),
        counts_path=own_path(planned.counts_path),
    )
    queries, rows, has_corrections = SessionQueries(task), dict[str, int](), False
    with open_database(task.memory_mb) as database:
        if task.panes is None:
            database.execute(f"CREATE TEMP TABLE islands AS {queries.islands(queries.units_in_islands())}")
            rows[WINDOWS] = write_query(database, queries.recomputed_windows(), task.windows.path, task.windows)
        else:
            database.execute(f"CREATE TEMP TABLE placed AS {queries.units_in_islands()}")
            database.execute(f"CREATE TEMP TABLE islands AS {queries.islands('FROM placed')}")
            has_dirty = _replay_dirty_islands(database, queries)
            rows[PANES] = write_query(database, queries.panes(has_dirty=has_dirty), task.panes.path, task.panes)
            if rows[PANES]:
                rows[WINDOWS] = write_query(database, queries.published_windows(), task.windows.path, task.windows)
            if has_dirty:
                has_corrections = write_query(database, queries.count_corrections(), task.counts_path) > 0
            if has_dirty and task.dropped is not None:
                rows[DROPPED] = write_query(database, queries.dropped_events(), task.dropped.path, task.dropped)
        ((records, owned_records),) = database.execute(queries.totals()).fetchall()
    files = split_outputs(rows, {WINDOWS: task.windows, PANES: task.panes, DROPPED: task.dropped})
    return TaskResult(
        number=task.number,
        host=socket.gethostname(),
        scanned=0,
        counts=task.counts_path if has_corrections else None,
        written=disk.deliver_tables(files),
        in_units=int(records),
        in_windows=int(owned_records),
    )


def _replay_dirty_islands(database: duckdb.DuckDBPyConnection, queries: SessionQueries) -> bool:
    """Replay the islands that lateness may have split, into the tables `members` and `fates`; False: none.

    A member is a unit in a fired window, or in the session of all events.
    """
    database.execute(f"CREATE TEMP TABLE dirty AS {queries.dirty()}")
    ((units,),) = database.execute("SELECT count(*) FROM dirty").fetchall()
    if not units:
        return False
    batches = iter(database.sql(queries.to_play()).to_arrow_table().to_batches())
    for number, (members, fates) in enumerate(replay_islands(batches, in_windows, fated)):
        for name, table, columns in (("members", members, in_windows), ("fates", fates, fated)):
            database.register("replayed", table.select([UNIT, *columns.types]))
            statement = f"INSERT INTO {name}" if number else f"CREATE TEMP TABLE {name} AS"
            database.execute(f"{statement} SELECT * FROM replayed")
            database.unregister("replayed")
    return True
