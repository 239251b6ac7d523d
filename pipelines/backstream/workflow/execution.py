"""Execute a plan in this process: replay, audit, publish, and report. The CLI and the Python API share it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from backstream.definition.loader import load_definition
from backstream.errors import QualityError
from backstream.eventtime.intervals import ALL_TIMES, Interval, require_range_of_days
from backstream.runs.home import Home
from backstream.runs.input_notes import describe_gaps, describe_inputs
from backstream.runs.manifest import load_manifests
from backstream.runs.plan import Chunk, Plan
from backstream.runs.progress import Phase, begin_phase, keep_phase
from backstream.workflow.plan.plan_request import PlanRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ProgressCallback = Callable[[str | None, int], None]
"""Receives the current work (None: unchanged) and the number of finished stages of all chunks."""


class SparkStart:
    """A Spark session that starts in the background, because Java needs seconds and no plan.

    A session that is already active is used with backstream's settings, and `stop` keeps it.
    """

    def __init__(self, definition: Path) -> None:
        from backstream.spark.java import require_java

        require_java()  # must fail before planning
        self._is_own = not _has_active_session()
        self._future: Future[SparkSession] = Future()
        # A daemon: if planning fails, no thread waits for the session, and Java ends with this process.
        Thread(target=self._start, args=(definition,), name="start Spark", daemon=True).start()

    def _start(self, definition: Path) -> None:
        from backstream.source.files import sum_source_bytes
        from backstream.spark.session import local_session

        try:
            input_bytes = sum_source_bytes(definition, Home.from_environment())
            self._future.set_result(local_session(f"backstream {definition.stem}", input_bytes=input_bytes))
        except Exception as error:  # noqa: BLE001 - `session` raises it
            self._future.set_exception(error)

    def session(self) -> SparkSession:
        """Return the session once it has started, or raise the error of its start."""
        return self._future.result()

    def stop(self) -> None:
        """Stop the session, unless it was active before."""
        if self._is_own:
            self.session().stop()


@contextmanager
def spark_on_demand(definition: Path) -> Iterator[Callable[[], SparkSession]]:
    """Provide a function that returns a Spark session, which starts at its first call and stops at the end."""
    started: list[SparkStart] = []

    def session() -> SparkSession:
        if not started:
            started.append(SparkStart(definition))
        return started[0].session()

    try:
        yield session
    finally:
        for start in started:
            start.stop()


def _has_active_session() -> bool:
    """Return whether this process has a Spark session; without PySpark's modules it has none."""
    pyspark = sys.modules.get("pyspark.sql")
    return pyspark is not None and pyspark.SparkSession.getActiveSession() is not None


def prepare_input(
    definition: Path,
    home: Home,
    note: Callable[[str], None],
    spark: SparkStart | None = None,
    needed: Interval | None = ALL_TIMES,
) -> bool:
    """Prepare the new files of a source, and return whether there were any.

    Args:
        definition: the TOML file.
        home: the folder that holds all state.
        note: receives lines about the work.
        spark: a session that starts; without it, one starts if it is needed, and stops at the end.
        needed: the event times that the caller needs; see `prepare_source`.
    """
    from backstream.workflow.inputs.prepare import prepare_source

    with spark_on_demand(definition) as own_session:
        session = own_session if spark is None else spark.session
        return prepare_source(definition, home, session, note, needed) is not None


def prepare_for_run(request: PlanRequest, note: Callable[[str], None], spark: SparkStart | None = None) -> bool:
    """Prepare the new files that the run of a request needs, and return whether there were any.

    Args:
        request: the range with its options.
        note: receives lines about the work.
        spark: a session that starts; see `prepare_input`.
    """
    from backstream.workflow.plan.allowed_ranges import needed_times

    definition = load_definition(request.definition)
    needed = needed_times(request.interval, definition, request.mode or definition.backfill.mode)
    return prepare_input(request.definition, request.home, note, spark, needed)


class RunObserver:
    """Receiver of the progress of a run; this one ignores it."""

    def note(self, line: str) -> None:
        """Receive a remark about the input, the machine, or a step that failed after the run."""

    def on_published(self, plan: Plan) -> None:
        """Receive the plan of a run that was published and that has its report."""

    def phase(self, label: str) -> AbstractContextManager[object]:
        """Enclose a step without measurable progress, such as `auditing`."""
        return nullcontext()

    def replay(self, stages: int) -> AbstractContextManager[ProgressCallback]:
        """Enclose the replay, which consists of this number of stages, and return a callback for progress."""
        return nullcontext(lambda _label, _finished: None)


