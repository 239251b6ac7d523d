"""Reads a published table again and again, and notes each state that it saw.

Usage: reader.py {pyiceberg|duckdb|spark} HOME DATASET FILE STOP

A line of FILE is how often a state was seen in a row, and its hash. Iceberg's extensions of DuckDB and Spark have
to be downloaded; here PyIceberg says which files the table consists of, and DuckDB and Spark read them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
from pyiceberg.table import Table
from pyspark.sql import functions as F
from tests.crash.world import Row, hash_of

from backstream.eventtime.instants import epoch_ms
from backstream.lake.catalog import NAMESPACE, open_catalog_for_writing
from backstream.runs.home import Home
from backstream.spark.session import SMALL_DATA_SETTINGS, local_session

PAUSE_S = 0.3
SQL = "select epoch_ms(window_start), page, clicks, run_id from read_parquet(?, hive_partitioning = false)"


def main() -> None:
    """Read until the file STOP is there."""
    kind, home, dataset, noted, stop = sys.argv[1:]
    read = {"pyiceberg": by_pyiceberg, "duckdb": by_duckdb, "spark": by_spark}[kind]
    seen: list[list[str | int]] = []
    while True:
        is_last = Path(stop).exists()
        with open_catalog_for_writing(Home(Path(home))) as catalog:
            state = hash_of(read(catalog.load_table((NAMESPACE, dataset))))
        if not seen or seen[-1][1] != state:
            seen.append([0, state])
        seen[-1][0] = int(seen[-1][0]) + 1
        if is_last:
            break
        time.sleep(PAUSE_S)
    Path(noted).write_text("\n".join(f"{count} {state}" for count, state in seen))


def by_pyiceberg(table: Table) -> Iterator[Row]:
    """The rows as PyIceberg reads them."""
    for row in table.scan().to_arrow().to_pylist():
        yield epoch_ms(row["window_start"]), row["page"], row["clicks"], row["run_id"]


def by_duckdb(table: Table) -> Iterator[Row]:
    """The rows as DuckDB reads them."""
    if files := files_of(table):
        yield from duckdb.connect().execute(SQL, [files]).fetchall()


def by_spark(table: Table) -> Iterator[Row]:
    """The rows as Spark reads them."""
    spark = local_session("reader", SMALL_DATA_SETTINGS)
    if files := files_of(table):
        read = spark.read.option("recursiveFileLookup", "true").parquet(*files)
        start_ms = F.unix_millis("window_start")
        yield from map(tuple, read.select(start_ms, "page", "clicks", "run_id").collect())


def files_of(table: Table) -> list[str]:
    """Of which the table consists now."""
    return [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]


if __name__ == "__main__":
    main()
