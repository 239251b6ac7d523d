"""Define the command `init`, which writes a project, a DAG file, or a definition from the files of an archive."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backstream.cli.app import app, report_errors
from backstream.errors import SpecError
from backstream.source.archive.preset_names import Preset
from backstream.text import print_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backstream.source.archive.definition_text import Settings
    from backstream.source.archive.evidence import Evidence
    from backstream.source.archive.roles import Choice
    from backstream.source.archive.times import SampledTime

_QUESTIONS = {
    "event_time": "Which column has the time at which the event happened?",
    "arrival_time": "Which column has the time at which the record arrived?",
    "partition": "Which column has the partition of the stream's source?",
    "sequence": "Which column has the order within a partition?",
    "key": "Which column is the key of the result?",
}
_REQUIRED = ("event_time",)
_NONE = "none"
_AIRFLOW = "airflow"
_EXAMPLE = "backstream init orders --from data/orders"
_PROJECT_EXAMPLE = 'backstream init orders --from "$PWD/data/orders" --to definitions/orders.toml'


@app.command()
def init(  # noqa: PLR0913, PLR0917 - each is an option
    name: Annotated[
        str | None, typer.Argument(help="Name of the new dataset, e.g., `orders`; or `airflow`, without --from")
    ] = None,
    location: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="Folder, file, path with wildcards, or S3 URI of the events, e.g., `data/orders`",
        ),
    ] = None,
    preset: Annotated[
        Preset | None,
        typer.Option(help="Kind of archive whose columns are known. Default: detected by the columns"),
    ] = None,
    event_time: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of the event time, e.g., `ordered_at`. Default: guessed by values and names",
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--from-checkpoint",
            metavar="PATH",
            help="Checkpoint of the job of Structured Streaming that read the events, or a folder of its kept"
            " batches, e.g., `s3://jobs/orders/checkpoint`. Default: there is no such job",
        ),
    ] = None,
    script: Annotated[
        Path | None,
        typer.Option(
            "--from-flink-sql",
            metavar="PATH",
            help="Script of Flink SQL, e.g., `job.sql`: one definition for each of its INSERTs",
        ),
    ] = None,
    archive: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="Recorded events of the script's source. Default: [source] is to be completed"
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", help="File to write, e.g., `orders.toml`. Default: NAME.toml")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Take the best guess instead of asking")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file")] = False,
) -> None:
    """Write a project, a DAG file, or a definition from the events that lie at a path.

    `backstream init` writes a project into the working directory: settings, a quality suite, and a DAG file.
    `backstream init airflow` writes only the DAG file, and lists what Airflow lacks.
    `backstream init NAME --from PATH` writes a definition.

    For a definition, backstream reads a sample without Spark: Parquet, JSON lines, CSV, ORC, Avro, or access logs,
    also compressed. It guesses the times, the source partition, the order, and the key, and shows the evidence. It
    asks for guesses that are not certain, unless --yes is given or there is no terminal.

    With --from-flink-sql, each INSERT of a script becomes a definition with the same rows. If one cannot be a
    definition, the reason is printed with line and column, and the exit status is 1.

    With --from-checkpoint, the definition replays a job of Spark Structured Streaming by the watermarks in its
    checkpoint. The window, the key, and the aggregates are not there: take them from the query.

    Example: `backstream init orders --from data/orders`
    """
    from backstream.source.archive.evidence import examine_archive

    with report_errors():
        if name and script:
            _write_script_definitions(script, name, archive, to, is_forced=force)
        elif archive:
            msg = "--archive is for --from-flink-sql, with NAME\n\nhint: --from PATH examines an archive"
            raise SpecError(msg)
        elif name and location:
            file = to or Path(f"{name}.toml")
            _require_new(file, is_forced=force)
            evidence = examine_archive(location, preset, event_time)
            evidence = evidence.with_job(checkpoint) if checkpoint else evidence
            _write_definition(evidence, name, file, is_asking=not yes, is_named=event_time is not None)
        elif name == _AIRFLOW and not checkpoint:
            _write_dag_file()
        elif name or location or checkpoint:
            missing = "--from" if name or not location else "NAME"
            msg = f"a definition needs NAME and --from, got no {missing}\n\nhint: {_EXAMPLE}"
            raise SpecError(msg)
        else:
            _write_project()


def _write_script_definitions(
    script: Path, name: str, archive: str | None, to: Path | None, *, is_forced: bool
) -> None:
    """Write a definition for each INSERT of a script, and print the reason for each one that has none."""
    from backstream.workflow.script_definitions import write_script_definitions

    found = write_script_definitions(script, name, archive)
    if to and len(found) > 1:
        msg = f"--to is for a script with one INSERT, and {script} has {len(found)}"
        raise SpecError(msg)
    for each in found:
        if each.problem:
            print_text(f"error: no definition {each.name}: {each.problem}", file=sys.stderr)
            continue
        file = to or Path(f"{each.name}.toml")
        _require_new(file, is_forced=is_forced)
        file.write_text(each.text, encoding="utf-8")
        print_text(f"Wrote {file}.")
    if any(each.problem for each in found):
        raise typer.Exit(1)


def _write_project() -> None:
    from backstream.workflow.new_project import write_project

    folder = Path.cwd()
    for file in write_project(folder):
        print_text(f"Wrote {file.relative_to(folder)}.")
    print_text("\n".join(["", "next:", "  backstream doctor", f"  {_PROJECT_EXAMPLE}"]))


def _write_dag_file() -> None:
    from backstream.cli.installation import airflow_findings
    from backstream.workflow.checks.findings import State
    from backstream.workflow.new_project import list_missing_settings, write_dag_file

    print_text(f"Wrote {write_dag_file(Path.cwd())}.")
    findings = [*list_missing_settings(), *airflow_findings()]
    if lacking := [str(finding) for finding in findings if finding.state is not State.OK]:
        print_text("\n".join(["", "missing:", *(f"  {line}" for line in lacking)]))


def _write_definition(evidence: Evidence, name: str, file: Path, *, is_asking: bool, is_named: bool) -> None:
    from backstream.source.archive.definition_text import write_definition_text
    from backstream.source.archive.evidence import evidence_lines

    is_asking = is_asking and sys.stdin.isatty()
    if is_asking:
        print_text("\n".join(evidence_lines(evidence)), end="\n\n")
    evidence, settings = _ask(evidence, name, is_asking=is_asking, is_named=is_named)
    text = write_definition_text(evidence, settings)
    if not is_asking:
        print_text("\n".join(evidence_lines(evidence)), end="\n\n")
    file.write_text(text, encoding="utf-8")
    print_text("\n".join(_next_lines(evidence, file)))


def _require_new(file: Path, *, is_forced: bool) -> None:
    if file.exists() and not is_forced:
        msg = f"{file} exists already\n\nhint: write another file with --to, or replace this one with --force"
        raise SpecError(msg)


def _without_doubts(evidence: Evidence, *, is_named: bool) -> Evidence:
    """Return the evidence without times of which several patterns are equally likely.

    If the user names the event time, its pattern becomes a line to complete, and such an arrival time is left out.

    Raises:
        SpecError: with the patterns, if the user does not name the event time.
    """
    for key, time in (("event_time", evidence.event_time), ("arrival_time", evidence.arrival_time)):
        if time is None or time.pattern is None or time.is_order_shown:
            continue
        if not is_named:
            path, example, readings = _readings(time)
            msg = (
                f"the values of {path!r}, e.g., {example!r}, do not show their pattern (--yes): it is"
                f" {' or '.join(readings)}\n\n"
                f"hint: set source.{key}_pattern: without --yes, init asks for it;"
                f" `--event-time {evidence.event_time.column.path}` writes a definition with this line to complete"
            )
            raise SpecError(msg)
        if key == "event_time":
            evidence = evidence.with_time(replace(time, lacks="pattern"))
        else:
            evidence = evidence.with_choice("arrival_time", None)
    return evidence


def _ask(evidence: Evidence, name: str, *, is_asking: bool, is_named: bool) -> tuple[Evidence, Settings]:
    """Return the evidence and the settings with the answers of the user."""
    from backstream.source.archive.definition_text import Settings

    if not is_asking:
        _require_certain_source(evidence)
        return _without_doubts(evidence, is_named=is_named), Settings(name)
    for role in _QUESTIONS:
        choice = getattr(evidence.roles, role)
        if not choice.is_certain and choice.candidates:
            evidence = evidence.with_choice(role, _ask_column(role, choice))
    for time in filter(None, (evidence.event_time, evidence.arrival_time)):
        if time.pattern and not time.is_order_shown:
            evidence = evidence.with_pattern(time, _ask_pattern(time))
    if (job := evidence.job) and not job.is_source_certain:
        number = _ask_number("Which source of the query has read the events?", [*map(str, job.sources)], 1)
        evidence = replace(evidence, job=job.with_source(job.sources[number - 1]))
    times = [time for time in (evidence.event_time, evidence.arrival_time) if time]
    is_zoned = all(time.has_zone for time in times)
    zone = "UTC" if is_zoned else typer.prompt("Which time zone have the times without a zone?", default="UTC")
    return evidence, Settings(name, typer.prompt("Which size has a window?", default="1h"), zone)


def _require_certain_source(evidence: Evidence) -> None:
    """Check that only one source of a job can have read the events."""
    job = evidence.job
    if job is None or job.is_source_certain:
        return
    listed = "".join(f"\n  {source}" for source in job.sources)
    msg = (
        f"several sources of the query may have read {evidence.archive.location} ({job.address}){listed}\n\n"
        "hint: without --yes, init asks for the source on a terminal"
    )
    raise SpecError(msg)


def _ask_column(role: str, choice: Choice) -> str | None:
    candidates = [*choice.candidates, *([] if role in _REQUIRED else [_NONE])]
    number = _ask_number(_QUESTIONS[role], candidates, candidates.index(choice.value or _NONE) + 1)
    answer = candidates[number - 1]
    return None if answer == _NONE else answer


def _ask_pattern(time: SampledTime) -> str:
    """Return the pattern of a time whose order of day and month the values do not show."""
    path, example, readings = _readings(time)
    number = _ask_number(f"Which pattern has {path}, e.g., {example!r}?", readings, 1)
    return (time, *time.rivals)[number - 1].pattern or ""


def _readings(time: SampledTime) -> tuple[str, str, list[str]]:
    """Return the column of a time, an example, and what each fitting pattern makes of it."""
    from backstream.eventtime.instants import instant_text
    from backstream.source.archive.sampled import shown_text

    readings = [
        f"{each.pattern}, so that the first time is {instant_text(each.present_ms[0])}"
        for each in (time, *time.rivals)
    ]
    return shown_text(time.column.path), shown_text(time.column.present[0]), readings


def _ask_number(question: str, answers: Sequence[str], default: int) -> int:
    print_text(question)
    for number, answer in enumerate(answers, 1):
        print_text(f"  {number}  {answer}")
    number = 0
    while not 1 <= number <= len(answers):
        number = typer.prompt("Number", default=default, type=int)
    return number


def _next_lines(evidence: Evidence, file: Path) -> list[str]:
    from backstream.source.archive.definition_text import incomplete_key, suggested_range
    from backstream.source.archive.sampled import shown_text

    lines = [f"Wrote {file}."]
    if key := incomplete_key(evidence):
        path = shown_text(evidence.event_time.column.path)
        lines += ["", f"Complete {key} in {file}: init cannot read the times of {path}."]
    lines += ["", "next:", f"  backstream check {file} --sample 1000"]
    if days := suggested_range(evidence):
        lines += [
            f"  backstream {command} {file} --since {days[0]} --until {days[1]}" for command in ("plan", "run")
        ]
    return lines
