"""A test at the start of a job on a cluster: whether the driver sees what its executors write."""

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
"""How often a marker is asked of the executors that have not written one yet."""


def require_shared_folder(spark: SparkSession, folder: Path) -> None:
    """Have each executor write a marker into a folder, and check that the driver sees them all.

    Nothing is written where driver and executors are one process. An executor that joins later is not asked: what
    it writes is counted anyway.

    Raises:
        CountError: naming the machines whose files the driver does not see, the folder and the remedy.
    """
    if re.fullmatch(r"local(\[.*\])?", spark.sparkContext.master or ""):
        return
    place = folder / f".probe-{uuid.uuid4().hex}"
    try:
        for number in range(_ROUNDS):
            written = _write_markers(spark, place / str(number))
            if not _hosts(spark) - {each.host for each in written}:
                return
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _write_markers(spark: SparkSession, place: Path) -> list[TaskWrite]:
    """A row from each of many small tasks, so that each executor gets some."""
    tasks = 2 * max(spark.sparkContext.defaultParallelism, len(_hosts(spark)))
    written = write_parquet(spark, spark.range(0, tasks, 1, tasks).write, place)
    seen = {}
    for path in place.rglob("part-*.parquet"):
        try:
            seen[path] = pq.read_metadata(path).num_rows
        except (OSError, pa.ArrowInvalid) as error:
            msg = f"a file that an executor has just written cannot be read: {error}\n  {path}"
            raise CountError(msg) from error
    require_visible("the test that comes before a job", place.parent.parent, written, seen)
    return written


def _hosts(spark: SparkSession) -> set[str]:
    """The machines of the executors that there are now."""
    store = spark.sparkContext._jsc.sc().statusStore()  # noqa: SLF001 - PySpark names none
    executors = store.executorList(True)  # noqa: FBT003 - Java knows no keywords
    found = [executors.apply(number) for number in range(int(executors.size()))]
    return {str(each.hostPort()).rpartition(":")[0] for each in found if str(each.id()) != "driver"}
