"""The verb that shows the ledger."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from backstream.cli.app import app, errors_in_words
from backstream.core.folders import Home
from backstream.core.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, duration_text, instant_text

if TYPE_CHECKING:
    from backstream.steps.status import RunState

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
    from backstream.steps.status import run_states

    with errors_in_words():
        now_ms = int(time.time() * SECOND_MS)
        found = run_states(Home.from_environment(), dataset, last, now_ms)
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
        rough(run.seconds),
        f"{run.trigger}: {run.reason}" if run.reason else run.trigger,
        _progress(run, now_ms),
    )


def _progress(run: RunState, now_ms: int) -> str:
    """How many chunks of a run that has not ended are done, when it moved last, and how long it will take.

    Of one that failed, what it failed of.
    """
    if run.error:
        return run.error
    if run.state not in ("running", "interrupted"):
        return ""
    quiet = rough((now_ms - run.last_sign_ms) / SECOND_MS)
    said = f"{run.chunks_done} of {run.chunks} chunks, last sign of life {quiet} ago"
    if run.state != "running":
        return said
    if run.seconds_left is None:
        return f"{said}, time left unknown"
    low, high = (rough(seconds) for seconds in run.seconds_left)
    return f"{said}, {low} left" if low == high else f"{said}, {low} to {high} left"


def rough(seconds: float) -> str:
    """A duration in its two greatest units, such as `2h 5m`; below a minute in seconds."""
    value_ms = max(0, round(seconds)) * SECOND_MS
    for unit_ms, step_ms in ((DAY_MS, HOUR_MS), (HOUR_MS, MINUTE_MS)):
        if value_ms >= unit_ms:
            return duration_text(value_ms - value_ms % step_ms)
    return duration_text(value_ms)


def _day(value_ms: int) -> str:
    return instant_text(value_ms).removesuffix("T00:00Z")
