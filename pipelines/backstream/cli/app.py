"""The application itself, and what its commands share: arguments, names, errors in words."""

from __future__ import annotations

import atexit
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from backstream.errors import BackstreamError, QualityError, SpecError
from backstream.runs.home import definitions_folder
from backstream.runs.plan import Mode

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


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Python names no file where standard output is what a disk has no room for."""


def main() -> NoReturn:
    """Run the command that was asked for, and end the process.

    Python would take everything apart that a run has loaded, which takes it a second. What a library has to do at
    the end (Spark's Java, temporary folders) is done; memory is the operating system's.
    """
    status, refused = 0, list[OSError]()
    try:
        app()
    except SystemExit as ended:
        status = _status_of(ended)
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        refused.append(error)
    atexit._run_exitfuncs()  # noqa: SLF001 - there is no other way to have it done
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (BrokenPipeError, ValueError):
            pass  # the reader has closed the pipe, or the command has closed the stream
        except OSError as error:
            refused.append(error)
    if refused:
        status = status or 1
        with suppress(OSError):  # standard error may be what cannot be written
            os.write(2, f"error: cannot write: {refused[0].strerror}\n".encode())
    os._exit(status)


def _status_of(ended: SystemExit) -> int:
    """Return the status that Python gives to the end of a process, and print its text as Python does."""
    if ended.code is None:
        return 0
    if isinstance(ended.code, int):
        return ended.code
    print(ended.code, file=sys.stderr)
    return 1


DefinitionArgument = Annotated[str, typer.Argument(metavar="DEFINITION", help="TOML file, or a definition's name")]
SinceOption = Annotated[str, typer.Option(help="First day of the range, such as 2013-02-01 (midnight UTC)")]
UntilOption = Annotated[str, typer.Option(help="First day after the range; itself excluded")]
MaybeSince = Annotated[str | None, typer.Option("--since", help="First day of the range (midnight UTC)")]
MaybeUntil = Annotated[str | None, typer.Option("--until", help="First day after the range; itself excluded")]
ModeOption = Annotated[
    Mode | None,
    typer.Option(
        help="recompute: only event time counts, nothing is late.  "
        "replay: arrival order is reproduced.  Default: as defined"
    ),
]
TimeZoneOption = Annotated[
    str | None,
    typer.Option(help="Whose days the range is, such as America/New_York; the UTC days that hold it are run"),
]
ReasonOption = Annotated[str, typer.Option(help="Why, for the report and the ledger")]


class OutputFormat(StrEnum):
    """Formats of commands that print one result."""

    TABLE = "table"
    JSON = "json"


OutputFormatOption = Annotated[OutputFormat, typer.Option("--format", help="Print a table or JSON")]


def find_definition(definition: str) -> Path:
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


@contextmanager
def report_errors() -> Iterator[None]:
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
