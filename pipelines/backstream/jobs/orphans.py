"""A job whose task is gone must not go on: nobody would wait for it, and another attempt may be under way."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from backstream.core.folders import TASK_VARIABLE

GONE_STATUS = 143
_POLL_S = 1.0


def end_with_the_task(environment: Mapping[str, str] = os.environ) -> threading.Thread | None:
    """From now on end this process, and with it the Spark application, once the task that waits for it is gone.

    A task that is asked to end ends its job itself; one that is killed cannot. None where nobody is to be watched:
    no task was named, or it is on another machine, as with a driver in a cluster.
    """
    host, _, pid = environment.get(TASK_VARIABLE, "").partition("/")
    if host != socket.gethostname() or not pid.isdigit() or _began(os.getpid()) is None:
        return None
    began = _began(int(pid))
    if began is None:
        _end(int(pid))
    watch = threading.Thread(target=_watch, args=(int(pid), began), name="watch the task", daemon=True)
    watch.start()
    return watch


def _watch(pid: int, began: str | None) -> None:
    while _began(pid) == began:
        time.sleep(_POLL_S)
    _end(pid)


def _end(pid: int) -> NoReturn:
    print(f"the task that waited for this job is gone (process {pid}): ending", file=sys.stderr, flush=True)  # noqa: T201 - people read the log
    os._exit(GONE_STATUS)


def _began(pid: int) -> str | None:
    """When a process began, in clock ticks since the machine did; None when it has ended, or nothing tells."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]
