"""The verb that finds what late data did to what is published."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from backstream.cli.app import DefinitionArgument, MaybeSince, MaybeUntil, app, definition_path, errors_in_words
from backstream.core.folders import Home
from backstream.core.instants import instant_ms, instant_text

if TYPE_CHECKING:
    from backstream.steps.stale import StaleDay, Staleness

_FILES_SHOWN = 3

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead")]


@app.command()
def stale(
    definition: DefinitionArgument,
    since: MaybeSince = None,
    until: MaybeUntil = None,
    as_json: JsonFlag = False,
) -> None:
    """Say which published days would have other rows now, because input files came, changed or went since.

    Each published day is compared with the files that its own run had read. A new file is read once, ever; what
    was found in it is kept. Records that had come before are not told apart, so that a day may be named in vain;
    none is left out.  Nothing is run: `backstream run DEFINITION --stale` does.

    Example: `backstream stale flights --since 2013-02-01 --until 2013-03-01`
    """
    with errors_in_words():
        found = found_stale(definition, since, until)
        print(json.dumps(found.as_json(), indent=1) if as_json else "\n".join(_lines(found, definition)))


def found_stale(definition: str, since: str | None, until: str | None) -> Staleness:
    """The stale days of a definition; of all that is published where no range is given."""
    from backstream.steps.stale import stale as days_that_are_stale

    since_ms = None if since is None else instant_ms(since, "--since")
    until_ms = None if until is None else instant_ms(until, "--until")
    return days_that_are_stale(definition_path(definition), Home.from_environment(), since_ms, until_ms)


def _lines(found: Staleness, definition: str) -> Iterator[str]:
    if not found.days:
        yield f"{found.dataset}: none of {found.published_days} published days is stale"
        return
    yield f"{found.dataset}: {len(found.days)} of {found.published_days} published days are stale"
    yield ""
    yield f"{'day':<10} {'windows':>8}  why"
    for day in found.days:
        yield from _day_lines(day, found)
    yield ""
    yield f"hint: backstream run {definition} --stale"


def _day_lines(day: StaleDay, found: Staleness) -> Iterator[str]:
    whys = list(day.reasons)
    files = sorted(day.events.items())
    for file, events in files[:_FILES_SHOWN]:
        records = "" if events is None else ", 1 record" if events == 1 else f", {events:,} records"
        whys.append(f"{found.changes[file]}: {file}{records}")
    if len(files) > _FILES_SHOWN:
        whys.append(f"and {len(files) - _FILES_SHOWN} more files")
    count = "all" if day.reasons else f"{len(day.windows):,}"
    yield f"{instant_text(day.day_ms)[:10]} {count:>8}  {whys[0]}"
    for why in whys[1:]:
        yield f"{'':<21}{why}"
