"""Open DuckDB for a task, with one thread, bounded memory, and a temporary folder, and write query results."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from backstream.native import sql
from backstream.native.small_files import split_file
from backstream.native.task import TaskOutput, WrittenFiles
from backstream.native.task_disk import make_scratch_folder
from backstream.watermarks.firing_times import ArrivalPositions, FiringTimes

if TYPE_CHECKING:
    import duckdb


@contextmanager
def open_database(memory_mb: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database in memory that spills to a folder, which Spark removes together with its own folders."""
    import duckdb  # an executor without DuckDB fails with an error of the task

    scratch = make_scratch_folder("native-")
    settings: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,
        "memory_limit": f"{memory_mb}MB",
        "temp_directory": scratch,
        "preserve_insertion_order": False,
        "autoinstall_known_extensions": False,
    }
    try:
        with duckdb.connect(config=settings) as database:
            database.execute("SET timezone = 'UTC'")
            yield database
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def duckdb_version() -> str:
    """Return the name and version of DuckDB."""
    import duckdb  # as above

    return f"DuckDB {duckdb.__version__}"


def write_query(
    database: duckdb.DuckDBPyConnection, query: str, path: str, output: TaskOutput | None = None
) -> int:
    """Write the rows of a query to a Parquet file and return their number; without rows, no file is left.

    The task creates the folder of a table. The driver creates and removes the folder of other files, so that a
    task that is still running cannot create it again.
    """
    if output is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    ids = (
        ", ".join(f"{sql.quote_name(name)}: {field_id}" for name, _, field_id in output.columns) if output else ""
    )
    options = "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1" + (f", FIELD_IDS {{{ids}}}" if ids else "")
    if output and output.split_by:
        query = f"SELECT * FROM ({query}) ORDER BY {', '.join(output.split_by)}"
    (rows,) = database.execute(f"COPY ({query}) TO {sql.quote_text(path)} ({options})").fetchone() or (0,)
    if not rows:
        Path(path).unlink(missing_ok=True)
    return int(rows)


def split_output(rows: int, output: TaskOutput) -> WrittenFiles:
    """Return the file of a table, or the files into which it was split."""
    paths = split_file(Path(output.path), output.split_by) if rows and output.split_by else [output.path]
    return WrittenFiles([str(path) for path in paths], rows)


def split_outputs(rows: Mapping[str, int], outputs: Mapping[str, TaskOutput | None]) -> dict[str, WrittenFiles]:
    """Return the files of a task by table suffix, split if needed; tables without rows are left out."""
    return {
        suffix: split_output(rows[suffix], output)
        for suffix, output in outputs.items()
        if output is not None and rows.get(suffix)
    }


def register_firing_times(database: duckdb.DuckDBPyConnection, firing_times: FiringTimes | None) -> None:
    """Create the table `firing_times`, with a row per stretch of windows, and for `sql.join_firing_times`.

    Its columns are the positions of `fired` and `cleaned_up`, each with the suffixes `ms`, `seq`, and `partition`.
    If records are undecided, the table `undecided` has the range of windows by their arrival time.
    """
    if firing_times is None:
        return
    columns = {"n": pa.array(firing_times.numbers, pa.int64())}
    for name, positions in (("fired", firing_times.fired), ("cleaned_up", firing_times.cleaned_up)):
        columns |= {f"{name}_{suffix}": values for suffix, values in _position_columns(positions).items()}
    database.register("firing_time_rows", pa.table(columns))
    # A search for the stretch of a window finds the last row for the windows after the last stretch.
    end = "" if firing_times.is_listed else f" UNION ALL BY NAME SELECT {firing_times.grid.count} AS n"
    database.execute(f"CREATE TEMP TABLE firing_times AS SELECT * FROM firing_time_rows{end}")
    if undecided := firing_times.undecided:
        bounds = zip(*((at_ms, each.start, each.stop) for at_ms, each in undecided.items()), strict=True)
        database.register("undecided", pa.table(dict(zip(("at_ms", "start_n", "stop_n"), bounds, strict=True))))


def _position_columns(positions: ArrivalPositions) -> dict[str, pa.Array]:
    times_ms = pa.array(positions.arrival_time_ms, pa.int64())
    if positions.arrival_seq is None:
        return {
            "ms": times_ms,
            "seq": pa.nulls(len(times_ms), pa.int64()),
            "partition": pa.nulls(len(times_ms), pa.string()),
        }
    partitions = pa.array(list(positions.source_partition), pa.string())
    return {"ms": times_ms, "seq": pa.array(positions.arrival_seq, pa.int64()), "partition": partitions}
