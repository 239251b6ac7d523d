"""Keep the traces of unexpected errors in files, so that people read a sentence."""

from __future__ import annotations

import re
import sys
import traceback
import uuid
from collections.abc import Callable
from pathlib import Path

from backstream.errors import BackstreamError
from backstream.storage.files import write_text
from backstream.text import print_text


def keep_trace(error: Exception, find_folder: Callable[[], Path]) -> str:
    """Write the trace to a file and return a sentence that names it; without a writable disk, print the trace.

    Args:
        error: the error.
        find_folder: returns the folder for the file.
    """
    trace = "".join(traceback.format_exception(error))
    try:
        file = find_folder() / f"{uuid.uuid4().hex[:8]}.txt"
        write_text(file, trace)
    except (BackstreamError, OSError):
        print_text(trace, file=sys.stderr)
        return "the trace is above"
    return f"the trace is in {file}"


def describe_error(error: Exception) -> str:
    """Return an unexpected error as a line: the deepest cause that Java names, or else the first line."""
    text = str(error)
    lines = [*_CAUSE.findall(text)[-1:], *text.strip().splitlines()[:1], "no message"]
    line = lines[0].strip()
    return f"{type(error).__name__}: {line if len(line) <= _MAX_LENGTH else f'{line[:_MAX_LENGTH]}..'}"


_CAUSE = re.compile(r"^Caused by: (?:[\w$]+\.)*[\w$]+: (.+)$", re.MULTILINE)
_MAX_LENGTH = 160
