"""Run native tasks in an application of Spark: each in one Spark task."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from backstream.native.task_runner import FAILED
from backstream.spark.session import ship_package, task_memory_mb
from backstream.storage.stores import Stores

Work = TypeVar("Work")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class SparkTasks:
    """A `Tasks` in a session."""

    spark: SparkSession

    @property
    def slots(self) -> int:
        """The number of tasks that run at the same time."""
        return self.spark.sparkContext.defaultParallelism

    @property
    def memory_mb(self) -> int:
        """The memory of a task in MB."""
        return task_memory_mb(self.spark)

    def run(
        self, function: Callable[[Work, Stores], Result], tasks: Sequence[Work], code: Sequence[str] = ()
    ) -> list[Result]:
        """Return the result of a function for each task; see `Tasks`. Runs a job.

        Spark repeats a task that failed, as `spark.task.maxFailures` says.

        Raises:
            RuntimeError: with a message that begins with `FAILED` and has the task, if its process was killed in
                each attempt, or crashed.
            Py4JJavaError: with the message of the task, or if a user cancels the job.
        """
        if not tasks:
            return []
        context = self.spark.sparkContext
        ship_package(context, *code)
        try:
            stores = Stores.from_environment()
            return context.parallelize(tasks, len(tasks)).map(lambda task: function(task, stores)).collect()
        except Py4JJavaError as error:
            _explain_crash(tasks, error)
            raise

    def cancel(self) -> None:
        """End all jobs of the application."""
        self.spark.sparkContext.cancelAllJobs()


_CRASHED_TASK = re.compile(
    r"Task (\d+) in stage \S+ failed (\d+) times, most recent failure: .*?\(TID \d+\) \([^)]*\): "
    r"(?:[\w.$]+Exception: )?(.+?)(?:[.:] |\n|$)",
    re.DOTALL,
)


def _explain_crash(tasks: Sequence[object], error: Py4JJavaError) -> None:
    """Raise an error with the task whose process ended without an error of Python, if there is one."""
    message = str(error)
    match = _CRASHED_TASK.search(message)
    if match is None or FAILED in message:
        return
    number, attempts, reason = int(match[1]), match[2], match[3]
    msg = f"{FAILED} {tasks[number]}: its process ended in each of {attempts} attempts: {reason}"
    raise RuntimeError(msg) from error
