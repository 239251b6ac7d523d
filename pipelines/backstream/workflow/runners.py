"""Define where the work of a command runs: in a session of Spark, or in processes of this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Protocol, Self

from backstream.chunks.threads import Threads
from backstream.runs.choices import RunnerName
from backstream.runs.home import Home
from backstream.runs.plan import Plan
from backstream.spark.java import find_java
from backstream.storage.machine import SMALL_INPUT_BYTES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from backstream.chunks.native_engine import Engine
    from backstream.chunks.processes import Processes
    from backstream.chunks.tasks import Tasks


class Runner(Protocol):
    """A place for work. It starts at its first use, or earlier in the background."""

    def tasks(self) -> Tasks:
        """Return the place of native tasks."""

    def engine(self) -> Engine:
        """Return the engine for chunks."""

    def session(self, reason: str) -> SparkSession:
        """Return the session of Spark.

        Args:
            reason: why the caller needs it, for the message.

        Raises:
            SpecError: when the runner has none.
        """

    def stop(self) -> None:
        """End the runner after its work."""

    def abandon(self) -> None:
        """End the runner without work, as the process will end after an error."""


class SparkRunner:
    """A session of Spark."""

    def __init__(self, session: Callable[[], SparkSession], stop: Callable[[], None] = lambda: None) -> None:
        """Use a session.

        Args:
            session: returns it; it may start then.
            stop: ends it.
        """
        self._session, self.stop = session, stop

    def tasks(self) -> Tasks:
        """Return the place of native tasks in the session."""
        from backstream.spark.tasks import SparkTasks

        return SparkTasks(self._session())

    def engine(self) -> Engine:
        """Return the engine for chunks in the session."""
        from backstream.spark.engine import SparkEngine

        return SparkEngine(self._session())

    def session(self, reason: str) -> SparkSession:
        """Return the session."""
        return self._session()

    def abandon(self) -> None:
        """Do nothing: Java ends with this process."""


class SparkStart(SparkRunner):
    """A session of Spark that starts in the background, because Java needs seconds and no plan.

    For a small input, native tasks run in threads of this process, and Spark starts only once it is needed. A
    session that is already active is used with backstream's settings, and `stop` keeps it.
    """

    def __init__(self, definition: Path, *, is_on_demand: bool = False) -> None:
        """Start the session.

        Args:
            definition: the definition of the work.
            is_on_demand: whether to start it at its first use only.

        Raises:
            SetupError: when there is no Java, which must be known before planning.
        """
        from backstream.chunks.engine_choice import has_spark_sections
        from backstream.definition.loader import load_definition
        from backstream.spark.java import require_java

        self._definition, self._input_bytes = definition, _input_bytes(definition)
        self._is_own, self._is_started, self._lock = not _has_active_session(), False, Lock()
        self._future: Future[SparkSession] = Future()
        super().__init__(self._started_session, self._stop_own)
        if is_on_demand:
            return
        require_java()
        is_large = not _is_small(self._input_bytes)
        if not self._is_own or is_large or has_spark_sections(load_definition(definition)):
            self.start()

    @property
    def is_started(self) -> bool:
        """The session starts or has started."""
        return self._is_started

    def start(self) -> None:
        """Start the session, if it has not begun."""
        from backstream.spark.java import require_java

        require_java()
        with self._lock:
            if not self._is_started:
                self._is_started = True
                # A daemon: if planning fails, no thread waits for the session, and Java ends with this process.
                Thread(target=self._start, name="start Spark", daemon=True).start()

    def tasks(self) -> Tasks:
        """Return the place of native tasks: the session, or threads for a small input before it starts."""
        return super().tasks() if self._is_started or not _is_small(self._input_bytes) else Threads()

    def _started_session(self) -> SparkSession:
        self.start()
        return self._future.result()

    def _start(self) -> None:
        from backstream.spark.session import local_session

        try:
            name = f"backstream {self._definition.stem}"
            self._future.set_result(local_session(name, input_bytes=self._input_bytes))
        except Exception as error:  # noqa: BLE001 - `session` raises it
            self._future.set_exception(error)

    def _stop_own(self) -> None:
        if self._is_own and self._is_started:
            self._future.result().stop()


class LocalRunner:
    """Processes or threads of this machine, without Java."""

    def __init__(self, tasks: Processes | Threads) -> None:
        """Use what runs native tasks."""
        self._tasks = tasks

    @classmethod
    def for_input(cls, input_bytes: int | None) -> Self:
        """Return a runner with processes, or with threads: processes take longer to start than a small input.

        Args:
            input_bytes: the size of the files that tasks may read; None if it is not known.
        """
        return cls(Threads() if _is_small(input_bytes) else _processes())

    @property
    def place(self) -> str:
        """The place of the work as text, e.g., `2 processes of this machine`."""
        is_here = isinstance(self._tasks, Threads)
        return f"{self._tasks.slots} {'threads of this process' if is_here else 'processes of this machine'}"

    def start(self) -> None:
        """Start the processes in the background."""
        Thread(target=self._tasks.start, name="start native tasks", daemon=True).start()

    def tasks(self) -> Tasks:
        """Return the place of native tasks."""
        return self._tasks

    def engine(self) -> Engine:
        """Return the engine for chunks."""
        from backstream.chunks.native_engine import NativeEngine

        return NativeEngine(self._tasks)

    def session(self, reason: str) -> SparkSession:
        """Raise an error.

        Raises:
            SpecError: always.
        """
        from backstream.chunks.engine_choice import needs_spark_error

        raise needs_spark_error(reason)

    def stop(self) -> None:
        """End the processes."""
        self._tasks.cancel()

    def abandon(self) -> None:
        """End the processes."""
        self._tasks.cancel()


def choose_runner(definition: Path, name: RunnerName | None = None) -> RunnerName:
    """Return the name of the runner of a command: the given one, that of the definition, or what is installed.

    Raises:
        SpecError: when the definition is wrong.
    """
    from backstream.definition.loader import load_definition

    chosen = name or load_definition(definition).backfill.runner
    if chosen != "auto":
        return RunnerName(chosen)
    has_spark = find_spec("pyspark") is not None and find_java() is not None
    return RunnerName.SPARK if has_spark else RunnerName.LOCAL


def plan_reason_for_spark(plan: Plan) -> str | None:
    """Return why a plan needs Spark; None if native tasks compute all of its tables."""
    from backstream.chunks.engine_choice import reason_for_spark
    from backstream.definition.loader import parse_definition

    definition = parse_definition(plan.definition, f"plan {plan.run_id}")
    return reason_for_spark(definition, plan.columns, plan.mode)


def require_no_spark(plan: Plan) -> None:
    """Check that native tasks compute all tables of a plan.

    Raises:
        SpecError: with the reason why the local runner cannot run it.
    """
    from backstream.chunks.engine_choice import needs_spark_error

    if reason := plan_reason_for_spark(plan):
        raise needs_spark_error(reason, plan.definition_path)


def start_runner(definition: Path, name: RunnerName) -> Runner:
    """Return a runner by its name; its start begins in the background."""
    if name is RunnerName.SPARK:
        return SparkStart(definition)
    local = LocalRunner.for_input(_input_bytes(definition))
    local.start()
    return local


@contextmanager
def runner_on_demand(definition: Path, name: RunnerName) -> Iterator[Runner]:
    """Provide a runner by its name, which starts at its first use and stops at the end."""
    if name is RunnerName.LOCAL:
        local = LocalRunner.for_input(_input_bytes(definition))
        try:
            yield local
        finally:
            local.stop()
        return
    spark = SparkStart(definition, is_on_demand=True)
    try:
        yield spark
    finally:
        spark.stop()


def _processes() -> Processes:
    from backstream.chunks.processes import Processes  # with a library that threads don't need

    return Processes()


def _input_bytes(definition: Path) -> int | None:
    """Return the size of the files of a definition in bytes; None if it is not known."""
    from backstream.source.files import sum_source_bytes

    return sum_source_bytes(definition, Home.from_environment(), _table_bytes)


def _table_bytes(name: str, home: Home, where: str) -> int:
    """Return the size of the files of an Iceberg table; only for one is PyIceberg loaded."""
    from backstream.lake.source_tables import table_bytes

    return table_bytes(name, home, where)


def _is_small(input_bytes: int | None) -> bool:
    return input_bytes is not None and input_bytes <= SMALL_INPUT_BYTES


def _has_active_session() -> bool:
    """Return whether this process has a Spark session; without PySpark's modules it has none."""
    pyspark = sys.modules.get("pyspark.sql")
    return pyspark is not None and pyspark.SparkSession.getActiveSession() is not None
