"""Define the commands `report`, `audit`, `quality check`, and `reconcile`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backstream.cli.app import (
    DefinitionArgument,
    MaybeSince,
    MaybeUntil,
    ModeOption,
    app,
    report_errors,
)
from backstream.cli.history import FormatOption, known_dataset
from backstream.definition.folder import find_definition
from backstream.errors import SpecError, StorageError
from backstream.eventtime.instants import instant_ms
from backstream.runs.home import Home
from backstream.runs.plan import Mode, Plan
from backstream.runs.store import Runs
from backstream.text import ReportFormat, RowFormat, print_text

if TYPE_CHECKING:
    from backstream.reconcile.comparison import Reconciliation


@app.command("report")
def report_command(
    run: Annotated[str, typer.Argument(metavar="RUN|DEFINITION", help="Run id, or a definition: its newest run")],
    since: MaybeSince = None,
    until: MaybeUntil = None,
    mode: ModeOption = None,
    form: Annotated[
        ReportFormat | None,
        typer.Option("--format", help="Print the report in this format instead of writing the file"),
    ] = None,
) -> None:
    """Regenerate the report of a run and print its path, or print the report.

    For a definition, --since, --until, and --mode select the run.

    Example: `backstream report flights --since 2013-02-01 --until 2013-03-01 --format md`
    """
    from backstream.workflow.publish import publication_text
    from backstream.workflow.report import report_run, report_text

    with report_errors():
        plan = load_requested_plan(run, since, until, mode)
        if form is None:
            report_run(plan)
            print_text(publication_text(plan))
        else:
            print_text(report_text(plan, form), end="")


@app.command("audit")
def audit_command(
    run: Annotated[str, typer.Argument(metavar="RUN|DEFINITION", help="Run id, or a definition: its newest run")],
) -> None:
    """Judge a published run again with the suite and the limits of today.

    The run keeps its verdict, its rows, and its ledger row.  The newest judgement is in the folder and in the
    report of the run, and in `backstream status`.

    Exit status 0: there is nothing to do, or the result could be published; 1: it could not.

    Example: `backstream audit flights`
    """
    from backstream.workflow.audit import judge_again
    from backstream.workflow.demands import describe_final

    with report_errors():
        plan = load_requested_plan(run, None, None, None)
        final = describe_final(plan)
        if not final:
            msg = f"only a published run can be judged again: run {plan.run_id} is not published"
            raise SpecError(msg)
        later = judge_again(plan)
        print_text(f"run {plan.run_id}: {later}" if later else final)
        if later and not later.verdict.may_publish:
            raise typer.Exit(1)


def load_requested_plan(text: str, since: str | None, until: str | None, mode: Mode | None) -> Plan:
    """Return the newest plan of the dataset or definition with this name or path, or of the run with this id."""
    home, since_ms, until_ms = Home.from_environment(), _maybe_ms(since, "--since"), _maybe_ms(until, "--until")
    dataset = known_dataset(text)
    if dataset is None:
        return Runs(home).plan_of_id(text)
    return Runs(home).newest_plan(dataset, since_ms, until_ms, mode)


def _maybe_ms(text: str | None, name: str) -> int | None:
    return None if text is None else instant_ms(text, name)


_quality = typer.Typer(
    no_args_is_help=True, help="Check the expectation suites that decide whether a run is published."
)
app.add_typer(_quality, name="quality")


@_quality.command()
def check(
    suites: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SUITE]...", help="Names or JSON files of suites, e.g., window_audit. Default: all suites"
        ),
    ] = None,
) -> None:
    """Validate suites without running them.

    Each error names the file, the expectation, the key, and the value.
    Exit status 0: all suites are valid; 1: at least one is not.

    Example: `backstream quality check window_audit`
    """
    from backstream.quality.suites import list_suites, load_suite

    with report_errors():
        locations = [_suite_location(suite) for suite in suites or list_suites()]
        is_valid = True
        for name, folder in locations:
            try:
                entries = load_suite(name, folder).entries
            except SpecError as error:
                is_valid = False
                print_text(f"error: {error}", file=sys.stderr)
            else:
                print_text(f"{name}: {len(entries)} expectation{'s' if len(entries) > 1 else ''}")
        if not is_valid:
            raise typer.Exit(1)


def _suite_location(suite: str) -> tuple[str, Path | None]:
    """Return the name of a suite and its folder; None for a suite given by name."""
    path = Path(suite)
    return (path.stem, path.parent) if path.suffix == ".json" else (suite, None)


@app.command()
def reconcile(  # noqa: PLR0913, PLR0917 - each is an option
    definition: DefinitionArgument,
    against: Annotated[
        str,
        typer.Option(
            metavar="FILES|TABLE",
            help="Output of the live system: Parquet or CSV file or folder, or a table of the lake",
        ),
    ],
    since: MaybeSince = None,
    until: MaybeUntil = None,
    columns: Annotated[
        str,
        typer.Option(
            metavar="NAME=THEIRS,..",
            help="Map backstream columns to columns of the live output, e.g., `departures=n`. "
            "`window_start=ts:s`: epoch seconds (or ms, us). `NAME=`: leave this aggregate out",
        ),
    ] = "",
    run: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Compare the staged windows of this run instead of the published ones"),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of windows. Default: 20 in a table, else all")
    ] = None,
    form: FormatOption = RowFormat.TABLE,
) -> None:
    """Compare published windows with the output of a live system, and explain the differences.

    Each different window gets a cause with evidence: late data, duplicate, missing input, time-zone shift, code,
    or unknown. docs/reconcile.md explains the rules.  Default range: the time that both sides cover.  The
    pages show the result on each day.

    Example: `backstream reconcile flights --against live.parquet --columns window_start=ts,departures=n`
    """
    from backstream.cli.output import print_rows
    from backstream.reconcile.reconcile import ReconcileRequest, reconcile_dataset, record_comparison

    with report_errors():
        since_ms = None if since is None else instant_ms(since, "--since")
        until_ms = None if until is None else instant_ms(until, "--until")
        request = ReconcileRequest(find_definition(definition), against, columns, since_ms, until_ms, run)
        result = reconcile_dataset(request, Home.from_environment())
        if run is None:
            try:
                record_comparison(Home.from_environment(), result)
            except StorageError as error:
                print_text(f"warning: the pages will not show this comparison: {error}", file=sys.stderr)
        print_text(
            "\n".join(_summary(result)), end="\n\n", file=sys.stdout if form is RowFormat.TABLE else sys.stderr
        )
        if result.differing.num_rows or form is not RowFormat.TABLE:
            print_rows([result.differing], form, limit)


def _summary(result: Reconciliation) -> Iterator[str]:
    """Return lines with the counts of equal and different windows, and then the two sides."""
    differ = sum(result.causes.values())
    causes = ", ".join(f"{count:,} {cause}" for cause, count in result.causes.items())
    yield (
        f"{result.dataset}  {result.windows - differ:,} of {result.windows:,} windows are equal, {differ:,} differ"
        + (f": {causes}" if causes else "")
    )
    yield f"range   {result.interval}"
    yield f"ours    {result.ours}"
    yield f"theirs  {result.theirs}"
    if result.shift:
        yield f"shift   {result.shift}"
    for note in result.notes:
        yield f"note    {note}"
