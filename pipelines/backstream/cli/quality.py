"""Verbs about suites of expectations."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from backstream.cli.app import app, errors_in_words
from backstream.core.errors import SpecError
from backstream.core.folders import expectations_folder

quality = typer.Typer(
    no_args_is_help=True, help="Suites of expectations: what a run must be like to be published."
)
app.add_typer(quality, name="quality")


@quality.command()
def check(
    suites: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SUITE]...", help="Names or JSON files; by default all there are"),
    ] = None,
) -> None:
    """Read suites as an audit would, and say what is wrong with them. Nothing is run.

    Each finding names the file, the expectation, the key and the value.
    Exit status 0: all are sound; 1: one is not.

    Example: `backstream quality check window_audit`
    """
    from backstream.quality.suites import available_suites, load_suite

    with errors_in_words():
        places = [_place(each) for each in suites or available_suites()]
        if not places:
            msg = f"no suite in {expectations_folder()}"
            raise SpecError(msg)
        is_sound = True
        for name, folder in places:
            try:
                entries = load_suite(name, folder).entries
            except SpecError as error:
                is_sound = False
                print(f"error: {error}", file=sys.stderr)
            else:
                print(f"{name}: {len(entries)} expectation{'s' if len(entries) > 1 else ''}")
        if not is_sound:
            raise typer.Exit(1)


def _place(suite: str) -> tuple[str, Path | None]:
    """The name of a suite, and the folder of the file if it was one."""
    path = Path(suite)
    return (path.stem, path.parent) if path.suffix == ".json" else (suite, None)
