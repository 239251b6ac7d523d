"""DuckDB as tasks use it: one thread, bounded memory, a scratch folder that goes away."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from backstream.native import sql
from backstream.native.small_files import split_file
from backstream.native.task import TaskOutput, TaskPositions, TaskThresholds, WrittenFiles

if TYPE_CHECKING:
    import duckdb


@contextmanager
def open_database(memory_mb: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database in memory, which spills to a folder that Spark removes with its own."""
    import duckdb  # an executor without it says so as an error of the task

    near = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
    scratch = tempfile.mkdtemp(prefix="native-", dir=near)
    settings: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,
        "memory_limit": f"{memory_mb}MB",
        "temp_directory": scratch,
        "preserve_insertion_order": False,
        "autoinstall_known_extensions": False,
    }
    try:
        with duckdb.connect(config=settings) as opened:
            opened.execute("SET timezone = 'UTC'")
            yield opened
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def duckdb_version() -> str:
    """Return which DuckDB this is."""
    import duckdb  # as above

    return f"DuckDB {duckdb.__version__}"


def write_query(opened: duckdb.DuckDBPyConnection, query: str, path: str, output: TaskOutput | None = None) -> int:
    """Write the rows of a query into a Parquet file and return how many they are; no file is left for none.

    The folder of a table is made here. That of other files is made and removed by the driver: no task that is
    still at work may bring it back.
    """
    if output is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    ids = (
        ", ".join(f"{sql.quote_name(name)}: {field_id}" for name, _, field_id in output.columns) if output else ""
    )
    options = "FORMAT parquet, COMPRESSION zstd" + (f", FIELD_IDS {{{ids}}}" if ids else "")
    if output and output.split_by:
        query = f"SELECT * FROM ({query}) ORDER BY {', '.join(output.split_by)}"
    (rows,) = opened.execute(f"COPY ({query}) TO {sql.quote_text(path)} ({options})").fetchone() or (0,)
    if not rows:
        Path(path).unlink(missing_ok=True)
    return int(rows)


def split_output(rows: int, output: TaskOutput) -> WrittenFiles:
    """Return the file of a table, split where it has to be."""
    paths = split_file(Path(output.path), output.split_by) if rows and output.split_by else [output.path]
    return WrittenFiles([str(path) for path in paths], rows)


def split_outputs(rows: Mapping[str, int], outputs: Mapping[str, TaskOutput | None]) -> dict[str, WrittenFiles]:
    """Return by table what a task wrote, split where it has to be; nothing of a table without rows."""
    return {
        suffix: split_output(rows[suffix], output)
        for suffix, output in outputs.items()
        if output is not None and rows.get(suffix)
    }


def register_thresholds(opened: duckdb.DuckDBPyConnection, thresholds: TaskThresholds | None) -> None:
    """Make the table `thresholds`, a row per number: of `fired` and `gone` the place, `ms`, `seq`, `partition`."""
    if thresholds is None:
        return
    count = len(thresholds.fired.time_ms)
    columns = {"n": pa.array(range(thresholds.first, thresholds.first + count), pa.int32())}
    for name, places in (("fired", thresholds.fired), ("gone", thresholds.gone)):
        columns |= {f"{name}_{part}": values for part, values in _place_columns(places, count).items()}
    opened.register("threshold_rows", pa.table(columns))
    opened.execute("CREATE TEMP TABLE thresholds AS SELECT * FROM threshold_rows")


def _place_columns(places: TaskPositions, count: int) -> dict[str, pa.Array]:
    is_tick = not len(places.seq)
    return {
        "ms": pa.array(places.time_ms, pa.int64()),
        "seq": pa.nulls(count, pa.int64()) if is_tick else pa.array(places.seq, pa.int64()),
        "partition": pa.nulls(count, pa.string()) if is_tick else pa.array(places.partition, pa.string()),
    }
