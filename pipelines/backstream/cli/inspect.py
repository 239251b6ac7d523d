"""Define the commands `status`, `days`, and `stale`, which show the state of runs and days."""

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
    OutputFormat,
    OutputFormatOption,
    SinceOption,
    UntilOption,
    app,
    report_errors,
)
from backstream.cli.history import DATASET_HELP, dataset_name
from backstream.cli.prepare import prepare_published
from backstream.definition.folder import find_definition
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
from backstream.text import count_of, print_text, visible_line

if TYPE_CHECKING:
    from backstream.workflow.late_data.staleness import StaleDay, Staleness
    from backstream.workflow.run_state import RunState
    from backstream.workflow.status import DayState


_NO_VALUE = "-"
_MAX_CELL = 120
"""The most characters of the trigger and the reason of a run in a list."""


@app.command()
def status(
    dataset: Annotated[
        str | None, typer.Argument(metavar="[DATASET]", help=f"{DATASET_HELP}. Default: all datasets")
    ] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of runs", min=1)] = 20,
    form: OutputFormatOption = OutputFormat.TABLE,
) -> None:
    """List the newest runs with status, trigger, reason, and progress.

    The heartbeat of a run is the time of its newest file.  A run without a heartbeat for ten minutes, or for twice
    the time of its longest chunk, is interrupted. To resume it, use `backstream run` with the same range.  The
    estimate of the time left uses the quartiles of the time per event of finished chunks.

    Example: `backstream status flights --limit 5`
    """
    from backstream.workflow.status import list_run_states

    with report_errors():
        now_ms = int(time.time() * SECOND_MS)
        name = dataset_name(dataset) if dataset else None
        runs = list_run_states(Home.from_environment(), name, limit, now_ms)
        if form is OutputFormat.JSON:
            print(json.dumps([run.as_json() for run in runs], indent=1))
        else:
            print_text("\n".join(_run_lines(runs, now_ms)) if runs else "no runs")


_RUN_COLUMNS = ("dataset", "range", "mode", "status", "verdict", "rows", "duration", "by", "progress")


def _run_lines(runs: list[RunState], now_ms: int) -> Iterator[str]:
    """Return the lines of an aligned table; the last column has no fixed width."""
    rows = [_RUN_COLUMNS, *(_cells(run, now_ms) for run in runs)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_RUN_COLUMNS) - 1)]
    for row in rows:
        cells = [
            cell.rjust(width) if column in ("rows", "duration") else cell.ljust(width)
            for cell, width, column in zip(row, widths, _RUN_COLUMNS, strict=False)
        ]
        yield "  ".join([*cells, row[-1]]).rstrip()


def _cells(run: RunState, now_ms: int) -> tuple[str, ...]:
    return (
        run.dataset,
        f"{_day(run.interval.start_ms)} to {_day(run.interval.end_ms)}" if run.interval else _NO_VALUE,
        run.mode or _NO_VALUE,
        run.state.value,
        run.verdict or _NO_VALUE,
        _NO_VALUE if run.rows is None else f"{run.rows:,}",
        _rough_duration(run.seconds),
        visible_line(f"{run.triggered_by}: {run.reason}" if run.reason else run.triggered_by, _MAX_CELL),
        visible_line(_progress(run, now_ms)),
    )


def _progress(run: RunState, now_ms: int) -> str:
    """Return the progress of an unfinished run, the error of a failed one, or a later judgement of another one."""
    if run.error or run.later_audit:
        return run.error or run.later_audit
    if run.state == "awaiting_approval":
        return run.phase
    if run.state not in ("running", "audited", "interrupted"):
        return ""
    quiet = _rough_duration((now_ms - run.last_sign_ms) / SECOND_MS)
    work = run.phase or f"{run.chunks_done} of {run.chunks} chunks"
    progress = f"{work}, last heartbeat {quiet} ago"
    if run.state != "running":
        return progress
    if run.seconds_left is None:
        return f"{progress}, time left unknown"
    low, high = (_rough_duration(seconds) for seconds in run.seconds_left)
    return f"{progress}, {low} left" if low == high else f"{progress}, {low} to {high} left"


def _rough_duration(seconds: float) -> str:
    """Return a duration in its two largest units, e.g., `2h5m`, or in seconds if it is below a minute."""
    value_ms = max(0, round(seconds)) * SECOND_MS
    for unit_ms, step_ms in ((DAY_MS, HOUR_MS), (HOUR_MS, MINUTE_MS)):
        if value_ms >= unit_ms:
            return duration_text(value_ms - value_ms % step_ms)
    return duration_text(value_ms)


def _day(value_ms: int) -> str:
    return instant_text(value_ms).removesuffix("T00:00Z")


_UNCHECKED = "unchecked"
"""Seal of a day if the definition has no `backfill.max_arrival_delay` or no arrival times."""


