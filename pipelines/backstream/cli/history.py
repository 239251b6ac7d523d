"""Define the commands `show`, `diff`, `rollback`, and `vacuum`, which work on published tables."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from backstream.cli.app import OPTION_NAMES, MaybeSince, MaybeUntil, ReasonOption, app, report_errors
from backstream.definition.folder import dataset_of_file, find_definition
from backstream.errors import SpecError
from backstream.eventtime.instants import duration_ms, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.runs.home import Home
from backstream.runs.store import Runs
from backstream.text import ReadingEngine, RowFormat, print_text
from backstream.workflow.requested_range import parse_open_range

DATASET_HELP = "Name of a dataset, or name or file of its definition, e.g., `flights`"
DatasetArgument = Annotated[str, typer.Argument(metavar="DATASET", help=DATASET_HELP)]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Run id, e.g., cli.0123456789ab")]
FormatOption = Annotated[
    RowFormat,
    typer.Option("--format", help="Output format. json: one object per line; arrow: an Arrow stream"),
]


@app.command()
def show(
    dataset: DatasetArgument,
    since: MaybeSince = None,
    until: MaybeUntil = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="RUN|TIME",
            help="Show the table after this run, or at this time, e.g., 2026-01-31T12:00Z",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of rows. Default: 20 in a table, else all")
    ] = None,
    form: FormatOption = RowFormat.TABLE,
) -> None:
    """Print the published rows of a dataset in window order.

    backstream prints the run and the snapshot of the rows on standard error.

    Example: `backstream show flights --since 2013-02-01 --until 2013-02-02 --as-of 2026-01-31T12:00Z`
    """
    from backstream.cli.output import max_rows, print_rows
    from backstream.workflow import history

    with report_errors():
        home, name = Home.from_environment(), dataset_name(dataset)
        interval = parse_open_range(since, until, OPTION_NAMES)
        with history.load_dataset_rows(home, name, interval, as_of, max_rows(form, limit)) as rows:
            print_text(f"{name}  {rows.state or 'nothing was published yet'}", file=sys.stderr)
            if rows.time_zone:
                print_text(f"times of windows are local in {rows.time_zone}", file=sys.stderr)
            print_rows(rows.days, form, limit)


@app.command()
def connect(
    name: Annotated[
        str, typer.Argument(metavar="DATASET", help=f"{DATASET_HELP}; or a table, e.g., `flights__metrics`")
    ],
    engine: Annotated[ReadingEngine, typer.Option(help="Engine that will read the table")],
) -> None:
    """Print what to paste into another engine to read a published table.

    It names the variables of secrets, and contains none.

    Example: `backstream connect flights --engine spark`
    """
    from backstream.lake.connect import connection_text

    with report_errors():
        print_text(connection_text(Home.from_environment(), dataset_name(name), engine), end="")


@app.command("diff")
def diff_command(
    run: Annotated[
        str, typer.Argument(metavar="RUN|DEFINITION", help="Run id, or a definition or dataset: its newest run")
    ],
    since: MaybeSince = None,
    until: MaybeUntil = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of changes shown per aggregate")] = 10,
    form: FormatOption = RowFormat.TABLE,
) -> None:
    """Show the rows that a staged run would change, or that a published run changed.

    Shows added, removed, and changed rows. For each aggregate, the largest differences come first, with the run
    that published the other value.  For a definition, --since and --until select the run.  Nothing is written.

    Example: `backstream diff flights --since 2013-02-01 --until 2013-03-01`
    """
    from backstream.cli.output import print_rows
    from backstream.workflow import history
    from backstream.workflow.history import describe_difference

    with report_errors():
        home = Home.from_environment()
        difference = history.diff_run(home, _run_id(home, run, since, until), limit)
        stream = sys.stdout if form is RowFormat.TABLE else sys.stderr
        print_text(describe_difference(difference), end="\n\n", file=stream)
        largest = difference.changes.largest(limit)
        print_rows([] if largest is None else [largest], form, None if largest is None else largest.num_rows)


@app.command()
def rollback(
    run: RunArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation")] = False,
    reason: ReasonOption = "",
) -> None:
    """Roll back one run: restore the previous rows of its range. Later runs are kept.

    The command fails if a later run published into the range, or if the previous snapshot has expired.  A rollback
    is a run too, and you can roll it back.

    Example: `backstream rollback cli.0123456789ab --reason "wrong time zone"`
    """
    from backstream.workflow import history
    from backstream.workflow.history import describe_difference

    with report_errors():
        home = Home.from_environment()
        if not yes:
            print_text(describe_difference(history.diff_run(home, run, 1)), file=sys.stderr)
            typer.confirm("roll back this run?", abort=True, err=True)
        done = history.rollback_run(home, run, reason).publication
        interval = Interval(done.since_ms, done.until_ms)
        if done.already:
            print_text(f"{run} was already rolled back, at {done.published_at}")
        else:
            print_text(f"{done.dataset}  {interval}  restored to its state before {run}: ", end="")
            print_text(f"{done.rows:,} rows, replacing {done.replaced_rows:,}")
        print_text(f"run {done.run_id}")


@app.command()
def vacuum(
    dataset: DatasetArgument,
    grace: Annotated[str, typer.Option(help="Keep files that are newer than this, e.g., 30d")] = "7d",
    expire_before: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="First expire untagged snapshots of windows older than this, e.g., 2026-01-31"
        ),
    ] = None,
    keep_runs: Annotated[
        int | None,
        typer.Option(
            min=1, help="First delete the tags of all but the newest N runs and expire their snapshots, e.g., 400"
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed")] = False,
) -> None:
    """Remove orphan files of a dataset: files that no snapshot references and no unfinished run can publish.

    Each run has a tag, which keeps its snapshot. After --keep-runs has deleted the tag, you can no longer show,
    compare, or roll back the run; its published rows are kept.  The staged files of a run are kept until --grace
    has passed since the newest one.

    Example: `backstream vacuum flights --grace 30d --keep-runs 400 --dry-run`
    """
    from backstream.lake.maintenance import vacuum_tables

    with report_errors():
        grace_ms = _grace_ms(grace)
        before_ms = None if expire_before is None else instant_ms(expire_before, "--expire-before")
        home, name = Home.from_environment(), dataset_name(dataset)
        results = vacuum_tables(
            home, name, grace_ms, expire_before_ms=before_ms, keep_runs=keep_runs, dry_run=dry_run
        )
        print_text(f"{'table':<32} {'removed' if not dry_run else 'to remove':>10} {'bytes':>15} {'kept':>10}")
        for result in results:
            print_text(f"{result.table:<32} {result.files:>10,} {result.size_bytes:>15,} {result.kept_files:>10,}")
        if expire_before is not None or keep_runs is not None:
            print_text(f"snapshots {'expired' if not dry_run else 'to expire'}: {results[0].expired_snapshots:,}")


def dataset_name(text: str) -> str:
    """Return the dataset of a name, or of the definition with this name or path; an unknown name is itself."""
    return known_dataset(text) or text


def known_dataset(text: str) -> str | None:
    """Return the dataset with this name, or that of the definition with this name or path; None without either.

    Raises:
        SpecError: when the definition has no valid name.
    """
    from backstream.definition.loader import load_definition

    if Home.from_environment().has_dataset(text):
        return text
    try:
        path = find_definition(text)
    except SpecError:
        return None
    return dataset_of_file(path) or load_definition(path).name


def _run_id(home: Home, text: str, since: str | None, until: str | None) -> str:
    """Return the newest run of a dataset, given by its name or definition, or the text itself if there is none."""
    dataset = known_dataset(text)
    if dataset is None:
        return text
    since_ms = None if since is None else instant_ms(since, "--since")
    until_ms = None if until is None else instant_ms(until, "--until")
    return Runs(home).newest_plan(dataset, since_ms, until_ms).run_id


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
