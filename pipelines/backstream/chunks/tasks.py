"""Define who runs native tasks: Spark, or processes of this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from backstream.native.task import TaskResult
from backstream.native.task_runner import Task, run_native_task
from backstream.storage.stores import Stores

Work = TypeVar("Work")
Result = TypeVar("Result")


class Tasks(Protocol):
    """Run native tasks somewhere, several at a time. Threads may share it."""

    @property
    def slots(self) -> int:
        """The number of tasks that run at the same time."""

    @property
    def memory_mb(self) -> int:
        """The memory of a task in MB."""

    def run(
        self, function: Callable[[Work, Stores], Result], tasks: Sequence[Work], code: Sequence[str] = ()
    ) -> list[Result]:
        """Return the result of a function for each task, in their order.

        A task that fails is repeated as often as the implementation is set to. Task, function, and result are
        pickled.

        Args:
            function: a function of a module, which gets a task and the object stores of its files.
            tasks: the tasks.
            code: the user's code that tasks load, as `package.module:name`.

        Raises:
            Exception: the error of the first task that failed in each attempt; its message has the sentence of the
                task, which begins with `FAILED`.
        """

    def cancel(self) -> None:
        """End all tasks that run; `run` raises an error in each thread that waits for them."""


def run_native_tasks(tasks: Tasks, planned: Sequence[Task]) -> dict[int, TaskResult]:
    """Run native tasks, and return their results by number.

    Raises:
        Exception: as `Tasks.run`.
    """
    if not planned:  # without readable records there are no units
        return {}
    return {result.number: result for result in tasks.run(run_native_task, planned)}
