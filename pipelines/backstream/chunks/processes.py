"""Run native tasks in processes of this machine, without Java.

Each slot has one worker process, which runs one task after the other. If a worker ends during a task, e.g.,
because the machine has no memory left, a new one repeats that task; the tasks of the other slots go on.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, BrokenExecutor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from importlib import import_module
from queue import LifoQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, TypeVar

from backstream.errors import JobError
from backstream.native.task_runner import FAILED
from backstream.storage.machine import machine_memory_bytes
from backstream.storage.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loky import ProcessPoolExecutor

Work = TypeVar("Work")
Result = TypeVar("Result")

_MAX_ATTEMPTS = 4
"""The number of times that a task runs until it fails; Spark's default on a cluster."""
_DRIVER_MB, _MIN_TASK_MB, _MAX_TASK_MB = 1_024, 256, 16_384
_PARENT_CHECK_S = 1.0


class Processes:
    """A `Tasks` with one process per slot; the processes start with the first task."""

    def __init__(self, slots: int | None = None) -> None:
        """Use a number of slots; None: one for each core that this process may use."""
        from loky import cpu_count

        self.slots = slots or cpu_count()
        self._workers: LifoQueue[_Worker] = LifoQueue()
        self._all = [_Worker() for _ in range(self.slots)]
        for worker in reversed(self._all):
            self._workers.put(worker)
        self._threads = ThreadPoolExecutor(self.slots, thread_name_prefix="native task")
        self._is_cancelled = False

    @property
    def memory_mb(self) -> int:
        """The memory of a task in MB: half of what the driver leaves, as on Spark."""
        free_mb = machine_memory_bytes() // 2**20 - _DRIVER_MB
        return min(max(free_mb // (2 * self.slots), _MIN_TASK_MB), _MAX_TASK_MB)

    def start(self) -> None:
        """Start the processes, and import in them what tasks need."""
        with suppress(RuntimeError):  # closed meanwhile
            for worker in self._all:
                worker.submit(import_module, "backstream.native.task_runner")

    def run(
        self, function: Callable[[Work, Stores], Result], tasks: Sequence[Work], code: Sequence[str] = ()
    ) -> list[Result]:
        """Return the result of a function for each task; see `Tasks`.

        Raises:
            JobError: when a task ended its process in each attempt, or the tasks were cancelled.
            RuntimeError: the error of a task.
        """
        stores = Stores.from_environment()
        futures = [self._threads.submit(self._run_task, function, task, stores) for task in tasks]
        wait(futures, return_when=FIRST_EXCEPTION)
        for future in futures:
            future.cancel()  # after an error, tasks that have not begun don't begin
        failed = [future for future in futures if not future.cancelled() and future.done() and future.exception()]
        return [future.result() for future in failed or futures]

    def _run_task(self, function: Callable[[Work, Stores], Result], task: Work, stores: Stores) -> Result:
        end: BrokenExecutor | None = None
        for _ in range(_MAX_ATTEMPTS):
            with self._worker() as worker:
                if self._is_cancelled:
                    break
                try:
                    result: Result = worker.submit(function, task, stores).result()
                except BrokenExecutor as error:
                    end = error
                    worker.end()
                except RuntimeError:
                    if not self._is_cancelled:
                        raise
                else:
                    return result
        if self._is_cancelled:
            msg = f"{FAILED} {task}: it was cancelled"
            raise JobError(msg)
        msg = (
            f"{FAILED} {task}: its process ended in each of {_MAX_ATTEMPTS} attempts\n  {_reason(end)}\n\n"
            "hint: give the machine more memory, or run fewer tasks at the same time with LOKY_MAX_CPU_COUNT;"
            " finished chunks are kept"
        )
        raise JobError(msg) from end

    @contextmanager
    def _worker(self) -> Iterator[_Worker]:
        worker = self._workers.get()
        try:
            yield worker
        finally:
            self._workers.put(worker)

    def cancel(self) -> None:
        """End the processes; a task that runs ends too."""
        self._is_cancelled = True
        for worker in self._all:
            worker.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Worker:
    """The process of a slot. It starts at its first use, and again after it has ended."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._is_closed = False
        self._lock = Lock()

    def submit(self, function: Callable[..., Result], *arguments: object) -> Future[Result]:
        """Call a function in the process.

        Raises:
            RuntimeError: when the worker is closed.
        """
        from loky import ProcessPoolExecutor  # only this runner needs it

        with self._lock:
            if self._is_closed:
                msg = "the worker is closed"
                raise RuntimeError(msg)
            if self._pool is None:
                # Unlike a worker of `multiprocessing`, it does not run the script of the user again.
                self._pool = ProcessPoolExecutor(1, initializer=_end_with_parent, initargs=(os.getpid(),))
            future: Future[Result] = self._pool.submit(function, *arguments)
        return future

    def end(self) -> None:
        """End the process; the next call starts another one."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(kill_workers=True)

    def close(self) -> None:
        """End the process for good."""
        with self._lock:
            self._is_closed = True
        self.end()


def _end_with_parent(parent: int) -> None:
    """End this process once its parent has ended, however that ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_CHECK_S)
        os._exit(1)

    Thread(target=watch, name="end with the parent", daemon=True).start()


def _reason(end: BrokenExecutor | None) -> str:
    """Return how a process ended, in one line."""
    status = re.search(r"\{([^}]*)\}", str(end))
    return f"it ended with {status[1]}" if status else "it ended without an error of Python"
