"""The verb that shows the ledger."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from backstream.cli.app import (
    DefinitionArgument,
    MaybeSince,
    MaybeUntil,
    SinceOption,
    UntilOption,
    app,
    find_definition,
    report_errors,
)
from backstream.eventtime.instants import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    SECOND_MS,
    duration_text,
    instant_ms,
    instant_text,
)
from backstream.eventtime.intervals import backfill_range, require_whole_days
from backstream.runs.home import Home

if TYPE_CHECKING:
    from backstream.workflow.stale import StaleDay, Staleness
    from backstream.workflow.status import DayState, RunState


_UNTRIED = "-"


@app.command()
def status(
    dataset: Annotated[str | None, typer.Argument(metavar="[DATASET]", help="Only the runs of this one")] = None,
    last: Annotated[int, typer.Option(help="How many runs", min=1)] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead")] = False,
) -> None:
    """Show the newest runs: what became of each, who asked for it and why, and how far those under way are.

    A run is under way as long as it leaves files: it is said when it last did.  One that left none for ten
    minutes, or for twice its longest chunk, is interrupted; `backstream run` with the same range goes on with it.
    The time left lies between the quartiles of what finished chunks took per event.

    Example: `backstream status flights --last 5`
    """
    from backstream.workflow.status import list_run_states

    with report_errors():
        now_ms = int(time.time() * SECOND_MS)
        found = list_run_states(Home.from_environment(), dataset, last, now_ms)
        if as_json:
            print(json.dumps([each.as_json() for each in found], indent=1))
        else:
            print("\n".join(_table(found, now_ms)) if found else "no runs")


_NAMES = ("dataset", "range", "mode", "status", "verdict", "rows", "duration", "by", "progress")


def _table(found: list[RunState], now_ms: int) -> Iterator[str]:
    """Columns as wide as they have to be; the last one runs on."""
    rows = [_NAMES, *(_cells(each, now_ms) for each in found)]
    widths = [max(len(row[number]) for row in rows) for number in range(len(_NAMES) - 1)]
    for row in rows:
        cells = [
            cell.rjust(width) if name in ("rows", "duration") else cell.ljust(width)
            for cell, width, name in zip(row, widths, _NAMES, strict=False)
        ]
        yield "  ".join([*cells, row[-1]]).rstrip()


def _cells(run: RunState, now_ms: int) -> tuple[str, ...]:
    return (
        run.dataset,
        f"{_day(run.interval.start_ms)} to {_day(run.interval.end_ms)}",
        run.mode,
        run.state.value,
        run.verdict or _UNTRIED,
        _UNTRIED if run.rows is None else f"{run.rows:,}",
        rough_duration(run.seconds),
        f"{run.trigger}: {run.reason}" if run.reason else run.trigger,
        _progress(run, now_ms),
    )


def _progress(run: RunState, now_ms: int) -> str:
    """How many chunks of a run that has not ended are done, when it moved last, and how long it will take.

    Of one that failed, what it failed of.
    """
    if run.error:
        return run.error
    if run.state not in ("running", "audited", "awaiting_approval", "interrupted"):
        return ""
    quiet = rough_duration((now_ms - run.last_sign_ms) / SECOND_MS)
    said = f"{run.chunks_done} of {run.chunks} chunks, last sign of life {quiet} ago"
    if run.state != "running":
        return said
    if run.seconds_left is None:
        return f"{said}, time left unknown"
    low, high = (rough_duration(seconds) for seconds in run.seconds_left)
    return f"{said}, {low} left" if low == high else f"{said}, {low} to {high} left"


def rough_duration(seconds: float) -> str:
    """A duration in its two greatest units, such as `2h 5m`; below a minute in seconds."""
    value_ms = max(0, round(seconds)) * SECOND_MS
    for unit_ms, step_ms in ((DAY_MS, HOUR_MS), (HOUR_MS, MINUTE_MS)):
        if value_ms >= unit_ms:
            return duration_text(value_ms - value_ms % step_ms)
    return duration_text(value_ms)


def _day(value_ms: int) -> str:
    return instant_text(value_ms).removesuffix("T00:00Z")


_UNKNOWN = "not asked"
"""Where a definition has no `backfill.horizon`, or no arrival times."""


@app.command()
def days(
    definition: DefinitionArgument, since: SinceOption, until: UntilOption, as_json: JsonFlag = False
) -> None:
    """Show each day of a range: whether it can still gain events, and which run published it.

    sealed: every partition of `quality.partitions` has delivered something later than the day's end and
    `backfill.horizon`, or is idle.  empty: the same, without an event.  open: no partition has come so far.
    missing: some have, and others have not.

    Example: `backstream days flights --since 2013-02-01 --until 2013-03-01`
    """
    from backstream.workflow.status import list_day_states as days_of

    with report_errors():
        interval = backfill_range(instant_ms(since, "--since"), instant_ms(until, "--until"))
        for value_ms, name in ((interval.start_ms, "since"), (interval.end_ms, "until")):
            require_whole_days(value_ms, name)
        found = days_of(find_definition(definition), interval, Home.from_environment())
        if as_json:
            print(json.dumps([_content(day) for day in found], indent=1))
        else:
            print("\n".join([f"{'day':<10}  {'seal':<9}  published by", *(_line(day) for day in found)]))


def _content(day: DayState) -> dict[str, object]:
    seal = day.evidence and {"seal": day.evidence.seal.value, "reason": day.evidence.reason}
    return {"day": instant_text(day.day_ms)[:10], "runs": list(day.runs), **(seal or {"seal": None, "reason": ""})}


def _line(day: DayState) -> str:
    seal = day.evidence.seal if day.evidence else _UNKNOWN
    reason = f"  ({day.evidence.reason})" if day.evidence and day.evidence.reason else ""
    return f"{instant_text(day.day_ms)[:10]}  {seal:<9}  {', '.join(day.runs) or '-'}{reason}"


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
    with report_errors():
        found = load_staleness(definition, since, until)
        print(json.dumps(found.as_json(), indent=1) if as_json else "\n".join(_lines(found, definition)))


def load_staleness(definition: str, since: str | None, until: str | None) -> Staleness:
    """The stale days of a definition; of all that is published where no range is given."""
    from backstream.workflow.stale import find_stale_days as days_that_are_stale

    since_ms = None if since is None else instant_ms(since, "--since")
    until_ms = None if until is None else instant_ms(until, "--until")
    return days_that_are_stale(find_definition(definition), Home.from_environment(), since_ms, until_ms)


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
