"""Writing files, with the rows counted by the tasks that wrote them.

A folder's listing shows what the driver can see. What was written is known by the tasks alone: an executor whose
machine does not share the folder writes to a disk of its own, and nothing fails.
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
_MOST_TASKS = 1_000_000


@dataclass(frozen=True, slots=True)
class TaskWrite:
    """What one task wrote: `host` names the machine of its executor."""

    task: int
    host: str
    rows: int


def write_parquet(spark: SparkSession, writer: DataFrameWriter, folder: Path) -> list[TaskWrite]:
    """Write Parquet files into a folder and return what each task says that it wrote, in order of tasks.

    Raises:
        CountError: when Spark does not know what all its tasks have written.
    """
    context, group = spark.sparkContext, f"write-{uuid.uuid4().hex}"
    before = context.getLocalProperty("spark.jobGroup.id")
    context.setLocalProperty("spark.jobGroup.id", group)
    try:
        writer.parquet(str(folder))
    finally:
        context.setLocalProperty("spark.jobGroup.id", before)  # type: ignore[arg-type] # None takes it away
    return _task_writes(spark, group)


def require_visible(what: str, folder: Path, written: list[TaskWrite], seen: Mapping[Path, int]) -> None:
    """Check that the driver sees the rows that the tasks wrote, all of them, and each once.

    Args:
        what: what was written, such as "table `clicks`".
        folder: where to.
        written: by which task, on which machine.
        seen: the files that the driver finds there, and their rows.

    Raises:
        CountError: naming the hosts, the folder and the remedy.
    """
    found: Counter[int] = Counter()
    for path, rows in seen.items():
        found[_task_of(path)] += rows
    unseen = [each for each in written if found[each.task] < each.rows]
    if unseen:
        raise _invisible(what, folder, unseen, found)
    counted = {each.task: each.rows for each in written}
    for task, rows in sorted(found.items()):
        if rows != counted.get(task, 0):
            msg = (
                f"task {task} wrote {counted.get(task, 0):,} rows of {what}, and {rows:,} are there\n"
                f"  {folder}\n\n"
                "hint: run the same again; no other process may write into this folder"
            )
            raise CountError(msg)


def _invisible(what: str, folder: Path, unseen: list[TaskWrite], found: Mapping[int, int]) -> CountError:
    hosts = sorted({each.host for each in unseen})
    lost = sum(each.rows - found[each.task] for each in unseen)
    rows = sum(each.rows for each in unseen)
    return CountError(
        f"{lost:,} of {rows:,} rows of {what} that executors wrote on {', '.join(hosts)} cannot be seen by the"
        f" driver\n  {folder}\n\n"
        "hint: the executors must write to a folder that the driver sees, or to an object store; mount it on each"
        " of their machines and run the same again: what was finished is kept"
    )


def _task_of(path: Path) -> int:
    """The task that wrote a file, as Spark has it in the file's name."""
    found = _PART.match(path.name)
    if found is None:
        msg = f"{path.name} was not written by a task of this run\n  {path}"
        raise CountError(msg)
    return int(found[1])


def _task_writes(spark: SparkSession, group: str) -> list[TaskWrite]:
    """What the tasks of a job group wrote, as their executors reported it to the driver."""
    context: Any = spark.sparkContext
    core = context._jsc.sc()  # noqa: SLF001 - PySpark has no way to ask for the metrics of tasks
    core.listenerBus().waitUntilEmpty()
    store = core.statusStore()
    stage = _writing_stage(store, sorted(context.statusTracker().getJobIdsForGroup(group)))
    found = {each.task: each for each in _of_stage(store, stage)}
    return [found[task] for task in sorted(found)]


def _writing_stage(store: Any, jobs: Sequence[int]) -> Any:
    """Return the last attempt of the stage that writes: the last one of the last job of a write.

    Nothing has to be known of the others, and nothing can be relied on: two jobs may share a stage, Spark skips a
    stage whose output is there already, and it forgets skipped stages first.

    Raises:
        CountError: when Spark has forgotten the job or the stage.
    """
    if not jobs:
        msg = "Spark has forgotten the job that wrote\n\nhint: it keeps too few jobs; raise spark.ui.retainedJobs"
        raise CountError(msg)
    ids = store.job(jobs[-1]).stageIds()
    last = max(int(ids.apply(number)) for number in range(int(ids.size())))
    stage = _last_attempt(store, last)
    if stage is None:
        msg = (
            f"Spark has forgotten what the tasks of stage {last} have written\n\n"
            "hint: it keeps too few stages; raise spark.ui.retainedStages"
        )
        raise CountError(msg)
    return stage


def _last_attempt(store: Any, stage: int) -> Any:
    """The last attempt of a stage; None: Spark has forgotten it."""
    try:
        return store.lastStageAttempt(stage)
    except Py4JJavaError as error:
        if "NoSuchElementException" in str(error.java_exception):
            return None
        raise


def _of_stage(store: Any, last: Any) -> Iterator[TaskWrite]:
    """The tasks of a stage that wrote rows; a stage that is run again repeats those tasks only that were lost."""
    done, wanted, stage = set[int](), int(last.numTasks()), int(last.stageId())
    for attempt in range(int(last.attemptId()) + 1):
        tasks = store.taskList(stage, attempt, _MOST_TASKS)
        for number in range(int(tasks.size())):
            task = tasks.apply(number)
            if task.status() != "SUCCESS":
                continue
            done.add(int(task.partitionId()))
            if rows := int(task.taskMetrics().get().outputMetrics().recordsWritten()):
                yield TaskWrite(int(task.partitionId()), str(task.host()), rows)
    if len(done) < wanted:
        msg = (
            f"Spark knows what {len(done):,} of {wanted:,} tasks have written\n\n"
            "hint: it drops events when it has too many; raise spark.scheduler.listenerbus.eventqueue.capacity"
        )
        raise CountError(msg)
