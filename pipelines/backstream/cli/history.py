"""Verbs about what was published: show it, compare with it, undo a run, clean up."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from backstream.cli.app import MaybeSince, MaybeUntil, ReasonOption, app, find_definition, report_errors
from backstream.errors import SpecError
from backstream.eventtime.instants import duration_ms, instant_ms
from backstream.eventtime.intervals import Interval, backfill_range
from backstream.runs.home import Home
from backstream.text import RowFormat

_FAR_PAST_MS, _FAR_FUTURE_MS = (instant_ms(text, "bound") for text in ("0001-01-01", "9999-12-31"))

DatasetArgument = Annotated[
    str, typer.Argument(metavar="DATASET", help="A dataset, or the definition that makes it")
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run id")]
FormatOption = Annotated[
    RowFormat,
    typer.Option("--format", help="table, csv, json: an object per line, or arrow: a stream for programs"),
]


@app.command()
def show(
    dataset: DatasetArgument,
    since: MaybeSince = None,
    until: MaybeUntil = None,
    as_of: Annotated[
        str | None, typer.Option("--as-of", metavar="RUN|TIME", help="As that run left it, or as it was then")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Rows at most; by default 20 in a table, else all")
    ] = None,
    form: FormatOption = RowFormat.TABLE,
) -> None:
    """Print the published rows of a dataset, in the order of their windows: now, or as they were.

    Which run and snapshot they are of is said on standard error.

    Example: `backstream show flights --since 2013-02-01 --until 2013-02-02 --as-of 2026-01-31T12:00Z`
    """
    from backstream.cli.output import max_rows, print_rows
    from backstream.workflow import history

    with report_errors():
        home, name, interval = Home.from_environment(), _dataset(dataset), _interval(since, until)
        with history.load_dataset_rows(home, name, interval, as_of, max_rows(form, limit)) as found:
            print(f"{name}  {found.state or 'nothing was published yet'}", file=sys.stderr)
            print_rows(found.days, form, limit)


@app.command()
def diff(
    run: Annotated[str, typer.Argument(metavar="RUN|DEFINITION", help="A run id; of a definition the newest run")],
    since: MaybeSince = None,
    until: MaybeUntil = None,
    limit: Annotated[int, typer.Option(min=1, help="Largest changes shown per aggregate")] = 10,
    form: FormatOption = RowFormat.TABLE,
) -> None:
    """Say what a run would change in the table as it is, or, when it was published, what it changed.

    Rows are added, removed or changed; the largest differences of each aggregate come first, with the run that had
    said otherwise.  `--since` and `--until` tell which run of a definition is meant.  Nothing is written.

    Example: `backstream diff flights --since 2013-02-01 --until 2013-03-01`
    """
    from backstream.cli.output import print_rows
    from backstream.workflow import history
    from backstream.workflow.history import describe_difference

    with report_errors():
        home = Home.from_environment()
        found = history.diff_run(home, _run_id(home, run, since, until), limit)
        print(describe_difference(found), end="\n\n", file=sys.stdout if form is RowFormat.TABLE else sys.stderr)
        largest = found.changes.largest(limit)
        print_rows([] if largest is None else [largest], form, None if largest is None else largest.num_rows)


@app.command()
def rollback(
    run: RunArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False,
    reason: ReasonOption = "",
) -> None:
    """Undo one run: its range holds again what it held before, and the runs after it stay.

    Refused when a later run published into the range, or when what was there before was expired.  A rollback is
    itself a run, and can be rolled back.

    Example: `backstream rollback cli.0123456789ab --reason "wrong time zone"`
    """
    from backstream.workflow import history
    from backstream.workflow.history import describe_difference

    with report_errors():
        home = Home.from_environment()
        if not yes:
            print(describe_difference(history.diff_run(home, run, 1)), file=sys.stderr)
            typer.confirm("undo this run?", abort=True, err=True)
        done = history.rollback_run(home, run, reason).publication
        interval = Interval(done.since_ms, done.until_ms)
        if done.already:
            print(f"{run} was rolled back before, at {done.published_at}")
        else:
            print(f"{done.dataset}  {interval}  holds what it held before {run}: ", end="")
            print(f"{done.rows:,} rows, replacing {done.replaced_rows:,}")
        print(f"run {done.run_id}")


@app.command()
def vacuum(
    dataset: DatasetArgument,
    grace: Annotated[str, typer.Option(help="Files younger than this stay")] = "7d",
    expire_before: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="First expire older snapshots of the windows that have no tag"),
    ] = None,
    keep_runs: Annotated[
        int | None,
        typer.Option(min=1, help="First let go of all but the newest runs: their tags, and the snapshots before"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed")] = False,
) -> None:
    """Remove the files of a dataset that no snapshot and no tag reaches, and that nobody can be about to publish.

    Each run's tag keeps what it published, until --keep-runs lets go of it: then it can be shown, compared and
    rolled back no more, and its rows stay.  What a run has staged stays for the grace period after its last file.

    Example: `backstream vacuum flights --grace 30d --keep-runs 400 --dry-run`
    """
    from backstream.lake.maintenance import vacuum_tables

    with report_errors():
        grace_ms = _grace_ms(grace)
        before_ms = None if expire_before is None else instant_ms(expire_before, "--expire-before")
        home, name = Home.from_environment(), _dataset(dataset)
        done = vacuum_tables(
            home, name, grace_ms, expire_before_ms=before_ms, keep_runs=keep_runs, dry_run=dry_run
        )
        print(f"{'table':<32} {'removed' if not dry_run else 'to remove':>10} {'bytes':>15} {'kept':>10}")
        for each in done:
            print(f"{each.table:<32} {each.files:>10,} {each.size_bytes:>15,} {each.kept_files:>10,}")
        if expire_before is not None or keep_runs is not None:
            print(f"snapshots {'expired' if not dry_run else 'to expire'}: {done[0].expired_snapshots:,}")


def _dataset(text: str) -> str:
    """The name itself, unless there is such a definition."""
    from backstream.definition.loader import load_definition

    try:
        path = find_definition(text)
    except SpecError:
        return text
    return load_definition(path).name


def _run_id(home: Home, text: str, since: str | None, until: str | None) -> str:
    """The id itself, unless there is such a definition."""
    from backstream.workflow import history

    try:
        find_definition(text)
    except SpecError:
        return text
    since_ms = None if since is None else instant_ms(since, "--since")
    until_ms = None if until is None else instant_ms(until, "--until")
    return history.find_newest_run(home, _dataset(text), since_ms, until_ms).run_id


def _interval(since: str | None, until: str | None) -> Interval | None:
    if since is None and until is None:
        return None
    since_ms = _FAR_PAST_MS if since is None else instant_ms(since, "--since")
    until_ms = _FAR_FUTURE_MS if until is None else instant_ms(until, "--until")
    return backfill_range(since_ms, until_ms)


def _grace_ms(text: str) -> int:
    try:
        grace_ms = duration_ms(text)
    except SpecError as error:
        msg = f"--grace {error}"
        raise SpecError(msg) from None
    if grace_ms < 0:
        msg = f"--grace must not be negative, got {text}"
        raise SpecError(msg)
    return grace_ms
