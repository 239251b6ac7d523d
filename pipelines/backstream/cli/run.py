"""Define the commands `plan` and `run`."""

from __future__ import annotations

import sys
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from backstream.cli.app import (
    DefinitionArgument,
    MaybeSince,
    MaybeUntil,
    ModeOption,
    ReasonOption,
    SinceOption,
    TimeZoneOption,
    UntilOption,
    app,
    find_definition,
    report_errors,
)
from backstream.cli.inspect import load_staleness
from backstream.errors import QualityError, SpecError
from backstream.eventtime.instants import duration_text, instant_ms
from backstream.eventtime.intervals import Interval, LocalDays, backfill_range
from backstream.runs.home import Home
from backstream.runs.input_notes import describe_inputs
from backstream.runs.plan import Chunk, Mode, Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

StaleOption = Annotated[bool, typer.Option("--stale", help="Run all days that late data made stale")]
UnsealedOption = Annotated[
    bool,
    typer.Option(
        "--allow-unsealed", help="Publish days that are not sealed yet. The report and the ledger record this"
    ),
]
GateOverrideOption = Annotated[
    str,
    typer.Option(
        help='Publish although the quality gate fails. The value is the reason, e.g., "the source lost 9 February"'
    ),
]
ReplanOption = Annotated[
    bool, typer.Option("--replan", help="Create a new plan instead of resuming an interrupted run")
]


@app.command()
def plan(
    definition: DefinitionArgument,
    since: SinceOption,
    until: UntilOption,
    time_zone: TimeZoneOption = None,
    mode: ModeOption = None,
    reason: ReasonOption = "",
    allow_unsealed: UnsealedOption = False,
) -> None:
    """Create a plan and list its chunks. No table is created or changed.

    Example: `backstream plan flights --since 2013-02-01 --until 2013-03-01 --mode replay`
    """
    with report_errors():
        requested = _requested_range(since, until, time_zone)
        planned = _create_plan(definition, requested, mode, RunOptions(reason, is_unsealed_allowed=allow_unsealed))
        _print_local_days(requested)
        print(_plan_text(planned))


@app.command()
def run(  # noqa: PLR0913, PLR0917 - each is an option
    definition: DefinitionArgument,
    since: MaybeSince = None,
    until: MaybeUntil = None,
    time_zone: TimeZoneOption = None,
    mode: ModeOption = None,
    reason: ReasonOption = "",
    replan: ReplanOption = False,
    stale: StaleOption = False,
    allow_unsealed: UnsealedOption = False,
    gate_override: GateOverrideOption = "",
) -> None:
    """Plan a range, replay it on this machine, audit it, publish it, and write the report.

    If a run for this range was interrupted, backstream resumes it with the same plan. It skips finished chunks and
    ignores new input files. It fails if the planned input files or the definition changed.
    With --stale, backstream runs all ranges that late data made stale, each day in the mode in which it was
    published. --since and --until limit the search.
    Exit status 0: published; 1: error, nothing was published; 2: the quality gate failed, see the report.

    Example: `backstream run flights --since 2013-02-01 --until 2013-03-01 --mode replay`
    """
    from backstream.spark.heap import driver_heap

    run_options = RunOptions(reason, is_unsealed_allowed=allow_unsealed, gate_override=gate_override.strip())
    with report_errors():
        driver_heap()  # an invalid memory setting must fail before planning
        if stale:
            if time_zone:
                msg = "--stale finds its ranges by itself, in UTC days; it cannot be combined with --time-zone"
                raise SpecError(msg)
            _run_stale(definition, (since, until), mode, run_options)
            return
        requested = _requested_range(*_require_both(since, until), time_zone)
        is_new = replan or bool(run_options.gate_override)
        planned = None if is_new else _find_interrupted_plan(definition, requested.interval, mode)
        spark = SparkStart(find_definition(definition))  # starts while the run is planned
        planned = planned or _create_plan(definition, requested, mode, run_options)
        _print_local_days(requested)
        run_plan(planned, spark)


