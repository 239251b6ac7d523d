"""Execute a plan in this process: replay, audit, publish, and report. The CLI and the Python API share it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from backstream.definition.loader import load_definition
from backstream.errors import QualityError
from backstream.eventtime.intervals import ALL_TIMES, Interval, require_range_of_days
from backstream.quality.gate_process import start_gate_process, validate_in_process
from backstream.runs.choices import RunnerName
from backstream.runs.home import Home
from backstream.runs.input_notes import describe_gaps, describe_inputs
from backstream.runs.manifest import load_manifests
from backstream.runs.plan import Chunk, Plan
from backstream.runs.progress import Phase, begin_phase, keep_phase
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.runners import (
    LocalRunner,
    Runner,
    SparkStart,
    choose_runner,
    plan_reason_for_spark,
    require_no_spark,
    runner_on_demand,
    start_runner,
)

if TYPE_CHECKING:
    from backstream.chunks.native_engine import Engine

ProgressCallback = Callable[[str | None, int], None]
"""Receives the current work (None: unchanged) and the number of finished stages of all chunks."""


def prepare_input(
    definition: Path,
    home: Home,
    note: Callable[[str], None],
    runner: Runner | None = None,
    needed: Interval | None = ALL_TIMES,
) -> bool:
    """Prepare the new files of a source, and return whether there were any.

    Args:
        definition: the TOML file.
        home: the folder that holds all state.
        note: receives lines about the work.
        runner: runs the work; without it, that of the definition starts if it is needed, and stops at the end.
        needed: the event times that the caller needs; see `prepare_source`.
    """
    from backstream.workflow.inputs.prepare import prepare_source

    if runner is not None:
        return prepare_source(definition, home, runner, note, needed) is not None
    with runner_on_demand(definition, choose_runner(definition)) as own:
        return prepare_source(definition, home, own, note, needed) is not None


def prepare_for_run(request: PlanRequest, note: Callable[[str], None], runner: Runner | None = None) -> bool:
    """Prepare the new files that the run of a request needs, and return whether there were any.

    Args:
        request: the range with its options.
        note: receives lines about the work.
        runner: see `prepare_input`.
    """
    from backstream.workflow.plan.allowed_ranges import needed_times

    definition = load_definition(request.definition)
    needed = needed_times(request.interval, definition, request.mode or definition.backfill.mode)
    return prepare_input(request.definition, request.home, note, runner, needed)


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


def run_range(
    request: PlanRequest, observer: RunObserver, *, runner_name: RunnerName | None = None, is_replan: bool = False
) -> Plan:
    """Resume the interrupted run of a range, or plan it; then execute the run and return its plan.

    Args:
        request: the range with its options.
        observer: receives the progress.
        runner_name: the name of the runner; None: that of the definition.
        is_replan: whether to create a new plan instead of resuming an interrupted run.

    Raises:
        PlanError: when the range cannot be planned, or an interrupted run cannot continue.
        QualityError: when the quality gate fails; nothing is published.
        BackstreamError: when a step fails; the ledger records the failure.
    """
    start_gate_process()  # it imports a library while the run is planned and replayed
    name = choose_runner(
        request.definition, runner_name
    )  # an error in the definition must come before Java's lines
    is_new = is_replan or bool(request.gate_override)
    runner = start_runner(request.definition, name)  # it starts while the run is planned
    try:
        plan = None if is_new else _find_interrupted_plan(request, observer)
        if plan is None:
            from backstream.workflow.plan.planning import plan_run

            require_range_of_days(request.interval)
            prepare_for_run(request, observer.note, runner)
            plan = plan_run(request)
    except BaseException:
        runner.abandon()
        raise
    if request.local_days:
        observer.note(f"notice: {request.local_days.describe}")
    execute_run(plan, runner, observer)
    return plan


def _find_interrupted_plan(request: PlanRequest, observer: RunObserver) -> Plan | None:
    from backstream.workflow.resume import find_interrupted_run

    run = find_interrupted_run(request.definition, request.interval, request.mode, request.home)
    if run is None:
        return None
    for line in run.notes:
        observer.note(line)
    return run.plan


def execute_run(plan: Plan, runner: Runner, observer: RunObserver) -> None:
    """Replay, audit, and publish a plan, and write its report; the runner ends with it.

    Raises:
        QualityError: when the quality gate fails; nothing is published.
        BackstreamError: when a step fails; the ledger records the failure.
    """
    from backstream.workflow.publish import create_run_tables, record_failure

    for label, text in describe_inputs(plan):
        observer.note(f"{label.lower()}: {text}")
    start_gate_process()
    try:
        with record_failure(plan):
            if isinstance(runner, LocalRunner):
                require_no_spark(plan)
            create_run_tables(plan)
            _replay(plan, runner, observer)
    except BaseException:
        runner.abandon()
        raise
    for label, text in describe_gaps(load_manifests(plan)):
        observer.note(f"{label.lower()}: {text}")
    # Stopping takes most of a second; the audit can begin meanwhile.
    stopping = Thread(target=runner.stop, name="stop the runner")
    stopping.start()
    try:
        _audit_and_publish(plan, observer)
    finally:
        stopping.join()  # the next session in this process must not start while this one stops


def _replay(plan: Plan, runner: Runner, observer: RunObserver) -> None:
    """Replay all chunks in one application."""
    from backstream.chunks.replay import STAGES, replay_chunks

    finished = dict.fromkeys((chunk.chunk_id for chunk in plan.chunks), 0)  # stages; several threads write
    with observer.replay(len(plan.chunks) * len(STAGES)) as show:

        def show_stage(chunk: Chunk, stage: str) -> None:
            finished[chunk.chunk_id] = STAGES.index(stage)
            show(f"chunk {chunk.chunk_id}: {stage}", sum(finished.values()))

        with _engine(plan, runner, observer) as engine, keep_phase(plan.folder, Phase.REPLAY):
            for manifest in replay_chunks(engine, plan, plan.chunks, show_stage):
                finished[manifest.chunk_id] = len(STAGES)
                show(None, sum(finished.values()))
        show("replayed", sum(finished.values()))


@contextmanager
def _engine(plan: Plan, runner: Runner, observer: RunObserver) -> Iterator[Engine]:
    """Provide the engine of a runner, once it has started and finds the files."""
    from backstream.chunks.native_engine import NativeEngine, NativeFirst

    if isinstance(runner, LocalRunner):
        observer.note(f"native tasks run in {runner.place}")
        yield runner.engine()
        return
    with ExitStack() as stack:
        start_spark = partial(stack.enter_context, _spark_engine(plan, runner, observer))
        if isinstance(runner, SparkStart) and not runner.is_started and not plan_reason_for_spark(plan):
            threads = runner.tasks()
            observer.note(f"native tasks run in {threads.slots} threads of this process")
            yield NativeFirst(NativeEngine(threads), start_spark)
        else:
            yield start_spark()


@contextmanager
def _spark_engine(plan: Plan, runner: Runner, observer: RunObserver) -> Iterator[Engine]:
    """Provide the engine of a session, once it has started and finds the files."""
    from backstream.spark.failures import explain_heap_errors, silence_java_traces
    from backstream.spark.heap import driver_heap
    from backstream.spark.shared_folder import require_visible_files

    heap = driver_heap()
    observer.note(f"heap of Spark's Java: {heap.description}")
    begin_phase(plan.folder, Phase.START_SPARK)
    spark = runner.session("")
    silence_java_traces(spark)
    require_visible_files(spark.sparkContext, plan)
    with explain_heap_errors(spark, plan, heap.by):
        yield runner.engine()


def _audit_and_publish(plan: Plan, observer: RunObserver) -> None:
    """Audit and publish the replayed windows, and write the report."""
    from backstream.workflow.audit import audit_run
    from backstream.workflow.publish import publish_run
    from backstream.workflow.report import report_run

    try:
        with observer.phase("auditing"):
            audit_run(plan, validate_in_process)
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
