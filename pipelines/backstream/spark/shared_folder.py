"""Test at the start of a cluster job whether the driver sees the files of its executors."""

from __future__ import annotations

import re
import shutil
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from backstream.errors import CountError
from backstream.spark.counted_writes import TaskWrite, require_visible, write_parquet

_ROUNDS = 5
"""The number of attempts to get a marker from every executor."""


def require_shared_folder(spark: SparkSession, folder: Path) -> None:
    """Have each executor write a marker into a folder, and check that the driver sees all markers.

    Nothing is written if driver and executors are one process. Executors that join later aren't tested; the rows
    they write are counted anyway.

    Raises:
        CountError: naming the machines whose files the driver doesn't see, the folder, and the remedy.
    """
    if re.fullmatch(r"local(\[.*\])?", spark.sparkContext.master or ""):
        return
    probe = folder / f".probe-{uuid.uuid4().hex}"
    try:
        for number in range(_ROUNDS):
            written = _write_markers(spark, probe / str(number))
            if not _hosts(spark) - {write.host for write in written}:
                return
    finally:
        shutil.rmtree(probe, ignore_errors=True)


def _write_markers(spark: SparkSession, folder: Path) -> list[TaskWrite]:
    """Write one row in each of many small tasks, so that every executor gets some tasks."""
    tasks = 2 * max(spark.sparkContext.defaultParallelism, len(_hosts(spark)))
    written = write_parquet(spark, spark.range(0, tasks, 1, tasks).write, folder)
    seen = {}
    for path in folder.rglob("part-*.parquet"):
        try:
            seen[path] = pq.read_metadata(path).num_rows
        except (OSError, pa.ArrowInvalid) as error:
            msg = f"a file that an executor has just written cannot be read: {error}\n  {path}"
            raise CountError(msg) from error
    require_visible("the shared folder test", folder.parent.parent, written, seen)
    return written


def _hosts(spark: SparkSession) -> set[str]:
    """Return the machines of the current executors."""
    store = spark.sparkContext._jsc.sc().statusStore()  # noqa: SLF001 - PySpark has no API for executors
    executors = store.executorList(True)  # noqa: FBT003 - Java has no keyword arguments
    infos = [executors.apply(number) for number in range(int(executors.size()))]
    return {str(info.hostPort()).rpartition(":")[0] for info in infos if str(info.id()) != "driver"}
