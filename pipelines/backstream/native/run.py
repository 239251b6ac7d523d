"""Running one task of the native engine in DuckDB: it reads the files itself, and writes the rows that it makes."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.core.errors import ContractError
from backstream.core.fates import Fate
from backstream.core.tables import PANES, WINDOWS
from backstream.native import sql
from backstream.native.task import Done, Output, Places, Reading, RestTask, WindowTask

if TYPE_CHECKING:
    import duckdb

_ARROW_TYPES: dict[str, Sequence[str]] = {
    "timestamp": ("timestamp[us, tz=UTC]", "timestamp[ms, tz=UTC]"),
    "timestamp_ntz": ("timestamp[us]", "timestamp[ms]"),
    "tinyint": ("int8",),
    "smallint": ("int8", "int16"),
    "int": ("int8", "int16", "int32"),
    "bigint": ("int8", "int16", "int32", "int64"),
    "string": ("string", "large_string"),
    "date": ("date32[day]",),
    "boolean": ("bool",),
    "float": ("float",),
    "double": ("float", "double"),
}
"""Which types of a file's column are read as a Spark SQL type."""


def run_window_task(task: WindowTask) -> Done:
    """Write the windows of a task, and the counts of its stretch.

    Raises:
        ContractError: when a file has a column of a type that the engine does not read.
        duckdb.Error: when DuckDB cannot read, compute or write.
    """
    queries = sql.WindowQueries(task, files_alike(task.files, task.reading))
    with _database(task.memory_mb) as database:
        if task.thresholds is not None:
            database.register("threshold_rows", _threshold_rows(task))
            database.execute("CREATE TEMP TABLE thresholds AS SELECT * FROM threshold_rows")
        read = {int(chunk): int(events) for chunk, events in database.execute(queries.read()).fetchall()}
        counts = _write(database, queries.counts(), task.counts_path)
        rows: dict[str, int] = {}
        if task.numbers[0] < task.numbers[1]:
            if task.panes is not None:
                rows[PANES] = _write(database, queries.panes(), task.panes.path, task.panes)
                rows[WINDOWS] = _write(database, queries.published(), task.windows.path, task.windows) if rows[PANES] else 0
            else:
                rows[WINDOWS] = _write(database, queries.recomputed(), task.windows.path, task.windows)
    return Done(task.number, socket.gethostname(), sum(read.values()), read, bool(counts), rows)


def run_rest_task(task: RestTask) -> Done:
    """Count what window tasks leave out, and write counts of the unreadable records that the chunks answer for.

    Raises:
        ContractError: when a file has a column of a type that the engine does not read.
        duckdb.Error: when DuckDB cannot read or write.
    """
    with _database(task.memory_mb) as database:
        found = database.execute(sql.rest(task, files_alike(task.files, task.reading))).fetchall()
    ours = [
        (partition, task.owners[file], events)
        for file, partition, is_readable, events in found
        if not is_readable and file in task.owners
    ]
    read: dict[int, int] = {}
    for _, chunk, events in ours:
        read[chunk] = read.get(chunk, 0) + events
    if ours:
        _write_quarantined(ours, Path(task.counts_path))
    return Done(task.number, socket.gethostname(), sum(each[3] for each in found), read, bool(ours))


def files_alike(files: Sequence[str], reading: Reading) -> list[tuple[list[str], list[str]]]:
    """Put files together that have the same of the columns that are read.

    Raises:
        ContractError: naming a file, a column and its type that the engine does not read.
    """
    found: dict[tuple[str, ...], list[str]] = {}
    for file in files:
        found.setdefault(tuple(_columns(file, reading)), []).append(file)
    return [(alike, list(columns)) for columns, alike in found.items()]


def _columns(file: str, reading: Reading) -> Iterator[str]:
    schema = pq.read_schema(file)
    for name, kind in reading.types.items():
        if name not in schema.names:
            continue
        said = str(schema.field(name).type)
        allowed = _ARROW_TYPES.get(kind, (kind.replace("decimal", "decimal128").replace(",", ", "),))
        if said not in allowed or schema.names.count(name) > 1:
            msg = f"column {name!r} has the type {said}, the native engine reads a {kind} of {', '.join(allowed)}\n  {file}"
            raise ContractError(msg)
        yield name


@contextmanager
def _database(memory_mb: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database of one thread in memory, which spills to a folder that Spark removes with its own."""
    import duckdb

    near = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
    scratch = tempfile.mkdtemp(prefix="native-", dir=near)
    settings = {
        "threads": "1",
        "memory_limit": f"{memory_mb}MB",
        "temp_directory": scratch,
        "preserve_insertion_order": "false",
        "autoinstall_known_extensions": "false",
    }
    try:
        with duckdb.connect(config=settings) as database:
            database.execute("SET timezone = 'UTC'")
            yield database
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _threshold_rows(task: WindowTask) -> pa.Table:
    """A row per number: `n`, and for `fired` and `gone` the place, `ms`, `seq` and `partition`."""
    thresholds = task.thresholds
    assert thresholds is not None  # noqa: S101 - asked for by a replay only
    count = len(thresholds.fired.time_ms)
    columns = {"n": pa.array(range(thresholds.first, thresholds.first + count), pa.int32())}
    for name, places in (("fired", thresholds.fired), ("gone", thresholds.gone)):
        columns |= {f"{name}_{part}": values for part, values in _place_columns(places, count).items()}
    return pa.table(columns)


def _place_columns(places: Places, count: int) -> dict[str, pa.Array]:
    is_tick = not len(places.seq)
    return {
        "ms": pa.array(places.time_ms, pa.int64()),
        "seq": pa.nulls(count, pa.int64()) if is_tick else pa.array(places.seq, pa.int64()),
        "partition": pa.nulls(count, pa.string()) if is_tick else pa.array(places.partition, pa.string()),
    }


def _write(
    database: duckdb.DuckDBPyConnection, query: str, path: str, output: Output | None = None
) -> int:
    """Write the rows of a query into a Parquet file and return how many they are; no file is left for none."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    ids = ", ".join(f"{sql.quoted(name)}: {field_id}" for name, _, field_id in output.columns) if output else ""
    options = "FORMAT parquet, COMPRESSION zstd" + (f", FIELD_IDS {{{ids}}}" if ids else "")
    (rows,) = database.execute(f"COPY ({query}) TO {sql.text(path)} ({options})").fetchone() or (0,)
    if not rows:
        Path(path).unlink(missing_ok=True)
    return int(rows)


def _write_quarantined(found: Sequence[tuple[str | None, int, int]], path: Path) -> None:
    """Write counts of unreadable records: source partition, number of the chunk, number of records."""
    path.parent.mkdir(parents=True, exist_ok=True)
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
