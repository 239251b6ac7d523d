"""Runs in processes that are really killed: this one has imported everything and forks a child for each.

A line of standard input is a JSON list of jobs that begin at the same moment, a child each; the answers are a JSON
list on a line of standard output. A job with `warm` is done right here, so that what is imported late is there
when others are forked. Each is a run as `tests.crash.child` describes it, and may have

    die_at: the number of the moment at which the child kills itself, or patterns (see `tests.crash.points`)
    die_after_s: seconds after which it is killed from outside
    fill_at, ballast: where the disk is filled up instead, by a file
    quit_at, pid: where another process is ended instead

The answer for each child: its exit code (-9: killed), what it said last, and its moments, or the one it died at.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.crash.child import carry_out
from tests.crash.points import armed, die, fill

Job = dict[str, Any]


def main() -> None:
    """Answer until the end of the input."""
    for line in sys.stdin:
        jobs: list[Job] = json.loads(line)
        if jobs[0].get("warm"):
            carry_out(jobs.pop())
        begin_at = time.monotonic() + 0.05 * (len(jobs) > 1)
        pids = [forked(job, begin_at) for job in jobs]
        answers = [answered(pid, job, begin_at) for pid, job in zip(pids, jobs, strict=True)]
        print(json.dumps(answers), flush=True)  # noqa: T201 - what the test reads
    os._exit(0)  # at once: there is nothing to clean up


def forked(job: Job, begin_at: float) -> int:
    """A child that does the job, by its id."""
    for file in ("said", "moments"):
        Path(job[file]).unlink(missing_ok=True)
    if pid := os.fork():
        return pid
    code = 1
    try:
        os.environ.update(job.get("environment", {}))
        time.sleep(max(0.0, begin_at - time.monotonic()))
        with armed(*strike(job)):
            code = carry_out(job)
    except BaseException:  # noqa: BLE001 - whatever it is, the test reads it
        traceback.print_exc()
    finally:
        os._exit(code)


def strike(job: Job) -> tuple[int | list[str] | None, Path, Callable[[], None]]:
    """Where to strike, where to tell of it, and what happens then."""
    moments = Path(job["moments"])
    if "fill_at" in job:
        return job["fill_at"], moments, partial(fill, Path(job["ballast"]))
    if "quit_at" in job:
        return job["quit_at"], moments, partial(os.kill, job["pid"], signal.SIGKILL)
    return job.get("die_at"), moments, die


def ended(pid: int, job: Job, begin_at: float) -> int:
    """How the child ended; one that has its time set is killed then."""
    if after_s := job.get("die_after_s"):
        time.sleep(max(0.0, begin_at + after_s - time.monotonic()))
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def answered(pid: int, job: Job, begin_at: float) -> dict[str, Any]:
    """`said`: error class and message, or what became of the publication; empty when it was killed."""
    code, said, moments = ended(pid, job, begin_at), Path(job["said"]), Path(job["moments"])
    return {
        "exit": code,
        "said": json.loads(said.read_text()) if said.exists() else [],
        "moments": moments.read_text().splitlines() if moments.exists() else [],
        "seconds": time.monotonic() - begin_at,
    }


if __name__ == "__main__":
    main()
