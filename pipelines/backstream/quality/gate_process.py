"""Validate expectations in a process of its own, which imports Great Expectations while a run is replayed.

The import keeps a core busy for more than a second, and a thread would take that time from the run. The process
answers one list of expectations after the other, and ends with the pipe from the process that started it.
"""

from __future__ import annotations

import atexit
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from threading import Lock
from typing import IO, TYPE_CHECKING, cast

if TYPE_CHECKING:
    import pandas as pd

    from backstream.quality.gx_adapter import ExpectationResult, FrameExpectation

_LOCK = Lock()


@cache
def start_gate_process() -> subprocess.Popen[bytes]:
    """Start the process, unless this one has started it before."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    atexit.register(end_gate_process)
    # In a session of its own, it gets no signal of a terminal.
    return subprocess.Popen(
        [sys.executable, "-m", __name__],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def end_gate_process() -> None:
    """End the process if it runs; the next start is that of another one."""
    if start_gate_process.cache_info().currsize:
        process = start_gate_process()
        process.kill()
        with suppress(OSError):  # a request that the process did not read is lost
            process.communicate()
        start_gate_process.cache_clear()


def validate_in_process(
    frames: Mapping[str, pd.DataFrame], expected: Sequence[FrameExpectation]
) -> list[ExpectationResult]:
    """Return the result of each expectation for its frame; if the process was killed, this one does its work."""
    from backstream.quality.gx_adapter import validate_frames

    with _LOCK:
        process = start_gate_process()
        requests, answers = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        try:
            pickle.dump((dict(frames), list(expected)), requests, protocol=5)
            requests.flush()
            return cast("list[ExpectationResult]", pickle.load(answers))  # noqa: S301 - from our own process
        except (EOFError, OSError, pickle.UnpicklingError):  # it was killed, maybe within its answer
            end_gate_process()
    return validate_frames(frames, expected)


def _answer_requests() -> None:
    """Answer all requests on the standard input, until it ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is not an answer
    from backstream.quality.gx_adapter import import_library, validate_frames

    import_library(has_spark=False)
    while True:
        try:
            frames, expected = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that started this one
        except EOFError:
            os._exit(0)  # threads of libraries have nothing left to do
        pickle.dump(validate_frames(frames, expected), answers, protocol=5)
        answers.flush()


if __name__ == "__main__":
    _answer_requests()