class RequestedRange(NamedTuple):
    """A requested range, with its local days if the range has a time zone."""

    interval: Interval
    local_days: LocalDays | None = None


class RunOptions(NamedTuple):
    """Options of a run besides its range and mode."""

    reason: str
    is_unsealed_allowed: bool
    gate_override: str = ""


def _require_both(since: str | None, until: str | None) -> tuple[str, str]:
    if since is None or until is None:
        msg = "a range needs both --since and --until; --stale finds its ranges by itself"
        raise SpecError(msg)
    return since, until


def _requested_range(since: str, until: str, time_zone: str | None) -> RequestedRange:
    """Return the range between two instants, or between two local dates of a time zone."""
    if time_zone is None:
        return RequestedRange(backfill_range(instant_ms(since, "--since"), instant_ms(until, "--until")))
    local_days = LocalDays.from_dates(since, until, time_zone)
    return RequestedRange(local_days.utc_days, local_days)


def _print_local_days(requested: RequestedRange) -> None:
    """Print the local days of a range; planning has checked them, and the text looks at each day."""
    if requested.local_days:
        print(f"notice: {requested.local_days.describe}", file=sys.stderr)


def _run_stale(
    definition: str, limits: tuple[str | None, str | None], mode: Mode | None, options: RunOptions
) -> None:
    """Run each range of stale days as a run of its own."""
    from backstream.workflow.allowed_ranges import is_possible_range

    staleness, path, home = (
        load_staleness(definition, *limits),
        find_definition(definition),
        Home.from_environment(),
    )
    ranges = [
        (interval, published_mode)
        for interval, published_mode in staleness.ranges()
        if is_possible_range(path, interval, home)
    ]
    if not ranges:
        print(f"{staleness.dataset}: none of {staleness.published_days} published days is stale")
    options = options._replace(reason=options.reason or "late data")
    for interval, published_mode in ranges:
        print(f"stale: {staleness.dataset} {interval}", file=sys.stderr)
        spark = SparkStart(path)
        run_plan(_create_plan(definition, RequestedRange(interval), mode or published_mode, options), spark)


class SparkStart:
    """A Spark session that starts in the background, because Java needs seconds and no plan."""

    def __init__(self, definition: Path) -> None:
        from backstream.spark.java import require_java

        require_java()  # must fail before planning
        self._future: Future[SparkSession] = Future()
        # A daemon: if planning fails, no thread waits for the session, and Java ends with this process.
        Thread(target=self._start, args=(definition,), name="start Spark", daemon=True).start()

    def _start(self, definition: Path) -> None:
        from backstream.source.files import sum_source_bytes
        from backstream.spark.session import local_session

        try:
            self._future.set_result(
                local_session(f"backstream {definition.stem}", input_bytes=sum_source_bytes(definition))
            )
        except Exception as error:  # noqa: BLE001 - `session` raises it
            self._future.set_exception(error)

    def session(self) -> SparkSession:
        """Return the session once it has started, or raise the error of its start."""
        return self._future.result()


def run_plan(planned: Plan, spark: SparkStart) -> None:
    """Replay, audit, and publish a plan, and print the result."""
    from rich.console import Console

    from backstream import workflow
    from backstream.quality.gx_adapter import import_library

    for label, text in describe_inputs(planned):
        print(f"{label.lower()}: {text}", file=sys.stderr)
    # The import takes seconds, so it runs while Spark starts and replays.
    Thread(target=import_library, name="import Great Expectations", daemon=True).start()
    with workflow.record_failure(planned):
        workflow.create_run_tables(planned)
        stopping = _replay(planned, spark)
    try:
        _audit_and_publish(planned, Console(stderr=True))
    finally:
        stopping.join()  # the next session in this process must not start while this one stops


def _audit_and_publish(planned: Plan, console: Console) -> None:
    """Audit and publish the replayed windows, and write the report."""
    from backstream import workflow

    try:
        with console.status("auditing"):
            workflow.audit_run(planned)
    except QualityError:
        _refresh_dataset_state(planned, console)
        raise
    with console.status("publishing"):
        workflow.publish_run(planned)
    workflow.report_run(planned)
    print(workflow.publication_text(planned))
    _refresh_dataset_state(planned, console)


