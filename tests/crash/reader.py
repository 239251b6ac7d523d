"""Read a published table repeatedly, and write down each state.

Usage: reader.py {pyiceberg|duckdb|spark} HOME DATASET FILE STOP

A line of FILE has the number of consecutive reads of a state and its hash. The Iceberg extensions of DuckDB and
Spark would have to be downloaded; so PyIceberg lists the files of the table, and DuckDB and Spark read them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
from pyiceberg.table import Table
from pyspark.sql import functions as F
from tests.crash.world import Row, hash_rows

from backstream.eventtime.instants import epoch_ms
from backstream.lake.catalog import open_catalog_for_writing
from backstream.lake.catalog_address import table_identifier
from backstream.runs.home import Home
from backstream.spark.session import SMALL_DATA_SETTINGS, local_session

PAUSE_S = 0.3
SQL = "select epoch_ms(window_start), page, clicks, run_id from read_parquet(?, hive_partitioning = false)"


def main() -> None:
    """Read until the file STOP exists."""
    kind, home, dataset, file, stop = sys.argv[1:]
    read = {"pyiceberg": by_pyiceberg, "duckdb": by_duckdb, "spark": by_spark}[kind]
    states: list[list[str | int]] = []
    while True:
        is_last = Path(stop).exists()
        with open_catalog_for_writing(Home(Path(home))) as catalog:
            state = hash_rows(read(catalog.load_table(table_identifier(dataset))))
        if not states or states[-1][1] != state:
            states.append([0, state])
        states[-1][0] = int(states[-1][0]) + 1
        if is_last:
            break
        time.sleep(PAUSE_S)
    Path(file).write_text("\n".join(f"{count} {state}" for count, state in states))


def by_pyiceberg(table: Table) -> Iterator[Row]:
    """Read the rows with PyIceberg."""
    for row in table.scan().to_arrow().to_pylist():
        yield epoch_ms(row["window_start"]), row["page"], row["clicks"], row["run_id"]


def by_duckdb(table: Table) -> Iterator[Row]:
    """Read the rows with DuckDB."""
    if files := list_files(table):
        yield from duckdb.connect().execute(SQL, [files]).fetchall()


def by_spark(table: Table) -> Iterator[Row]:
    """Read the rows with Spark."""
    spark = local_session("reader", SMALL_DATA_SETTINGS, input_bytes=0)
    if files := list_files(table):
        read = spark.read.option("recursiveFileLookup", "true").parquet(*files)
        start_ms = F.unix_millis("window_start")
        yield from map(tuple, read.select(start_ms, "page", "clicks", "run_id").collect())


def list_files(table: Table) -> list[str]:
    """Return the current files of the table."""
    return [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]


if __name__ == "__main__":
    main()
