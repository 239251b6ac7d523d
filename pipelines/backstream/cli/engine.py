"""Define the commands `advise`, `conformance`, `keep-batches`, and `definition-schema`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import partial
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
    report_errors,
)
from backstream.cli.prepare import prepare_definition
from backstream.definition.folder import find_definition
from backstream.errors import BackstreamError
from backstream.eventtime.instants import duration_ms, instant_ms
from backstream.eventtime.outages import Outage
from backstream.runs.home import Home
from backstream.text import print_text

if TYPE_CHECKING:
    from backstream.conformance.comparison import AnyCase, Engine, EngineResult
    from backstream.eventtime.delay_analysis import DelayAdvice
    from backstream.workflow.advise import AdviceRequest


class AssumedStrategy(StrEnum):
    """Strategies that `advise` can assume."""

    PUNCTUATED = "punctuated"


@app.command()
def advise(  # noqa: PLR0913, PLR0917 - each is an option
    definition: DefinitionArgument,
    since: SinceOption,
    until: UntilOption,
    min_kept: Annotated[
        float, typer.Option(help="Share of the records that must not be dropped, e.g., 0.99")
    ] = 0.999,
    idle_timeout: Annotated[
        str | None, typer.Option(help="Assume this idle timeout, e.g., 1d. Default: that of the definition")
    ] = None,
    allowed_lateness: Annotated[
        str | None, typer.Option(help="Assume this allowed lateness, e.g., 6h. Default: that of the definition")
    ] = None,
    strategy: Annotated[
        AssumedStrategy | None,
        typer.Option(help="Assume punctuated watermarks, which advance after each record instead of at ticks"),
    ] = None,
    outage: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PARTITION:START/END",
            help="Assume that the records of a source partition arrive only at the end of an interval, e.g., "
            "EWR:2013-02-10/2013-02-12. You can repeat the option",
        ),
    ] = None,
    form: OutputFormatOption = OutputFormat.TABLE,
) -> None:
    """Recommend a watermark delay from recorded events.

    For each delay, backstream counts late and dropped records and measures how long results wait. The counts are
    exact: a replay with that delay gives the same ones. The recommendation is the smallest delay that keeps the
    share --min-kept.  This command doesn't plan or publish anything.

    dropped: arrived after the window was removed.  late: arrived after the window fired; it fires again.
    kept: not dropped.  wait: time from the end of a window until the watermark fires it.

    If no idle timeout is set and silent partitions hold the watermark back, the output lists them with an
    idle timeout.  --idle-timeout, --allowed-lateness, --strategy, and --outage show the counts as they would have
    been.

    `--format json` prints the whole curve: each delay at which a count changes.

    Example: `backstream advise flights --since 2013-02-01 --until 2013-03-01 --min-kept 0.99`
    """
    from backstream.workflow.advice_text import advice_text
    from backstream.workflow.advise import AssumedSettings, prepare_advice

    with report_errors(definition):
        since_ms, until_ms = instant_ms(since, "--since"), instant_ms(until, "--until")
        prepare_definition(definition)
        assumed = AssumedSettings(
            None if idle_timeout is None else duration_ms(idle_timeout),
            None if allowed_lateness is None else duration_ms(allowed_lateness),
            emits_after_each_record=strategy is not None,
            outages=[Outage.from_text(text) for text in outage or []],
        )
        home = Home.from_environment()
        request = prepare_advice(find_definition(definition), since_ms, until_ms, min_kept, home, assumed)
        advice = _analyze(request)
        if form is OutputFormat.JSON:
            print(advice.json_text(), end="")
        else:
            print_text(advice_text(request, advice))


class ConformanceEngine(StrEnum):
    """Engines that `conformance` can test."""

    REFERENCE = "reference"
    NATIVE = "native"
    SPARK = "spark"


@app.command()
def conformance(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="Files of recorded cases, one JSON object per line, or folders of Flink SQL scripts",
        ),
    ],
    engine: Annotated[ConformanceEngine, typer.Option(help="Engine to test")] = ConformanceEngine.REFERENCE,
) -> None:
    """Compare an engine with recorded output of Apache Flink, or of jobs of Spark Structured Streaming.

    The reference engine runs each record in plain Python. The other two run each case as `backstream run` does:
    files, a definition, a plan, and its replay.

    A folder of a script has `script.sql`, `events.jsonl`, and Flink's rows: `expected_live.jsonl` of a replay, and
    `expected_complete.jsonl` of a recompute. A folder of such folders is all their scripts.

    Prints one line for each case that differs, and then the counts, also of unsupported cases by reason.
    Exit status 0: no case differs; 1: at least one case differs.

    Example: `backstream conformance tests/conformance/flink/tumbling.jsonl --engine native`
    """
    from backstream.conformance.cases import load_cases
    from backstream.conformance.comparison import find_difference

    with report_errors():
        tally = find_difference(list(load_cases(files)), _load_engine(engine))
        for line in tally.differ:
            print_text(line)
        for reason, count in tally.unsupported.most_common():
            print_text(f"unsupported: {count}: {reason}")
        print_text(tally)
        if tally.differ:
            raise typer.Exit(1)


@app.command("keep-batches")
def keep_batches_command(
    checkpoint: Annotated[str, typer.Argument(help="Folder or address of the checkpoint of a streaming query")],
    to: Annotated[str, typer.Option(help="Folder or address for the batches")],
    progress: Annotated[
        list[str] | None, typer.Option(help="File of progress reports, or an event log; repeatable")
    ] = None,
) -> None:
    """Copy the batches of a job of Structured Streaming out of its checkpoint, before Spark removes them.

    Spark keeps the last 100 batches. Each call copies the batches that have ended since the last call, and names
    those that were lost before. A job may write its checkpoint meanwhile.

    Example: `backstream keep-batches s3://jobs/clicks/checkpoint --to s3://archive/clicks-batches`
    """
    from backstream.structured_streaming.kept_batches import keep_batches

    with report_errors():
        print_text(keep_batches(checkpoint, to, progress or ()))


@app.command()
def definition_schema() -> None:
    """Print the JSON schema of definitions, for editors that complete and check TOML.

    Example: `backstream definition-schema > definition.schema.json`
    """
    from backstream.definition.loader import json_schema

    print(json_schema())


def _load_engine(engine: ConformanceEngine) -> Engine:
    if engine is ConformanceEngine.REFERENCE:
        from backstream.conformance.reference_engine import run_cases

        return run_cases
    return partial(_run_with_progress, engine.value)


def _run_with_progress(engine: str, cases: Sequence[AnyCase]) -> Sequence[EngineResult | BackstreamError]:
    """Run cases in several processes, with a progress bar."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from backstream.conformance.workers import run_in_workers
    from backstream.spark.java import require_java

    if engine == "spark":
        require_java()  # before the progress bar appears
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task(f"cases on {engine}", total=len(cases))
        return run_in_workers(engine, cases, lambda finished: progress.advance(bar, finished))


def _analyze(request: AdviceRequest) -> DelayAdvice:
    """Analyze the recording in a Spark application of its own, with a progress bar."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from backstream.spark.java import require_java
    from backstream.spark.session import local_session
    from backstream.workflow.advise import recommend_delay

    require_java()  # before the progress bar appears
    stages = request.stages
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(TextColumn("{task.description:<28}"), *columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("starting Spark", total=len(stages))
        spark = local_session(f"backstream advise {request.definition.name}")
        advice = recommend_delay(
            spark, request, lambda stage: progress.update(bar, description=stage, completed=stages.index(stage))
        )
        progress.update(bar, description="analyzed", completed=len(stages))
        spark.stop()
    return advice