def run_range(request: PlanRequest, observer: RunObserver, *, is_replan: bool = False) -> Plan:
    """Resume the interrupted run of a range, or plan it; then execute the run and return its plan.

    Args:
        request: the range with its options.
        observer: receives the progress.
        is_replan: whether to create a new plan instead of resuming an interrupted run.

    Raises:
        PlanError: when the range cannot be planned, or an interrupted run cannot continue.
        QualityError: when the quality gate fails; nothing is published.
        BackstreamError: when a step fails; the ledger records the failure.
    """
    load_definition(request.definition)  # an error in it must come before Java's first lines
    is_new = is_replan or bool(request.gate_override)
    spark = SparkStart(request.definition)  # starts while the run is planned
    plan = None if is_new else _find_interrupted_plan(request, observer)
    if plan is None:
        from backstream.workflow.plan.planning import plan_run

        require_range_of_days(request.interval)
        prepare_for_run(request, observer.note, spark)
        plan = plan_run(request)
    if request.local_days:
        observer.note(f"notice: {request.local_days.describe}")
    execute_run(plan, spark, observer)
    return plan


def _find_interrupted_plan(request: PlanRequest, observer: RunObserver) -> Plan | None:
    from backstream.workflow.resume import find_interrupted_run

    run = find_interrupted_run(request.definition, request.interval, request.mode, request.home)
    if run is None:
        return None
    for line in run.notes:
        observer.note(line)
    return run.plan


def execute_run(plan: Plan, spark: SparkStart, observer: RunObserver) -> None:
    """Replay, audit, and publish a plan, and write its report.

    Raises:
        QualityError: when the quality gate fails; nothing is published.
        BackstreamError: when a step fails; the ledger records the failure.
    """
    from backstream.quality.gx_adapter import import_library
    from backstream.workflow.publish import create_run_tables, record_failure

    for label, text in describe_inputs(plan):
        observer.note(f"{label.lower()}: {text}")
    # The import takes seconds, so it runs while Spark starts and replays.
    Thread(target=import_library, name="import Great Expectations", daemon=True).start()
    with record_failure(plan):
        create_run_tables(plan)
        _replay(plan, spark, observer)
    for label, text in describe_gaps(load_manifests(plan)):
        observer.note(f"{label.lower()}: {text}")
    # Stopping takes most of a second; the audit can begin meanwhile.
    stopping = Thread(target=spark.stop, name="stop Spark")
    stopping.start()
    try:
        _audit_and_publish(plan, observer)
    finally:
        stopping.join()  # the next session in this process must not start while this one stops


def _replay(plan: Plan, starting: SparkStart, observer: RunObserver) -> None:
    """Replay all chunks in one Spark application."""
    from backstream.spark.chunk_job import STAGES, replay_chunks
    from backstream.spark.failures import explain_heap_errors, silence_java_traces
    from backstream.spark.heap import driver_heap
    from backstream.spark.shared_folder import require_visible_files

    heap = driver_heap()
    observer.note(f"heap of Spark's Java: {heap.description}")
    finished = dict.fromkeys((chunk.chunk_id for chunk in plan.chunks), 0)  # stages; several threads write
    begin_phase(plan.folder, Phase.START_SPARK)
    with observer.replay(len(plan.chunks) * len(STAGES)) as show:
        spark = starting.session()
        silence_java_traces(spark)
        require_visible_files(spark.sparkContext, plan)

        def show_stage(chunk: Chunk, stage: str) -> None:
            finished[chunk.chunk_id] = STAGES.index(stage)
            show(f"chunk {chunk.chunk_id}: {stage}", sum(finished.values()))

        with keep_phase(plan.folder, Phase.REPLAY), explain_heap_errors(spark, plan, heap.by):
            for manifest in replay_chunks(spark, plan, plan.chunks, show_stage):
                finished[manifest.chunk_id] = len(STAGES)
                show(None, sum(finished.values()))
        show("replayed", sum(finished.values()))


def _audit_and_publish(plan: Plan, observer: RunObserver) -> None:
    """Audit and publish the replayed windows, and write the report."""
    from backstream.workflow.audit import audit_run
    from backstream.workflow.publish import publish_run
    from backstream.workflow.report import report_run

    try:
        with observer.phase("auditing"):
            audit_run(plan)
    except QualityError:
        _refresh_dataset_state(plan, observer)
        raise
    with observer.phase("publishing"):
        publish_run(plan)
    report_run(plan)
    observer.on_published(plan)
    _refresh_dataset_state(plan, observer)


def _refresh_dataset_state(plan: Plan, observer: RunObserver) -> None:
    """Refresh the state of the dataset for the pages; a failure is only a warning, because the run has ended."""
    from backstream.workflow.dataset_state import refresh_after_run

    with observer.phase("refreshing the dataset state"):
        warning = refresh_after_run(plan)
    if warning:
        observer.note(f"warning: {warning}")
