"""End a job when the Airflow task that started it has ended, e.g., because it was killed."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from backstream.runs.home import TASK_VARIABLE

GONE_STATUS = 143
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
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - people read the log
    os._exit(GONE_STATUS)


def _start_ticks(pid: int) -> str | None:
    """Return the start of a process in clock ticks since boot; None if it has ended or `/proc` does not exist."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]
