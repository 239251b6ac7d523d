"""Report the error of a job: its sentence ends the log, and a trace goes to a file that the sentence names.

The Airflow task that waits for the job raises the sentence as its own error, and passes a file for it.
"""

from __future__ import annotations

import os
import sys
import traceback
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from backstream.errors import NO_RETRY_STATUS, BackstreamError
from backstream.runs.home import ERROR_FILE_VARIABLE, write_text
from backstream.spark.failures import describe_unexpected_error


def run_job(job: Callable[[], None], traces: Path) -> int:
    """Run a job and report its error.

    Args:
        job: the work.
        traces: folder for the trace of an unexpected error.

    Returns:
        The exit status: 0 after success, 3 after an error that a retry cannot fix, else 1.
    """
    try:
        job()
    except BackstreamError as error:
        _report(f"{type(error).__name__}: {error}")
        return 1 if error.is_retryable else NO_RETRY_STATUS
    except Exception as error:  # noqa: BLE001 - the trace is kept, and the status is an error
        _report(f"{describe_unexpected_error(error)}\n  {_keep_trace(error, traces)}")
        return 1
    return 0


def _report(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)  # noqa: T201 - people read the log
    if name := os.environ.get(ERROR_FILE_VARIABLE):
        with suppress(OSError):  # the log has the sentence too
            Path(name).write_text(sentence, encoding="utf-8")


def _keep_trace(error: Exception, folder: Path) -> str:
    """Write the trace to a file and return a sentence that names it; without a writable disk, print the trace."""
    trace = "".join(traceback.format_exception(error))
    file = folder / f"{uuid.uuid4().hex[:8]}.txt"
    try:
        write_text(file, trace)
    except (BackstreamError, OSError):
        print(trace, file=sys.stderr)  # noqa: T201 - people read the log
        return "the trace is above"
    return f"the trace is in {file}"
