"""Define the command `prepare`, and prepare sources for the other commands."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from backstream.cli.app import DefinitionArgument, app, report_errors
from backstream.definition.folder import find_definition
from backstream.runs.home import Home
from backstream.text import print_text

if TYPE_CHECKING:
    from backstream.workflow.plan.plan_request import PlanRequest


@app.command("prepare")
def prepare_command(definition: DefinitionArgument) -> None:
    """Read the new files of a source that the engines cannot read where they are.

    The other commands do this first, so this command only saves them time. Files that the engines read where they
    are need no preparation.

    Example: `backstream prepare orders`
    """
    with report_errors(definition):
        if not prepare_definition(definition):
            print_text("no new files to prepare")


def prepare_definition(definition: str) -> bool:
    """Prepare all new files of a definition's source, and return whether there were any."""
    from backstream.workflow.execution import prepare_input

    return prepare_input(find_definition(definition), Home.from_environment(), _print_note)


def prepare_published(definition: str) -> bool:
    """Prepare the new files that earlier runs would need, and return whether there were any."""
    from backstream.workflow.execution import prepare_input

    return prepare_input(find_definition(definition), Home.from_environment(), _print_note, needed=None)


def prepare_request(request: PlanRequest) -> bool:
    """Prepare the new files that the run of a request needs, and return whether there were any."""
    from backstream.workflow.execution import prepare_for_run

    return prepare_for_run(request, _print_note)


def _print_note(line: str) -> None:
    print_text(line, file=sys.stderr)
