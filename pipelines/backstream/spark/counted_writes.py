"""Write files, and compare the rows that tasks wrote with the rows that the driver sees.

The driver's listing of a folder is not enough. An executor whose machine doesn't share the folder writes to its
own disk, and Spark reports success. Only the metrics of the tasks have the number of rows they wrote.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrameWriter, SparkSession

from backstream.chunks.staged import TaskWrite
from backstream.errors import CountError

_MAX_TASKS = 1_000_000


PARQUET_OPTIONS = {
    "compression": "zstd",
    # Without a limit, the footer has no statistics for a column with long texts, not even the number of nulls.
    "parquet.statistics.truncate.length": "64",
}
"""Options by which all Parquet files are written."""


def write_parquet(spark: SparkSession, writer: DataFrameWriter, folder: Path) -> list[TaskWrite]:
    """Write Parquet files into a folder, and return the rows that each task wrote, ordered by task.

    Raises:
        CountError: when Spark doesn't have the metrics of all tasks.
    """
    context, group = spark.sparkContext, f"write-{uuid.uuid4().hex}"
    before = context.getLocalProperty("spark.jobGroup.id")
    context.setLocalProperty("spark.jobGroup.id", group)
    try:
        writer.options(**PARQUET_OPTIONS).parquet(str(folder))
    finally:
        context.setLocalProperty("spark.jobGroup.id", before)  # type: ignore[arg-type] # None removes it
    return _load_task_writes(spark, group)


def _load_task_writes(spark: SparkSession, group: str) -> list[TaskWrite]:
    """Return the rows that the tasks of a job group wrote, from the metrics that executors sent to the driver."""
    context: Any = spark.sparkContext
    core = context._jsc.sc()  # noqa: SLF001 - PySpark has no API for task metrics
    core.listenerBus().waitUntilEmpty()
    store = core.statusStore()
    stage = _find_writing_stage(store, sorted(context.statusTracker().getJobIdsForGroup(group)))
    writes = {write.task: write for write in _scan_stage(store, stage)}
    return [writes[task] for task in sorted(writes)]


def _find_writing_stage(store: Any, jobs: Sequence[int]) -> Any:
    """Return the last attempt of the stage that writes: the last stage of the last job of a write.

    The other stages are not needed. Spark can share a stage between two jobs, skips a stage whose output exists,
    and removes skipped stages first from its history.

    Raises:
        CountError: when the job or the stage isn't in Spark's history.
    """
    if not jobs:
        msg = "Spark's history has no job of this write\n\nhint: increase spark.ui.retainedJobs"
        raise CountError(msg)
    ids = store.job(jobs[-1]).stageIds()
    last = max(int(ids.apply(number)) for number in range(int(ids.size())))
    stage = _find_last_attempt(store, last)
    if stage is None:
        msg = f"Spark's history has no task metrics of stage {last}\n\nhint: increase spark.ui.retainedStages"
        raise CountError(msg)
    return stage


def _find_last_attempt(store: Any, stage: int) -> Any:
    """Return the last attempt of a stage; None if it isn't in Spark's history."""
    try:
        return store.lastStageAttempt(stage)
    except Py4JJavaError as error:
        if "NoSuchElementException" in str(error.java_exception):
            return None
        raise


def _scan_stage(store: Any, last: Any) -> Iterator[TaskWrite]:
    """Yield the tasks of a stage that wrote rows.

    All attempts are read, since a repeated stage repeats only the lost tasks.
    """
    done, expected, stage = set[int](), int(last.numTasks()), int(last.stageId())
    for attempt in range(int(last.attemptId()) + 1):
        tasks = store.taskList(stage, attempt, _MAX_TASKS)
        for number in range(int(tasks.size())):
            task = tasks.apply(number)
            if task.status() != "SUCCESS":
                continue
            done.add(int(task.partitionId()))
            if rows := int(task.taskMetrics().get().outputMetrics().recordsWritten()):
                yield TaskWrite(int(task.partitionId()), str(task.host()), rows)
    if len(done) < expected:
        msg = (
            f"Spark has the metrics of {len(done):,} of {expected:,} tasks only\n\n"
            "hint: Spark drops events if their queue is full; increase"
            " spark.scheduler.listenerbus.eventqueue.capacity"
        )
        raise CountError(msg)
