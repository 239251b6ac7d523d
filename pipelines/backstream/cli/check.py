"""Define the command `check`, which checks a definition, and shows what a run would read of its source."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backstream.cli.app import DefinitionArgument, app, report_errors
from backstream.definition.folder import find_definition
from backstream.runs.home import Home
from backstream.runs.input_notes import INEXACT_HINT
from backstream.text import RowFormat, print_text, share_text

if TYPE_CHECKING:
    from backstream.workflow.checks.check_sample import CheckedSample

_RECORDS_SHOWN = 5
_QUARANTINED_SHOWN = 5
_ROWS_SHOWN = 10
_MAX_RECORD_LENGTH = 100


@app.command("check")
def check_command(
    definition: DefinitionArgument,
    sample: Annotated[
        int | None,
        typer.Option(min=1, help="Also read this number of records, from up to three files, e.g., 1000"),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="SCRIPT", help="Also compare the definition with a script of Flink SQL, e.g., job.sql"
        ),
    ] = None,
    insert: Annotated[
        str | None, typer.Option(metavar="TABLE", help="Table of the INSERT, if the script has several")
    ] = None,
) -> None:
    """Check a definition: its keys, the columns and types of its source, the suite, and the engine.

    With --sample, backstream also reads a few records as a run reads them. It prints the parsed records, the
    records that would be quarantined with the reason, and two windows of result. Nothing is written to the lake.
    With --against, each key in which the definition differs from the script is a line, and the exit status is 1.
    Exit status 0: no problem was found; 1: each problem is an error on standard error.

    Example: `backstream check flights --sample 1000`
    """
    from backstream.workflow.checks.check_definition import check_definition

    with report_errors(definition):
        path, home = find_definition(definition), Home.from_environment()
        checked = check_definition(path, home)
        print_text("\n".join(checked.lines))
        for problem in checked.problems:
            print_text(f"error: {problem}", file=sys.stderr)
        differences = _print_drift(path, against, insert) if against else ()
        if checked.problems or differences:
            raise typer.Exit(1)
        if sample:
            _print_sample(path, sample, home)


def _print_drift(path: Path, script: Path, insert: str | None) -> list[str]:
    """Print the keys in which a definition differs from a script, and return them."""
    from backstream.workflow.script_definitions import describe_drift, find_script_drift

    differences = find_script_drift(path, script, insert)
    print_text("\n".join(describe_drift(differences, script.name)))
    return differences


def _print_sample(path: Path, limit: int, home: Home) -> None:
    """Read the sample with Spark on this machine, and print it."""
    from backstream.cli.output import print_rows
    from backstream.spark.failures import silence_java_traces
    from backstream.workflow.checks.check_sample import check_sample
    from backstream.workflow.runners import SparkStart

    starting = SparkStart(path)
    spark = starting.session("a sample is computed by Spark")
    silence_java_traces(spark)
    found = check_sample(spark, path, limit, home)
    print_text(f"\nrecords: {min(_RECORDS_SHOWN, found.records.num_rows)} of {found.read:,} in the sample")
    print_rows([found.records.slice(0, _RECORDS_SHOWN)], RowFormat.TABLE, _RECORDS_SHOWN)
    notes = [*_inexact_lines(found), *(f"implausible times: {times}" for times in found.implausible)]
    print_text("\n".join([*_quarantine_lines(found), *notes, *_window_lines(found)]))
    print_rows([found.rows], RowFormat.TABLE, _ROWS_SHOWN)
    starting.stop()


def _quarantine_lines(found: CheckedSample) -> Iterator[str]:
    yield ""
    rows = found.quarantined.to_pylist()
    if not rows:
        yield "quarantine: no record of the sample"
        return
    limit = share_text(found.max_quarantined)
    is_too_many = len(rows) > found.max_quarantined * found.read
    gate = f"; above {limit}, nothing is published (quality.quarantined_ratio)" if is_too_many else ""
    yield f"quarantine: {len(rows):,} of {found.read:,} records ({share_text(len(rows), found.read)}){gate}"
    for row in rows[:_QUARANTINED_SHOWN]:
        reason, file, line, record = row.values()
        text = record if len(record) <= _MAX_RECORD_LENGTH else f"{record[:_MAX_RECORD_LENGTH]}..."
        yield f"  {reason}: {text}"
        yield f"    in {file}" if line is None else f"    in line {line:,} of {file}"


def _inexact_lines(found: CheckedSample) -> Iterator[str]:
    for numbers in found.inexact:
        limit = share_text(found.max_inexact)
        is_too_many = numbers.count > found.max_inexact * found.read
        gate = f"; above {limit}, nothing is published (quality.inexact_ratio)" if is_too_many else ""
        yield f"inexact: {numbers}{gate}"
        yield f"  {INEXACT_HINT}"


def _window_lines(found: CheckedSample) -> Iterator[str]:
    yield ""
    if found.duplicates:
        yield f"duplicates: {found.duplicates:,} records of the sample"
    if found.without_id:
        columns = "all columns of source.deduplicate_on are null"
        yield f"without id: {found.without_id:,} records of the sample, because {columns}"
    if found.fates:
        fates = ", ".join(f"{count:,} {fate.replace('_', ' ')}" for fate, count in found.fates.items())
        yield f"replay: {fates}, {found.watermarks}"
    if found.note:
        yield found.note
    shown = min(2, found.windows)
    yield f"windows: {shown} of {found.windows:,}, those with the most records of the sample"
