"""Verbs about the engine: what a delay would have cost, and whether it agrees with Flink."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backstream.cli.app import (
    DefinitionArgument,
    OutputFormat,
    OutputFormatOption,
    SinceOption,
    UntilOption,
    app,
    find_definition,
    report_errors,
)
from backstream.errors import SpecError
from backstream.eventtime.instants import instant_ms
from backstream.runs.home import Home

if TYPE_CHECKING:
    from backstream.conformance.cases import Engine
    from backstream.eventtime.delay_analysis import DelayAdvice
    from backstream.workflow.advise import AdviceRequest


@app.command()
def advise(
    definition: DefinitionArgument,
    since: SinceOption,
    until: UntilOption,
    min_kept: Annotated[float, typer.Option(help="Share of the records that must not be dropped")] = 0.999,
    form: OutputFormatOption = OutputFormat.TABLE,
) -> None:
    """Learn the watermark's delay from history: what would every delay have lost, and how long do results wait?

    Reads the recording twice, whatever the number of delays, and is exact for each of them: the counts are those
    that a replay with that delay would give, with the definition's windows, allowed lateness, interval, idle
    timeout and topology. Recommends the smallest delay that keeps the share.  Nothing is planned or published.

    dropped: came when the window was gone.  late: came after it had fired, which then fired again.
    kept: not dropped.  wait: from a window's end until the watermark lets it fire.

    Example: `backstream advise flights --since 2013-02-01 --until 2013-03-01 --min-kept 0.99`
    """
    from backstream.workflow.advise import advice_text, prepare_advice

    with report_errors():
        since_ms, until_ms = instant_ms(since, "--since"), instant_ms(until, "--until")
        asked = prepare_advice(find_definition(definition), since_ms, until_ms, min_kept, Home.from_environment())
        advice = _advised(asked)
        if form is OutputFormat.JSON:
            print(advice.json_text(), end="")
        else:
            print(advice_text(asked, advice))


@app.command()
def conformance(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Files of cases, one JSON object per line")],
    engine: Annotated[str, typer.Option(help="reference (plain Python) or spark")] = "reference",
) -> None:
    """Hold an engine against recordings of real Apache Flink, case by case.

    Prints a line per case that differs or is not supported, and ends with the counts.
    Exit status 0: none differs; 1: some do.

    Example: `backstream conformance tests/conformance/flink/tumbling.jsonl --engine spark`
    """
    from backstream.conformance.cases import find_difference, load_cases

    with report_errors():
        tally = find_difference(list(load_cases(files)), _engine(engine))
        for line in (*tally.differ, *tally.unsupported):
            print(line)
        print(tally)
        if tally.differ:
            raise typer.Exit(1)


@app.command()
def definition_schema() -> None:
    """Print the JSON schema of a definition, for editors that complete and check TOML.

    Example: `backstream definition-schema > definition.schema.json`
    """
    from backstream.definition.loader import json_schema

    print(json_schema())


def _engine(name: str) -> Engine:
    if name == "reference":
        from backstream.conformance.reference_engine import run_case

        return run_case
    if name == "spark":
        from backstream.conformance.spark_engine import new_engine
        from backstream.spark.session import SMALL_DATA_SETTINGS, local_session

        return new_engine(local_session("backstream conformance", SMALL_DATA_SETTINGS))
    msg = f"--engine must be reference or spark, got {name!r}"
    raise SpecError(msg)


def _advised(asked: AdviceRequest) -> DelayAdvice:
    """In a Spark of its own, with a bar that moves as the passes over the data end."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from backstream.spark.java import require_java
    from backstream.spark.session import local_session
    from backstream.workflow.advise import STAGES, recommend_delay

    require_java()  # before there is a bar on the screen
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(TextColumn("{task.description:<28}"), *columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("starting Spark", total=len(STAGES))
        spark = local_session(f"backstream advise {asked.definition.name}")
        advice = recommend_delay(
            spark, asked, lambda stage: progress.update(bar, description=stage, completed=STAGES.index(stage))
        )
        progress.update(bar, description="weighed", completed=len(STAGES))
        spark.stop()
    return advice
