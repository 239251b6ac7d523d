"""Test at the start of a cluster job whether driver and executors see the files of each other."""

from __future__ import annotations

import os
import re
import shutil
import socket
import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from backstream.errors import CountError, PlanError, StorageError
from backstream.runs.plan import Plan
from backstream.spark.counted_writes import TaskWrite, require_visible, write_parquet
from backstream.spark.session import ship_package
from backstream.storage.stores import Stores, is_below, is_in_store
from backstream.variables import WAREHOUSE_VARIABLE

_ROUNDS = 5
"""The number of attempts to get a marker from every executor."""
_MAX_INPUT_FOLDERS = 20
"""The maximum number of tested folders; a mount usually contains all folders of a source."""


def require_shared_folder(spark: SparkSession, folder: Path) -> None:
    """Have each executor write a marker into a folder, and check that the driver sees all markers.

    Nothing is written if driver and executors are one process. Executors that join later aren't tested; the rows
    they write are counted anyway.

    Raises:
        CountError: naming the machines whose files the driver doesn't see, the folder, and the remedy.
    """
    if _is_one_process(spark):
        return
    probe = folder / f".probe-{uuid.uuid4().hex}"
    try:
        for number in range(_ROUNDS):
            written = _write_markers(spark, probe / str(number))
            if not _hosts(spark) - {write.host for write in written}:
                return
    finally:
        shutil.rmtree(probe, ignore_errors=True)


def require_shared_inputs(spark: SparkSession, paths: Sequence[str]) -> None:
    """Check that executors can read the input files of a job: one file of each folder.

    Raises:
        StorageError: naming the machine, the file, and the remedy.
    """
    if _is_one_process(spark):
        return
    # A file that the driver doesn't find was removed, which another check reports.
    by_folder = {os.path.dirname(path): path for path in paths if not is_in_store(path) and os.path.exists(path)}  # noqa: PTH110, PTH120 - of thousands of files
    files = list(by_folder.values())[:_MAX_INPUT_FOLDERS]
    if not files:
        return
    ship_package(spark.sparkContext)
    tasks = _count_tasks(spark)
    unread = spark.sparkContext.parallelize(range(tasks), tasks).mapPartitions(partial(_find_unreadable, files))
    if found := unread.collect():
        host, path = min(found)
        msg = (
            f"an executor on {host} cannot read an input file that the driver can read\n  {path}\n\n"
            "hint: mount the folder of the input on the machines of all executors at the same path, and run the"
            " same command again; finished chunks are kept"
        )
        raise StorageError(msg)


def require_stored_files(plan: Plan) -> None:
    """Check that input and tables of a plan are in object stores, because executors share no folder.

    Raises:
        PlanError: naming the first file or table that is elsewhere, and the remedy.
    """
    warehouse = Stores.from_environment().warehouse
    elsewhere = [file.path for file in plan.inputs if not is_in_store(file.path)]
    elsewhere += [table.location for table in plan.tables.values() if not is_below(table.location, warehouse)]
    if elsewhere:
        msg = (
            f"cannot run {plan.run_id} on executors that do not share the home: it needs {elsewhere[0]}\n\n"
            f"hint: give the job the address of the warehouse ({WAREHOUSE_VARIABLE}), and create a new plan"
        )
        raise PlanError(msg)


def _find_unreadable(paths: Sequence[str], _: Iterable[int]) -> Iterator[tuple[str, str]]:
    """Yield the machine of this task with each file that it cannot read."""
    yield from ((socket.gethostname(), path) for path in paths if not os.access(path, os.R_OK))


def _is_one_process(spark: SparkSession) -> bool:
    """Return whether driver and executors are one process."""
    return re.fullmatch(r"local(\[.*\])?", spark.sparkContext.master or "") is not None


def _count_tasks(spark: SparkSession) -> int:
    """Return the number of small tasks after which every executor has probably had some."""
    return 2 * max(spark.sparkContext.defaultParallelism, len(_hosts(spark)))


def _write_markers(spark: SparkSession, folder: Path) -> list[TaskWrite]:
    """Write one row in each of many small tasks, so that every executor gets some tasks."""
    tasks = _count_tasks(spark)
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
