"""The verb that tells what became of a run."""

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
    find_definition,
    report_errors,
)
from backstream.cli.history import FormatOption
from backstream.errors import SpecError
from backstream.eventtime.instants import instant_ms
from backstream.runs.home import Home, expectations_folder
from backstream.runs.plan import Mode, Plan
from backstream.text import ReportFormat, RowFormat

if TYPE_CHECKING:
    from backstream.reconcile.comparison import Reconciliation


@app.command()
def report(
    run: Annotated[str, typer.Argument(metavar="RUN|DEFINITION", help="A run id; of a definition the newest run")],
    since: MaybeSince = None,
    until: MaybeUntil = None,
    mode: ModeOption = None,
    form: Annotated[
        ReportFormat | None,
        typer.Option("--format", help="Print the report itself: html, md or json; nothing is written"),
    ] = None,
) -> None:
    """Write the report of a run again, and say where it is; or print it, for a pull request, a chat or a program.

    `--since`, `--until` and `--mode` tell which run of a definition is meant.

    Example: `backstream report flights --since 2013-02-01 --until 2013-03-01 --format md`
    """
    from backstream import workflow

    with report_errors():
        found = _plan(run, since, until, mode)
        if form is None:
            workflow.report_run(found)
            print(workflow.publication_text(found))
        else:
            print(workflow.report_text(found, form), end="")


def _plan(text: str, since: str | None, until: str | None, mode: Mode | None) -> Plan:
    """The run of that id, unless there is such a definition."""
    from backstream.definition.loader import load_definition
    from backstream.workflow.history import find_newest_run
    from backstream.workflow.report import load_plan

    home, since_ms, until_ms = Home.from_environment(), _at(since, "--since"), _at(until, "--until")
    try:
        path = find_definition(text)
    except SpecError:
        return load_plan(home, text)
    dataset = load_definition(path).name
    return find_newest_run(home, dataset, since_ms, until_ms, mode)


def _at(text: str | None, name: str) -> int | None:
    return None if text is None else instant_ms(text, name)


quality = typer.Typer(
    no_args_is_help=True, help="Suites of expectations: what a run must be like to be published."
)
app.add_typer(quality, name="quality")


@quality.command()
def check(
    suites: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SUITE]...", help="Names or JSON files; by default all there are"),
    ] = None,
) -> None:
    """Read suites as an audit would, and say what is wrong with them. Nothing is run.

    Each finding names the file, the expectation, the key and the value.
    Exit status 0: all are sound; 1: one is not.

    Example: `backstream quality check window_audit`
    """
    from backstream.quality.suites import list_suites, load_suite

    with report_errors():
        places = [_place(each) for each in suites or list_suites()]
        if not places:
            msg = f"no suite in {expectations_folder()}"
            raise SpecError(msg)
        is_sound = True
        for name, folder in places:
            try:
                entries = load_suite(name, folder).entries
            except SpecError as error:
                is_sound = False
                print(f"error: {error}", file=sys.stderr)
            else:
                print(f"{name}: {len(entries)} expectation{'s' if len(entries) > 1 else ''}")
        if not is_sound:
            raise typer.Exit(1)


def _place(suite: str) -> tuple[str, Path | None]:
    """The name of a suite, and the folder of the file if it was one."""
    path = Path(suite)
    return (path.stem, path.parent) if path.suffix == ".json" else (suite, None)


@app.command()
def reconcile(  # noqa: PLR0913, PLR0917 - each is an option
    definition: DefinitionArgument,
    against: Annotated[
        str, typer.Option(metavar="FILES|TABLE", help="Parquet or CSV file or folder, or a table of the lake")
    ],
    since: MaybeSince = None,
    until: MaybeUntil = None,
    columns: Annotated[
        str,
        typer.Option(
            metavar="NAME=THEIRS,..",
            help="What our columns are called there, where not the same; `window_start=ts:s` counts seconds "
            "(ms, us); `NAME=` leaves an aggregate out",
        ),
    ] = "",
    run: Annotated[
        str | None, typer.Option(metavar="RUN", help="A run's staged windows, not the published ones")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Windows shown; by default 20 in a table, else all")
    ] = None,
    form: FormatOption = RowFormat.TABLE,
) -> None:
    """Compare what is published with what a live system said, window by window, and say why they differ.

    Each window that differs is labelled late data, duplicate, missing input, time-zone shift, code, or unknown,
    with the evidence; docs/reconcile.md has the rules.  Without a range the time that both cover is compared.
    Nothing is written.

    Example: `backstream reconcile flights --against live.parquet --columns window_start=ts,departures=n`
    """
    from backstream.cli.output import print_rows
    from backstream.reconcile.reconcile import ReconcileRequest, reconcile_dataset

    with report_errors():
        since_ms = None if since is None else instant_ms(since, "--since")
        until_ms = None if until is None else instant_ms(until, "--until")
        asked = ReconcileRequest(find_definition(definition), against, columns, since_ms, until_ms, run)
        found = reconcile_dataset(asked, Home.from_environment())
        print("\n".join(_lines(found)), end="\n\n", file=sys.stdout if form is RowFormat.TABLE else sys.stderr)
        if found.differing.num_rows or form is not RowFormat.TABLE:
            print_rows([found.differing], form, limit)


def _lines(found: Reconciliation) -> Iterator[str]:
    """How many are equal and how many differ by which cause; then what was compared."""
    differ = sum(found.causes.values())
    causes = ", ".join(f"{count:,} {cause}" for cause, count in found.causes.items())
    yield (
        f"{found.dataset}  {found.windows - differ:,} of {found.windows:,} windows are equal, {differ:,} differ"
        + (f": {causes}" if causes else "")
    )
    yield f"range   {found.interval}"
    yield f"ours    {found.ours}"
    yield f"theirs  {found.theirs}"
    if found.shift:
        yield f"shift   {found.shift}"
    for note in found.notes:
        yield f"note    {note}"