def _refresh_dataset_state(planned: Plan, console: Console) -> None:
    """Refresh the state of the dataset for the pages; a failure is only a warning, because the run has ended."""
    from backstream import workflow

    with console.status("refreshing the dataset state"):
        warning = workflow.refresh_after_run(planned)
    if warning:
        print(f"warning: {warning}", file=sys.stderr)


def _find_interrupted_plan(definition: str, interval: Interval, mode: Mode | None) -> Plan | None:
    """Return the plan of an interrupted run of this range, after printing notes about it, or None."""
    from backstream import workflow

    run = workflow.find_interrupted_run(find_definition(definition), interval, mode, Home.from_environment())
    if run is None:
        return None
    for note in run.notes:
        print(note, file=sys.stderr)
    return run.plan


def _create_plan(definition: str, requested: RequestedRange, mode: Mode | None, options: RunOptions) -> Plan:
    from backstream import workflow

    return workflow.plan_run(
        find_definition(definition),
        requested.interval.start_ms,
        requested.interval.end_ms,
        mode=mode,
        trigger="cli",
        reason=options.reason,
        is_unsealed_allowed=options.is_unsealed_allowed,
        gate_override=options.gate_override,
        local_days=requested.local_days,
        home=Home.from_environment(),
    )


def _plan_text(planned: Plan) -> str:
    from backstream.definition.loader import parse_definition
    from backstream.native.supported import describe_engine

    engine = describe_engine(parse_definition(planned.definition, f"plan {planned.run_id}"), planned.columns)
    lines = [
        f"{planned.dataset}  {planned.range}  {planned.mode}, arrival order {planned.arrival_order}",
        f"run {planned.run_id}, plan {planned.folder.plan}",
        f"engine {engine}",
        *(f"{label.lower()}: {text}" for label, text in describe_inputs(planned)),
        "",
        f"{'chunk':<8} {'windows start in':<40} {'files':>6} {'events, about':>14}  halo",
    ]
    for chunk in planned.chunks:
        halo = duration_text(chunk.halo_end_ms - chunk.end_ms)
        files, events = f"{len(chunk.files):>6,}", f"{chunk.expected_events:>14,}"
        lines.append(f"{chunk.chunk_id:<8} {chunk.interval!s:<40} {files} {events}  {halo}")
    return "\n".join(lines)


def _replay(planned: Plan, starting: SparkStart) -> Thread:
    """Replay all chunks in one Spark application, with a progress bar.

    Returns:
        The thread that stops Spark, which takes most of a second; the audit can begin meanwhile.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from backstream.spark.chunk_job import STAGES, replay_chunks
    from backstream.spark.failures import explain_heap_errors, silence_java_traces
    from backstream.spark.heap import driver_heap

    heap = driver_heap()
    print(f"heap of Spark's Java: {heap.said}", file=sys.stderr)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("eta"), TimeRemainingColumn())
    with Progress(TextColumn("{task.description:<28}"), *columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("starting Spark", total=len(planned.chunks) * len(STAGES))
        spark = starting.session()
        silence_java_traces(spark)
        finished = dict.fromkeys((chunk.chunk_id for chunk in planned.chunks), 0)  # stages; several threads write

        def show_stage(chunk: Chunk, stage: str) -> None:
            finished[chunk.chunk_id] = STAGES.index(stage)
            progress.update(bar, description=f"chunk {chunk.chunk_id}: {stage}", completed=sum(finished.values()))

        with explain_heap_errors(spark, planned, heap.by):
            for manifest in replay_chunks(spark, planned, planned.chunks, show_stage):
                finished[manifest.chunk_id] = len(STAGES)
                progress.update(bar, completed=sum(finished.values()))
        progress.update(bar, description="replayed")
    stopping = Thread(target=spark.stop, name="stop Spark")
    stopping.start()
    return stopping
