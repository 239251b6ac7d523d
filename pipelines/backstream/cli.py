"""The command line: the same verbs as in Airflow, without it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from backstream.core.conformance import Engine, compare, read_lines
from backstream.core.errors import BackstreamError, QualityError, SpecError
from backstream.core.folders import Home, definitions_folder
from backstream.core.instants import duration_text, instant_ms
from backstream.core.plan import Mode, Plan

if TYPE_CHECKING:
    from backstream.core.advice import Advice
    from backstream.steps.advise import Question

app = typer.Typer(
    name="backstream",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help=(
        "Re-run history: replay recorded events as bounded streams, check the result, publish it atomically.\n\n"
        "A DEFINITION is a TOML file, or the name of one in the definitions folder.  "
        "Times are UTC unless they name a zone; `--until` is excluded.  "
        "State lies in $BACKSTREAM_HOME, by default `.backstream` in the working directory."
    ),
)

DefinitionArgument = Annotated[str, typer.Argument(metavar="DEFINITION", help="TOML file, or a definition's name")]
SinceOption = Annotated[str, typer.Option(help="First day of the range, such as 2013-02-01 (midnight UTC)")]
UntilOption = Annotated[str, typer.Option(help="First day after the range; itself excluded")]
ModeOption = Annotated[
    Mode | None,
    typer.Option(
        help="recompute: only event time counts, nothing is late.  "
        "replay: arrival order is reproduced.  Default: as defined"
    ),
]
ReasonOption = Annotated[str, typer.Option(help="Why, for the report and the ledger")]


@app.command()
def plan(
    definition: DefinitionArgument,
    since: SinceOption,
    until: UntilOption,
    mode: ModeOption = None,
    reason: ReasonOption = "",
) -> None:
    """Say what a run would read and write, chunk by chunk, and write the plan. Nothing else is done.

    Example: `backstream plan flights --since 2013-02-01 --until 2013-03-01 --mode replay`
    """
    with _errors_in_words():
        planned = _planned(definition, since, until, mode, reason)
        print(_plan_text(planned))


@app.command()
def run(
    definition: DefinitionArgument,
    since: SinceOption,
    until: UntilOption,
    mode: ModeOption = None,
    reason: ReasonOption = "",
) -> None:
    """Plan a range, replay it on this machine's cores, audit it, publish it, and write the report.

    A range that was interrupted goes on where it stopped: finished chunks are not run again.
    Exit status 0: published; 1: an error, nothing was published; 2: the gate refused, see the report.

    Example: `backstream run flights --since 2013-02-01 --until 2013-03-01 --mode replay`
    """
    from backstream import steps

    with _errors_in_words():
        planned = _planned(definition, since, until, mode, reason)
        _replay(planned)
        console = Console(stderr=True)
        with console.status("auditing"):
            steps.audit_run(planned)
        with console.status("publishing"):
            steps.publish_run(planned)
        steps.report_run(planned)
        print(steps.summary(planned))


@app.command()
def report(
    definition: DefinitionArgument,
    since: SinceOption,
    until: UntilOption,
    mode: ModeOption = None,
) -> None:
    """Write the report of the newest run of a range again, and say where it is.

    Example: `backstream report flights --since 2013-02-01 --until 2013-03-01`
    """
    from backstream import steps

    with _errors_in_words():
        latest = _latest_run(definition, since, until, mode)
        steps.report_run(latest)
        print(steps.summary(latest))


@app.command()
def advise(
    definition: DefinitionArgument,
    since: SinceOption,
    until: UntilOption,
    keep: Annotated[float, typer.Option(help="Share of the records that must not be dropped")] = 0.999,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the whole curve to this file")] = None,
) -> None:
    """Learn the watermark's delay from history: what would every delay have lost, and how long do results wait?

    Reads the recording twice, whatever the number of delays, and is exact for each of them: the counts are those
    that a replay with that delay would give, with the definition's windows, allowed lateness, interval, idle
    timeout and topology. Recommends the smallest delay that keeps the share.  Nothing is planned or published.

    dropped: came when the window was gone.  late: came after it had fired, which then fired again.
    kept: not dropped.  wait: from a window's end until the watermark lets it fire.

    Example: `backstream advise flights --since 2013-02-01 --until 2013-03-01 --keep 0.99`
    """
    from backstream.core.folders import write_text
    from backstream.steps.advise import question, summary

    with _errors_in_words():
        since_ms, until_ms = instant_ms(since, "--since"), instant_ms(until, "--until")
        asked = question(_definition_path(definition), since_ms, until_ms, keep, Home.from_environment())
        advice = _advised(asked)
        if json:
            write_text(json, advice.json_text())
        print(summary(asked, advice))


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
    with _errors_in_words():
        tally = compare(list(read_lines(files)), _engine(engine))
        for line in (*tally.differ, *tally.unsupported):
            print(line)
        print(tally)
        if tally.differ:
            raise typer.Exit(1)


@app.command()
def schema() -> None:
    """Print the JSON schema of a definition, for editors that complete and check TOML.

    Example: `backstream schema > definition.schema.json`
    """
    from backstream.definition.load import json_schema

    print(json_schema())


def _engine(name: str) -> Engine:
    if name == "reference":
        from backstream.core.reference import play

        return play
    if name == "spark":
        from backstream.spark.conformance import engine
        from backstream.spark.session import SMALL_DATA_SETTINGS, local

        return engine(local("backstream conformance", SMALL_DATA_SETTINGS))
    msg = f"--engine must be reference or spark, got {name!r}"
    raise SpecError(msg)


def _planned(definition: str, since: str, until: str, mode: Mode | None, reason: str) -> Plan:
    from backstream import steps

    since_ms, until_ms = instant_ms(since, "--since"), instant_ms(until, "--until")
    path = _definition_path(definition)
    return steps.plan_run(
        path, since_ms, until_ms, mode=mode, trigger="cli", reason=reason, home=Home.from_environment()
    )


def _definition_path(definition: str) -> Path:
    """The file itself, or the definition of that name."""
    path = Path(definition)
    if path.is_file() or path.suffix == ".toml":
        return path
    folder = definitions_folder()
    known = sorted(each.stem for each in folder.glob("*.toml"))
    if definition in known:
        return folder / f"{definition}.toml"
    there_are = f"\n  there are: {', '.join(known) or 'none'}"
    msg = f"no definition {definition!r}: neither a file, nor a name in {folder}{there_are}"
    raise SpecError(msg)


def _plan_text(planned: Plan) -> str:
    lines = [
        f"{planned.dataset}  {planned.range}  {planned.mode}, arrival order {planned.fidelity}",
        f"run {planned.run_id}, plan {planned.folder.plan}",
        "",
        f"{'chunk':<8} {'windows start in':<40} {'files':>6} {'events, about':>14}  halo",
    ]
    for chunk in planned.chunks:
        halo = duration_text(chunk.read_until_ms - chunk.end_ms)
        files, events = f"{len(chunk.files):>6,}", f"{chunk.expected_events:>14,}"
        lines.append(f"{chunk.chunk_id:<8} {chunk.interval!s:<40} {files} {events}  {halo}")
    return "\n".join(lines)


def _replay(planned: Plan) -> None:
    """All chunks in one Spark application, with a bar that moves as stages finish."""
    from backstream.spark.run import STAGES, replay_chunk
    from backstream.spark.session import local, require_java

    require_java()  # before there is a bar on the screen
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("eta"), TimeRemainingColumn())
    with Progress(TextColumn("{task.description:<28}"), *columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("starting Spark", total=len(planned.chunks) * len(STAGES))
        spark = local(f"backstream {planned.dataset}")
        for number, chunk in enumerate(planned.chunks):

            def tell(stage: str, number: int = number, name: str = chunk.chunk_id) -> None:
                done = number * len(STAGES) + STAGES.index(stage)
                progress.update(bar, description=f"chunk {name}: {stage}", completed=done)

            replay_chunk(spark, planned, chunk, tell)
            progress.update(bar, completed=(number + 1) * len(STAGES))
        progress.update(bar, description="replayed")
        spark.stop()


def _advised(asked: Question) -> Advice:
    """In a Spark of its own, with a bar that moves as the passes over the data end."""
    from backstream.spark.session import local, require_java
    from backstream.steps.advise import STAGES, advise

    require_java()  # before there is a bar on the screen
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(TextColumn("{task.description:<28}"), *columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("starting Spark", total=len(STAGES))
        spark = local(f"backstream advise {asked.definition.name}")
        advice = advise(
            spark, asked, lambda stage: progress.update(bar, description=stage, completed=STAGES.index(stage))
        )
        progress.update(bar, description="weighed", completed=len(STAGES))
        spark.stop()
    return advice


def _latest_run(definition: str, since: str, until: str, mode: Mode | None) -> Plan:
    from backstream.definition.load import load

    wanted = (instant_ms(since, "--since"), instant_ms(until, "--until"))
    dataset = load(_definition_path(definition)).name
    found = []
    for path in (Home.from_environment().path / "runs" / dataset).glob("*/plan.json"):
        candidate = Plan.read(path)
        if (candidate.since_ms, candidate.until_ms) == wanted and mode in (None, candidate.mode):
            found.append((path.stat().st_mtime, candidate))
    if not found:
        msg = f"no run of {dataset} from {since} to {until} in {Home.from_environment().path}"
        raise SpecError(msg)
    return max(found, key=lambda each: each[0])[1]


@contextmanager
def _errors_in_words() -> Iterator[None]:
    """What a person did wrong, or what the machine lacks, is said in words and not as a traceback."""
    try:
        yield
    except BackstreamError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2 if isinstance(error, QualityError) else 1) from None
    except OSError as error:
        if error.filename is None:
            raise
        print(f"error: {error.strerror}: {error.filename}", file=sys.stderr)
        raise typer.Exit(1) from None


if __name__ == "__main__":
    app()
