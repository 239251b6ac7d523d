"""The verb that tells what became of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from backstream.cli.app import MaybeSince, MaybeUntil, ModeOption, app, definition_path, errors_in_words
from backstream.core.errors import SpecError
from backstream.core.folders import Home
from backstream.core.forms import Form
from backstream.core.instants import instant_ms
from backstream.core.plan import Mode, Plan


@app.command()
def report(
    run: Annotated[str, typer.Argument(metavar="RUN|DEFINITION", help="A run id; of a definition the newest run")],
    since: MaybeSince = None,
    until: MaybeUntil = None,
    mode: ModeOption = None,
    form: Annotated[
        Form | None, typer.Option("--format", help="Print the report itself: html, md or json; nothing is written")
    ] = None,
) -> None:
    """Write the report of a run again, and say where it is; or print it, for a pull request, a chat or a program.

    `--since`, `--until` and `--mode` tell which run of a definition is meant.

    Example: `backstream report flights --since 2013-02-01 --until 2013-03-01 --format md`
    """
    from backstream import steps

    with errors_in_words():
        found = _plan(run, since, until, mode)
        if form is None:
            steps.report_run(found)
            print(steps.summary(found))
        else:
            print(steps.report_text(found, form), end="")


def _plan(text: str, since: str | None, until: str | None, mode: Mode | None) -> Plan:
    """The run of that id, unless there is such a definition."""
    from backstream.definition.load import load
    from backstream.steps.history import newest_run
    from backstream.steps.reports import plan_of

    home, since_ms, until_ms = Home.from_environment(), _at(since, "--since"), _at(until, "--until")
    try:
        path = definition_path(text)
    except SpecError:
        return plan_of(home, text)
    dataset = load(path).name
    return newest_run(home, dataset, since_ms, until_ms, mode)


def _at(text: str | None, name: str) -> int | None:
    return None if text is None else instant_ms(text, name)
