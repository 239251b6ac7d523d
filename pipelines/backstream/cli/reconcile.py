"""The verb that compares what is published with a live system's output."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from backstream.cli.app import DefinitionArgument, MaybeSince, MaybeUntil, app, definition_path, errors_in_words
from backstream.cli.history import FormatOption
from backstream.core.folders import Home
from backstream.core.forms import Format
from backstream.core.instants import instant_ms

if TYPE_CHECKING:
    from backstream.steps.reconcile.comparison import Reconciliation


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
    form: FormatOption = Format.TABLE,
) -> None:
    """Compare what is published with what a live system said, window by window, and say why they differ.

    Each window that differs is labelled late data, duplicate, missing input, time-zone shift, code, or unknown,
    with the evidence; docs/reconcile.md has the rules.  Without a range the time that both cover is compared.
    Nothing is written.

    Example: `backstream reconcile flights --against live.parquet --columns window_start=ts,departures=n`
    """
    from backstream.cli.printing import print_rows
    from backstream.steps.reconcile.reconciling import Question, reconciled

    with errors_in_words():
        since_ms = None if since is None else instant_ms(since, "--since")
        until_ms = None if until is None else instant_ms(until, "--until")
        asked = Question(definition_path(definition), against, columns, since_ms, until_ms, run)
        found = reconciled(asked, Home.from_environment())
        print("\n".join(_lines(found)), end="\n\n", file=sys.stdout if form is Format.TABLE else sys.stderr)
        if found.differing.num_rows or form is not Format.TABLE:
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
