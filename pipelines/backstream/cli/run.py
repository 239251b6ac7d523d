"""Define the commands `plan` and `run`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Annotated

import typer

from backstream.cli.app import (
    OPTION_NAMES,
    DefinitionArgument,
    MaybeSince,
    MaybeUntil,
    ModeOption,
    ReasonOption,
    SinceOption,
    TimeZoneOption,
    UntilOption,
    app,
    report_errors,
)
from backstream.cli.inspect import load_staleness
from backstream.cli.prepare import prepare_request
from backstream.definition.folder import find_definition
from backstream.errors import SpecError
from backstream.eventtime.intervals import require_range_of_days
from backstream.runs.choices import RunChoices, RunnerName
from backstream.runs.home import Home
from backstream.runs.plan import Plan
from backstream.text import print_text
from backstream.workflow.execution import (
    ProgressCallback,
    RunObserver,
    execute_run,
    run_range,
)
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.requested_range import RequestedRange, parse_range
from backstream.workflow.runners import Runner, choose_runner, runner_on_demand, start_runner

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
RunnerOption = Annotated[
    RunnerName | None,
    typer.Option(
        help="Where the work runs: on Spark, or in processes of this machine, which need no Java."
        " By default backfill.runner of the definition"
    ),
]
ReplanOption = Annotated[
    bool, typer.Option("--replan", help="Create a new plan instead of resuming an interrupted run")
]


@app.command("plan")
def plan_command(  # noqa: PLR0913, PLR0917 - each is an option
    definition: DefinitionArgument,
    since: SinceOption,
    until: UntilOption,
    time_zone: TimeZoneOption = None,
    mode: ModeOption = None,
    reason: ReasonOption = "",
    allow_unsealed: UnsealedOption = False,
    preview: Annotated[
        bool,
        typer.Option("--preview", help="Also show the rows that the run would change, as `backstream preview`"),
    ] = False,
) -> None:
    """Create a plan and list its chunks. No table is changed; a catalog that chooses locations gets empty tables.

    Example: `backstream plan flights --since 2013-02-01 --until 2013-03-01 --mode replay`
    """
    from backstream.workflow.plan.planning import plan_run
    from backstream.workflow.plan_text import plan_text

    with report_errors(definition):
        requested = parse_range(since, until, time_zone, OPTION_NAMES)
        require_range_of_days(requested.interval)
        choices = RunChoices(mode=mode, reason=reason, is_unsealed_allowed=allow_unsealed)
        request = cli_request(choices, definition, requested)
        prepare_request(request)
        planned = plan_run(request)
        if requested.local_days:
            print_text(f"notice: {requested.local_days.describe}", file=sys.stderr)
        print_text(plan_text(planned))
        if preview:
            from backstream.workflow.preview.preview import preview_plan

            with runner_on_demand(request.definition, choose_runner(request.definition)) as runner:
                print_text(f"\n{preview_plan(planned, request.home, runner.session)}")


@app.command("run")
def run_command(  # noqa: PLR0913, PLR0917 - each is an option
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
    runner: RunnerOption = None,
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

    with report_errors(definition):
        driver_heap()  # an invalid memory setting must fail before planning
        choices = RunChoices(
            mode=mode, reason=reason, is_unsealed_allowed=allow_unsealed, gate_override=gate_override.strip()
        )
        if stale:
            if time_zone:
                msg = "--stale finds its ranges by itself, in UTC days; it cannot be combined with --time-zone"
                raise SpecError(msg)
            _run_stale(definition, (since, until), choices, runner)
            return
        requested = parse_range(*_require_both(since, until), time_zone, OPTION_NAMES)
        request = cli_request(choices, definition, requested)
        run_range(request, _Terminal(), runner_name=runner, is_replan=replan)


def cli_request(choices: RunChoices, definition: str, requested: RequestedRange) -> PlanRequest:
    """Return the request of the command line for a plan of a range."""
    return PlanRequest.of(
        choices, find_definition(definition), requested, trigger="cli", home=Home.from_environment()
    )


def _require_both(since: str | None, until: str | None) -> tuple[str, str]:
    if since is None or until is None:
        msg = "a range needs both --since and --until; --stale finds its ranges by itself"
        raise SpecError(msg)
    return since, until


def _run_stale(
    definition: str, limits: tuple[str | None, str | None], choices: RunChoices, runner: RunnerName | None
) -> None:
    """Run each range of stale days as a run of its own."""
    from backstream.workflow.plan.allowed_ranges import is_possible_range
    from backstream.workflow.plan.planning import plan_run

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
        print_text(f"{staleness.dataset}: none of {staleness.published_days} published days is stale")
    for interval, published_mode in ranges:
        print_text(f"stale: {staleness.dataset} {interval}", file=sys.stderr)
        started = start_runner(path, choose_runner(path, runner))
        of_range = replace(choices, mode=choices.mode or published_mode, reason=choices.reason or "late data")
        execute_run(plan_run(cli_request(of_range, definition, RequestedRange(interval))), started, _Terminal())


class _Terminal(RunObserver):
    """Receiver that prints the progress of a run on standard error, and its result on standard output."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)

    def note(self, line: str) -> None:
        """Print the remark."""
        print_text(line, file=sys.stderr)

    def phase(self, label: str) -> AbstractContextManager[object]:
        """Show a spinner with the name of the step."""
        return self._console.status(label)

    @contextmanager
    def replay(self, stages: int) -> Iterator[ProgressCallback]:
        """Show a bar that moves as stages finish."""
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        count = (BarColumn(), MofNCompleteColumn())
        time = (TimeElapsedColumn(), TextColumn("eta"), TimeRemainingColumn())
        with Progress(TextColumn("{task.description:<28}"), *count, *time, console=self._console) as progress:
            bar = progress.add_task("starting", total=stages)
            yield lambda label, finished: progress.update(bar, description=label, completed=finished)

    def on_published(self, plan: Plan) -> None:
        """Print the counts of the run."""
        from backstream.workflow.publish import publication_text

        print_text(publication_text(plan))


def run_plan(planned: Plan, runner: Runner) -> None:
    """Replay, audit, and publish a plan, and print the result."""
    execute_run(planned, runner, _Terminal())