@app.command()
def days(
    definition: DefinitionArgument,
    since: SinceOption,
    until: UntilOption,
    form: OutputFormatOption = OutputFormat.TABLE,
) -> None:
    """List the days of a range with their seals and the runs that published them.

    A sealed day cannot gain events.  sealed: each partition in `quality.expected_partitions` has delivered a
    record that arrived later than the end of the day plus `backfill.max_arrival_delay`, or is idle.  empty: sealed
    without events.  open: no partition has delivered such a record.  partial: only some partitions have.

    Example: `backstream days flights --since 2013-02-01 --until 2013-03-01`
    """
    from backstream.workflow.status import list_day_states

    with report_errors():
        interval = backfill_range(instant_ms(since, "--since"), instant_ms(until, "--until"))
        for value_ms, name in ((interval.start_ms, "since"), (interval.end_ms, "until")):
            require_whole_days(value_ms, name)
        states = list_day_states(find_definition(definition), interval, Home.from_environment())
        if form is OutputFormat.JSON:
            print(json.dumps([_day_content(state) for state in states], indent=1))
        else:
            print_text("\n".join([f"{'day':<10}  {'seal':<9}  published by", *map(_day_line, states)]))


def _day_content(state: DayState) -> dict[str, object]:
    seal = state.evidence.seal.value if state.evidence else None
    reason = state.evidence.reason if state.evidence else ""
    return {"day": instant_text(state.day_ms)[:10], "runs": list(state.runs), "seal": seal, "reason": reason}


def _day_line(state: DayState) -> str:
    seal = state.evidence.seal if state.evidence else _UNCHECKED
    reason = f"  ({visible_line(state.evidence.reason)})" if state.evidence and state.evidence.reason else ""
    return f"{instant_text(state.day_ms)[:10]}  {seal:<9}  {', '.join(state.runs) or _NO_VALUE}{reason}"


_RANGES_SHOWN = 3


@app.command()
def stale(
    definition: DefinitionArgument,
    since: MaybeSince = None,
    until: MaybeUntil = None,
    form: OutputFormatOption = OutputFormat.TABLE,
) -> None:
    """List published days that are stale because input files were added, changed, or removed.

    backstream compares each published day with the input files that its run read. It reads each new file once and
    stores a summary.  The list is complete, but can contain false positives, because this command doesn't detect
    duplicate records.  To rerun the stale days, use `backstream run DEFINITION --stale`.

    Days of another version of the definition are not stale, but the command lists them with the changed keys.

    Example: `backstream stale flights --since 2013-02-01 --until 2013-03-01`
    """
    with report_errors():
        staleness = load_staleness(definition, since, until)
        if form is OutputFormat.JSON:
            print(json.dumps(staleness.as_json(), indent=1))
        else:
            print_text("\n".join(_stale_lines(staleness, definition)))


def load_staleness(definition: str, since: str | None, until: str | None) -> Staleness:
    """Return the stale days of a definition, of all published days if no range is given."""
    from backstream.workflow.late_data.stale import find_stale_days

    since_ms = None if since is None else instant_ms(since, "--since")
    until_ms = None if until is None else instant_ms(until, "--until")
    prepare_published(definition)
    return find_stale_days(find_definition(definition), Home.from_environment(), since_ms, until_ms)


def _stale_lines(staleness: Staleness, definition: str) -> Iterator[str]:
    if not staleness.days:
        yield f"{staleness.dataset}: none of {staleness.published_days} published days is stale"
        yield from _moved_lines(staleness)
        yield from _definition_lines(staleness, definition)
        return
    verb = "is" if len(staleness.days) == 1 else "are"
    yield f"{staleness.dataset}: {len(staleness.days)} of {staleness.published_days} published days {verb} stale"
    yield ""
    yield f"{'day':<10} {'windows':>8}  why"
    for day in staleness.days:
        yield from _stale_day_lines(day, staleness)
    yield ""
    yield f"hint: backstream run {definition} --stale"
    yield from _moved_lines(staleness)
    yield from _definition_lines(staleness, definition)


def _definition_lines(staleness: Staleness, definition: str) -> Iterator[str]:
    """Yield the keys that changed since days were published, with a command that computes these days again."""
    for change in staleness.definition_changes:
        days = count_of(len(change.days), "published day")
        yield ""
        yield f"{', '.join(change.keys)} changed since the runs of {days}"
        ranges = change.ranges()
        for part in ranges[:_RANGES_SHOWN]:
            since, until = (instant_text(at_ms)[:10] for at_ms in (part.start_ms, part.end_ms))
            yield f"hint: backstream run {definition} --since {since} --until {until}"
        if len(ranges) > _RANGES_SHOWN:
            yield f"and {len(ranges) - _RANGES_SHOWN:,} more ranges"


def _stale_day_lines(day: StaleDay, staleness: Staleness) -> Iterator[str]:
    from backstream.workflow.late_data.staleness import list_reasons

    reasons = [visible_line(each) for each in list_reasons([day], staleness.changes)]
    count = "all" if day.reasons else f"{len(day.windows):,}"
    yield f"{instant_text(day.day_ms)[:10]} {count:>8}  {reasons[0]}"
    for reason in reasons[1:]:
        yield f"{'':<21}{reason}"


def _moved_lines(staleness: Staleness) -> Iterator[str]:
    """Yield the files that were only renamed or compressed, which makes no day stale."""
    from backstream.workflow.late_data.staleness import list_moves

    if staleness.moves:
        yield ""
    yield from map(visible_line, list_moves(staleness.moves))
