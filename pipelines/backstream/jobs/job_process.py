"""Run the process of a job: report its error, and end it together with its Airflow task.

The sentence of an error ends the log, and a trace goes to a file that the sentence names. The Airflow task that
waits for the job raises the sentence as its own error, and passes a file or object for it. If the task has ended,
e.g., because it was killed, the job ends too.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from backstream.errors import NO_RETRY_STATUS, BackstreamError
from backstream.storage.stores import Stores
from backstream.storage.traces import describe_error, keep_trace
from backstream.text import print_text
from backstream.variables import ERROR_FILE_VARIABLE, TASK_VARIABLE


def run_job(job: Callable[[], None], find_traces: Callable[[], Path]) -> int:
    """Run a job and report its error.

    Args:
        job: the work.
        find_traces: returns the folder for the trace of an unexpected error.

    Returns:
        The exit status: 0 after success, 3 after an error that a retry cannot fix, else 1.
    """
    try:
        job()
    except BackstreamError as error:
        _report(f"{type(error).__name__}: {error}")
        return 1 if error.is_retryable else NO_RETRY_STATUS
    except Exception as error:  # noqa: BLE001 - the trace is kept, and the status is an error
        _report(f"{describe_error(error)}\n  {keep_trace(error, find_traces)}")
        return 1
    return 0


def _report(sentence: str) -> None:
    print_text(sentence, file=sys.stderr, flush=True)
    if location := os.environ.get(ERROR_FILE_VARIABLE):
        with suppress(BackstreamError, OSError):  # the log has the sentence too
            filesystem, path = Stores.from_environment().open(location)
            with filesystem.open_output_stream(path) as stream:
                stream.write(sentence.encode())


TASK_ENDED_STATUS = 143
_POLL_S = 1.0


def end_with_task(environment: Mapping[str, str] = os.environ) -> threading.Thread | None:
    """Watch the parent task, and end this process and its Spark application when the task process has ended.

    A task that is asked to stop ends its job itself, but a killed task cannot.

    Returns:
        The watching thread; None without a parent task on this machine, as for a driver in a cluster.
    """
    host, _, pid = environment.get(TASK_VARIABLE, "").partition("/")
    if host != socket.gethostname() or not pid.isdigit() or _start_ticks(os.getpid()) is None:
        return None
    start_ticks = _start_ticks(int(pid))
    if start_ticks is None:
        _end(int(pid))
    thread = threading.Thread(target=_watch, args=(int(pid), start_ticks), name="watch the task", daemon=True)
    thread.start()
    return thread


def _watch(pid: int, start_ticks: str | None) -> None:
    while _start_ticks(pid) == start_ticks:
        time.sleep(_POLL_S)
    _end(pid)


def _end(pid: int) -> NoReturn:
    line = f"parent task (process {pid}) no longer exists; stopping the Spark job"
    print_text(line, file=sys.stderr, flush=True)
    os._exit(TASK_ENDED_STATUS)


def _start_ticks(pid: int) -> str | None:
    """Return the start of a process in clock ticks since boot; None if it has ended or `/proc` does not exist."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]
