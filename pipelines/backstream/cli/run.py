"""Verbs of a run: plan it, run it."""

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

StaleOption = Annotated[bool, typer.Option("--stale", help="Run the days that late data made stale")]
UnsealedOption = Annotated[
    bool, typer.Option("--allow-unsealed", help="Publish days as final that may still gain events, and say so")
]
GateOverrideOption = Annotated[
    str, typer.Option(help='Publish even if the gate refuses, and say why, such as "the source lost 9 February"')
]
ReplanOption = Annotated[
    bool, typer.Option("--replan", help="Plan anew, even where an interrupted run could go on")
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
    """Say what a run would read and write, chunk by chunk, and write the plan. No table is made or changed.

    Example: `backstream plan flights --since 2013-02-01 --until 2013-03-01 --mode replay`
    """
    with report_errors():
        asked = _asked(since, until, time_zone)
        planned = _planned(definition, asked, mode, RunOptions(reason, is_unsealed_allowed=allow_unsealed))
        _tell(asked)
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
    """Plan a range, replay it on this machine's cores, audit it, publish it, and write the report.

    A range that was interrupted goes on where it stopped, with the plan it had: finished chunks are not run again,
    and files that came since are not read.  It is refused when its input files or its definition have changed.
    With --stale the ranges are those that late data made stale, within --since and --until where they are given,
    each day in the mode it was published in.
    Exit status 0: published; 1: an error, nothing was published; 2: the gate refused, see the report.

    Example: `backstream run flights --since 2013-02-01 --until 2013-03-01 --mode replay`
    """
    from backstream.spark.heap import driver_heap

    why = RunOptions(reason, is_unsealed_allowed=allow_unsealed, gate_override=gate_override.strip())
    with report_errors():
        driver_heap()  # an amount of memory that is none is told before anything is planned
        if stale:
            if time_zone:
                msg = "--stale finds its ranges by itself, in UTC days; it does not go with --time-zone"
                raise SpecError(msg)
            _run_stale(definition, (since, until), mode, why)
            return
        asked = _asked(*_both(since, until), time_zone)
        planned = None if replan or why.gate_override else _interrupted(definition, asked.interval, mode)
        spark = SparkStart(find_definition(definition))  # while the run is planned
        planned = planned or _planned(definition, asked, mode, why)
        _tell(asked)
        run_plan(planned, spark)


class RequestedRange(NamedTuple):
    """The range a person asked for, and whose days it is made of, if not UTC's."""

    interval: Interval
    local_days: LocalDays | None = None


class RunOptions(NamedTuple):
    """What a person says about a run besides its range."""

    reason: str
    is_unsealed_allowed: bool
    gate_override: str = ""


def _both(since: str | None, until: str | None) -> tuple[str, str]:
    if since is None or until is None:
        msg = "a range needs both --since and --until; --stale finds its ranges by itself"
        raise SpecError(msg)
    return since, until


def _asked(since: str, until: str, time_zone: str | None) -> RequestedRange:
    """The range by its two ends, which may be days of a time zone."""
    if time_zone is None:
        return RequestedRange(backfill_range(instant_ms(since, "--since"), instant_ms(until, "--until")))
    local_days = LocalDays.from_dates(since, until, time_zone)
    return RequestedRange(local_days.utc_days, local_days)


def _tell(asked: RequestedRange) -> None:
    """A word on the days of a time zone, once they are known to be possible: it looks at each."""
    if asked.local_days:
        print(f"notice: {asked.local_days.describe}", file=sys.stderr)


def _run_stale(definition: str, within: tuple[str | None, str | None], mode: Mode | None, why: RunOptions) -> None:
    """One run per range of stale days."""
    from backstream.workflow.allowed_ranges import is_possible_range

    found, path, home = load_staleness(definition, *within), find_definition(definition), Home.from_environment()
    ranges = [
        (interval, in_mode) for interval, in_mode in found.ranges() if is_possible_range(path, interval, home)
    ]
    if not ranges:
        print(f"{found.dataset}: none of {found.published_days} published days is stale")
    because = why._replace(reason=why.reason or "late data")
    for interval, published_mode in ranges:
        print(f"stale: {found.dataset} {interval}", file=sys.stderr)
        spark = SparkStart(find_definition(definition))
        run_plan(_planned(definition, RequestedRange(interval), mode or published_mode, because), spark)


class SparkStart:
    """A session that starts meanwhile: its Java takes seconds to, and needs nothing that a plan says."""

    def __init__(self, definition: Path) -> None:
        from backstream.spark.java import require_java

        require_java()  # before anything is done
        self._future: Future[SparkSession] = Future()
        # When the plan is refused nobody waits for the session, and its Java ends with this process.
        Thread(target=self._start, args=(definition,), name="start Spark", daemon=True).start()

    def _start(self, definition: Path) -> None:
        from backstream.source.files import sum_source_bytes
        from backstream.spark.session import local_session

        try:
            self._future.set_result(
                local_session(f"backstream {definition.stem}", input_bytes=sum_source_bytes(definition))
            )
        except Exception as error:  # noqa: BLE001 - it is raised where the session is wanted
            self._future.set_exception(error)

    def session(self) -> SparkSession:
        """Wait for it."""
        return self._future.result()


def run_plan(planned: Plan, spark: SparkStart) -> None:
    """Replay, audit and publish what was planned, and say what came of it."""
    from rich.console import Console

    from backstream import workflow
    from backstream.quality.gx_adapter import import_library

    for label, told in describe_inputs(planned):
        print(f"{label.lower()}: {told}", file=sys.stderr)
    # It takes seconds, in which Spark starts and works.
    Thread(target=import_library, name="import the gate", daemon=True).start()
    with workflow.record_failure(planned):
        workflow.create_run_tables(planned)
        stopping = _replay(planned, spark)
    try:
        _conclude(planned, Console(stderr=True))
    finally:
        stopping.join()  # whoever starts Spark next in this process must not find it half gone


def _conclude(planned: Plan, console: Console) -> None:
    """Audit and publish what was replayed."""
    from backstream import workflow

    try:
        with console.status("auditing"):
            workflow.audit_run(planned)
    except QualityError:
        _refresh(planned, console)
        raise
    with console.status("publishing"):
        workflow.publish_run(planned)
    workflow.report_run(planned)
    print(workflow.publication_text(planned))
    _refresh(planned, console)


def _refresh(planned: Plan, console: Console) -> None:
    """Have the pages show the dataset as it is now; the run itself is over."""
    from backstream import workflow

    with console.status("looking at the dataset as it is now"):
        warning = workflow.refresh_after_run(planned)
    if warning:
        print(f"warning: {warning}", file=sys.stderr)


def _interrupted(definition: str, interval: Interval, mode: Mode | None) -> Plan | None:
    """The run of this range that was interrupted, after a word on it; None when there is none."""
    from backstream import workflow

    found = workflow.find_interrupted_run(find_definition(definition), interval, mode, Home.from_environment())
    if found is None:
        return None
    for note in found.notes:
        print(note, file=sys.stderr)
    return found.plan


def _planned(definition: str, asked: RequestedRange, mode: Mode | None, why: RunOptions) -> Plan:
    from backstream import workflow

    return workflow.plan_run(
        find_definition(definition),
        asked.interval.start_ms,
        asked.interval.end_ms,
        mode=mode,
        trigger="cli",
        reason=why.reason,
        is_unsealed_allowed=why.is_unsealed_allowed,
        gate_override=why.gate_override,
        local_days=asked.local_days,
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
        *(f"{label.lower()}: {told}" for label, told in describe_inputs(planned)),
        "",
        f"{'chunk':<8} {'windows start in':<40} {'files':>6} {'events, about':>14}  halo",
    ]
    for chunk in planned.chunks:
        halo = duration_text(chunk.halo_end_ms - chunk.end_ms)
        files, events = f"{len(chunk.files):>6,}", f"{chunk.expected_events:>14,}"
        lines.append(f"{chunk.chunk_id:<8} {chunk.interval!s:<40} {files} {events}  {halo}")
    return "\n".join(lines)


def _replay(planned: Plan, starting: SparkStart) -> Thread:
    """All chunks in one Spark application, with a bar that moves as stages finish.

    Returns:
        Who stops Spark: that takes most of a second, in which the audit can begin.
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
        reached = dict.fromkeys((chunk.chunk_id for chunk in planned.chunks), 0)  # stages, told by several threads

        def tell(chunk: Chunk, stage: str) -> None:
            reached[chunk.chunk_id] = STAGES.index(stage)
            progress.update(bar, description=f"chunk {chunk.chunk_id}: {stage}", completed=sum(reached.values()))

        with explain_heap_errors(spark, planned, heap.by):
            for manifest in replay_chunks(spark, planned, planned.chunks, tell):
                reached[manifest.chunk_id] = len(STAGES)
                progress.update(bar, completed=sum(reached.values()))
        progress.update(bar, description="replayed")
    stopping = Thread(target=spark.stop, name="stop Spark")
    stopping.start()
    return stopping
