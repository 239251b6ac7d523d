"""Verbs of a run: plan it, run it, write its report again."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from backstream.cli.app import (
    DefinitionArgument,
    ModeOption,
    ReasonOption,
    SinceOption,
    UntilOption,
    app,
    definition_path,
    errors_in_words,
)
from backstream.core.errors import SpecError
from backstream.core.folders import Home
from backstream.core.instants import duration_text, instant_ms
from backstream.core.plan import Mode, Plan


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
    with errors_in_words():
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

    with errors_in_words():
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

    with errors_in_words():
        latest = _latest_run(definition, since, until, mode)
        steps.report_run(latest)
        print(steps.summary(latest))


def _planned(definition: str, since: str, until: str, mode: Mode | None, reason: str) -> Plan:
    from backstream import steps

    since_ms, until_ms = instant_ms(since, "--since"), instant_ms(until, "--until")
    path = definition_path(definition)
    return steps.plan_run(
        path, since_ms, until_ms, mode=mode, trigger="cli", reason=reason, home=Home.from_environment()
    )


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


def _latest_run(definition: str, since: str, until: str, mode: Mode | None) -> Plan:
    from backstream.definition.load import load

    wanted = (instant_ms(since, "--since"), instant_ms(until, "--until"))
    dataset = load(definition_path(definition)).name
    found = []
    for path in (Home.from_environment().path / "runs" / dataset).glob("*/plan.json"):
        candidate = Plan.read(path)
        if (candidate.since_ms, candidate.until_ms) == wanted and mode in (None, candidate.mode):
            found.append((path.stat().st_mtime, candidate))
    if not found:
        msg = f"no run of {dataset} from {since} to {until} in {Home.from_environment().path}"
        raise SpecError(msg)
    return max(found, key=lambda each: each[0])[1]
