"""Define the command `handover`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from backstream.cli.app import app, report_errors
from backstream.eventtime.instants import instant_ms, instant_text
from backstream.runs.handover_bundle import (
    PARTITIONS_FILE,
    RECORDS_FILE,
    STATES_FILE,
    TIMERS_FILE,
    WINDOWS_FILE,
    HandoverBundle,
)
from backstream.runs.home import Home
from backstream.runs.store import Runs
from backstream.text import print_text


@app.command()
def handover(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run id of a replay")],
    at: Annotated[
        str,
        typer.Option(
            help="Instant at which the live job begins, on the clock of arrival, e.g., 2026-11-20T00:00Z. "
            "Records that arrived before it are in the bundle"
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the bundle. Default: `handover/INSTANT` in the folder of the run"),
    ] = None,
) -> None:
    """Write the state of a run's recorded stream at an instant, so that a live job continues from there.

    The bundle has the next position, watermark, and idleness of each source partition. It also has each open
    window with its partial aggregates and the index of its next pane.  With [process], it has the state of each
    key and the pending timers.  Nothing is published.

    Example: `backstream handover cli.3f2a9c51d07e --at 2026-11-20T00:00Z`
    """
    from backstream.handover.handover import hand_over_run

    with report_errors():
        at_ms = instant_ms(at, "--at")
        bundle, folder = hand_over_run(Runs(Home.from_environment()).plan_of_id(run), at_ms, out)
        print_text("\n".join(_bundle_lines(bundle, folder)))


def _bundle_lines(bundle: HandoverBundle, folder: Path) -> list[str]:
    watermark = instant_text(bundle.watermark_ms)
    lines = [
        f"{bundle.dataset} at {instant_text(bundle.at_ms)}",
        f"  watermark   {watermark}{', idle' if bundle.is_idle else ''}",
        f"  partitions  {bundle.files[PARTITIONS_FILE]:,}, {bundle.stream.records:,} records so far",
        _state_line(bundle),
    ]
    if RECORDS_FILE in bundle.files:
        lines.append(f"  records     {bundle.files[RECORDS_FILE]:,} in open windows")
    return [*lines, f"  bundle      {folder}"]


def _state_line(bundle: HandoverBundle) -> str:
    if TIMERS_FILE in bundle.files:
        return f"  timers      {bundle.files[TIMERS_FILE]:,} pending, {bundle.files[STATES_FILE]:,} keys"
    return f"  windows     {bundle.files[WINDOWS_FILE]:,} open"
