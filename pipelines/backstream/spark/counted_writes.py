"""Write files, and compare the rows that tasks wrote with the rows that the driver sees.

The driver's listing of a folder is not enough. An executor whose machine doesn't share the folder writes to its
own disk, and Spark reports success. Only the metrics of the tasks have the number of rows they wrote.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrameWriter, SparkSession

from backstream.errors import CountError

_PART = re.compile(r"part-(\d+)-")
_MAX_TASKS = 1_000_000


@dataclass(frozen=True, slots=True)
class TaskWrite:
    """The number of rows that one task wrote; `host` is the machine of its executor."""

    task: int
    host: str
    rows: int


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


def require_visible(what: str, folder: Path, written: list[TaskWrite], seen: Mapping[Path, int]) -> None:
    """Check that the driver sees every row that the tasks wrote, once.

    Args:
        what: the written data for error messages, e.g., "table `clicks`".
        folder: the folder of the files.
        written: the rows that each task wrote.
        seen: the files that the driver finds in the folder, and their rows.

    Raises:
        CountError: naming the hosts, the folder, and the remedy.
    """
    seen_by_task: Counter[int] = Counter()
    for path, rows in seen.items():
        seen_by_task[_parse_task(path)] += rows
    lost = [write for write in written if seen_by_task[write.task] < write.rows]
    if lost:
        raise _lost_rows_error(what, folder, lost, seen_by_task)
    rows_by_task = {write.task: write.rows for write in written}
    for task, rows in sorted(seen_by_task.items()):
        if rows != rows_by_task.get(task, 0):
            msg = (
                f"task {task} wrote {rows_by_task.get(task, 0):,} rows of {what}, but its files have {rows:,}\n"
                f"  {folder}\n\n"
                "hint: run the same command again; no other process may write to this folder"
            )
            raise CountError(msg)


def _lost_rows_error(
    what: str, folder: Path, lost: list[TaskWrite], seen_by_task: Mapping[int, int]
) -> CountError:
    hosts = sorted({write.host for write in lost})
    lost_rows = sum(write.rows - seen_by_task[write.task] for write in lost)
    rows = sum(write.rows for write in lost)
    return CountError(
        f"{lost_rows:,} of {rows:,} rows of {what} that executors wrote on {', '.join(hosts)} cannot be seen"
        f" by the driver\n  {folder}\n\n"
        "hint: the executors must write to a folder that the driver sees; mount it on each"
        " of their machines and run the same command again; finished chunks are kept"
    )


def _parse_task(path: Path) -> int:
    """Return the task that wrote a file, which Spark puts into the file's name."""
    name = _PART.match(path.name)
    if name is None:
        msg = f"{path.name} was not written by a task of this run\n  {path}"
        raise CountError(msg)
    return int(name[1])


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
