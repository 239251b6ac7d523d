"""Define the application and the arguments, options, and error output that its commands share."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from backstream import __version__
from backstream.definition.folder import find_definition
from backstream.errors import BackstreamError, QualityError
from backstream.runs.home import Home
from backstream.runs.plan import Mode
from backstream.runs.settings import misspelt_variables, provide_settings
from backstream.storage.traces import describe_error, keep_trace
from backstream.text import print_text
from backstream.workflow.java_end import explain_java_end
from backstream.workflow.requested_range import RangeNames

app = typer.Typer(
    name="backstream",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help=(
        "Backfill windowed event data: replay recorded events, check the result, and publish it atomically.\n\n"
        "A DEFINITION is a TOML file, or the name of one in the definitions folder.  "
        "Times are UTC unless they have an offset; `--until` is excluded.  "
        "State is stored in $BACKSTREAM_HOME, by default in `.backstream` in the working directory."
    ),
)


_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk. The error has no file name if standard output is the file."""
_GARBAGE_THRESHOLDS = (100_000, 30, 30)
"""A command is a short process, and most of its objects live to its end. With Python's defaults, the garbage
collector took 1.5 s of 14.7 s processor time in a run of 134 chunks."""


def main() -> NoReturn:
    """Run the command of the process arguments, and end the process.

    The process exits without the cleanup of the interpreter, which takes a second after a run. Exit handlers of
    libraries still run: they stop Spark's Java and remove temporary folders.
    """
    gc.set_threshold(*_GARBAGE_THRESHOLDS)
    status, write_errors = 0, list[OSError]()
    try:
        app()
    except SystemExit as end:
        status = _exit_status(end)
    except OSError as error:
        if error.errno not in _DISK_FULL or error.filename is not None:
            raise
        write_errors.append(error)
    atexit._run_exitfuncs()  # noqa: SLF001 - Python has no public function for this
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (BrokenPipeError, ValueError):
            pass  # the reader closed the pipe, or the command closed the stream
        except OSError as error:
            write_errors.append(error)
    if write_errors:
        status = status or 1
        with suppress(OSError):  # standard error can be on the full disk
            os.write(2, f"error: cannot write: {write_errors[0].strerror}\n".encode())
    os._exit(status)


def _exit_status(end: SystemExit) -> int:
    """Return the exit status that Python would use, and print the text of the exit as Python does."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code
    print_text(end.code, file=sys.stderr)
    return 1


DefinitionArgument = Annotated[
    str, typer.Argument(metavar="DEFINITION", help="TOML file or name of a definition, e.g., `flights`")
]
SinceOption = Annotated[str, typer.Option(help="First day of the range (midnight UTC), e.g., 2013-02-01")]
UntilOption = Annotated[str, typer.Option(help="Day after the last day of the range, e.g., 2013-03-01")]
MaybeSince = Annotated[
    str | None, typer.Option("--since", help="First day of the range (midnight UTC), e.g., 2013-02-01")
]
MaybeUntil = Annotated[
    str | None, typer.Option("--until", help="Day after the last day of the range, e.g., 2013-03-01")
]
ModeOption = Annotated[
    Mode | None,
    typer.Option(
        help="recompute: use event time only; no record is late.  "
        "replay: process records in arrival order.  Default: the mode of the definition"
    ),
]
TimeZoneOption = Annotated[
    str | None,
    typer.Option(
        help="Time zone of --since and --until, e.g., America/New_York. The run covers all UTC days that overlap "
        "the range. Default: UTC"
    ),
]
ReasonOption = Annotated[
    str, typer.Option(help='Reason for the run, stored in the report and the ledger, e.g., "wrong time zone"')
]


OPTION_NAMES = RangeNames("--since", "--until")


class OutputFormat(StrEnum):
    """Formats of commands that print one result."""

    TABLE = "table"
    JSON = "json"


OutputFormatOption = Annotated[OutputFormat, typer.Option("--format", help="Output format")]


@contextmanager
def report_errors(definition: str | None = None) -> Iterator[None]:
    """Print errors as messages instead of tracebacks, and exit; the trace of an unexpected one goes to a file.

    `definition` is the argument of a command that may start Spark: its calls of Java can end Java.
    """
    try:
        with explain_java_end(lambda: _find_content(definition)):
            yield
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except BackstreamError as error:
        print_text(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2 if isinstance(error, QualityError) else 1) from None
    except OSError as error:
        if error.filename is None:
            raise
        print_text(f"error: {error.strerror}: {error.filename}", file=sys.stderr)
        raise typer.Exit(1) from None
    except Exception as error:  # noqa: BLE001 - the trace is kept, and the status is an error
        print_text(f"error: {describe_error(error)}\n  {keep_trace(error, _find_traces)}", file=sys.stderr)
        raise typer.Exit(1) from None


def _find_content(definition: str | None) -> tuple[Mapping[str, Any], str]:
    """Return the keys of a definition and its file, for an error; none if it is unknown."""
    if definition is None:
        return {}, "the driver on this machine"
    file = find_definition(definition)
    return tomllib.loads(file.read_text(encoding="utf-8")), str(file)


def _find_traces() -> Path:
    return Home.from_environment().errors


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        print_text(f"backstream {__version__}")
        raise typer.Exit


@app.callback()
def start_command(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version, and exit")
    ] = False,
) -> None:
    """Provide the settings of the project to the command, and warn about misspelt variables."""
    with report_errors():
        context.obj = provide_settings()
    for sentence in misspelt_variables():
        print_text(f"warning: {sentence}", file=sys.stderr)
