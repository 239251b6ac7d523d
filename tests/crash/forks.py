"""Fork a child process for each run, so that tests can kill it; this process has imported all modules.

A line of standard input is a JSON list of jobs that start at the same moment, each in a child. A line of standard
output is the JSON list of answers. A job with `warm` runs in this process, so that it imports lazy modules before
it forks. Each job is a run as described in `tests.crash.child`, and may have

    die_at: the number of the moment at which the child kills itself, or patterns (see `tests.crash.points`)
    die_after_s: seconds until this process kills the child
    fill_at, ballast: the moment at which a file fills the disk instead
    quit_at, pid: the moment at which another process is killed instead

The answer for each child has its exit code (-9: killed), its outcome, and its moments or the last of them.
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

from tests.crash.child import run_job
from tests.crash.points import armed, die, fill

Job = dict[str, Any]


def main() -> None:
    """Answer jobs until the end of the input."""
    for line in sys.stdin:
        jobs: list[Job] = json.loads(line)
        if jobs[0].get("warm"):
            run_job(jobs.pop())
        begin_at = time.monotonic() + 0.05 * (len(jobs) > 1)
        pids = [fork_job(job, begin_at) for job in jobs]
        answers = [collect_answer(pid, job, begin_at) for pid, job in zip(pids, jobs, strict=True)]
        print(json.dumps(answers), flush=True)  # noqa: T201 - what the test reads
    os._exit(0)  # immediately, without cleanup


def fork_job(job: Job, begin_at: float) -> int:
    """Fork a child that runs the job, and return its process id."""
    for file in ("outcome", "moments"):
        Path(job[file]).unlink(missing_ok=True)
    if pid := os.fork():
        return pid
    code = 1
    try:
        os.environ.update(job.get("environment", {}))
        time.sleep(max(0.0, begin_at - time.monotonic()))
        with armed(*strike(job)):
            code = run_job(job)
    except BaseException:  # noqa: BLE001 - the test reads the traceback
        traceback.print_exc()
    finally:
        os._exit(code)


def strike(job: Job) -> tuple[int | list[str] | None, Path, Callable[[], None]]:
    """Return the moment to strike, the file for the moments, and the action."""
    moments = Path(job["moments"])
    if "fill_at" in job:
        return job["fill_at"], moments, partial(fill, Path(job["ballast"]))
    if "quit_at" in job:
        return job["quit_at"], moments, partial(os.kill, job["pid"], signal.SIGKILL)
    return job.get("die_at"), moments, die


def wait_for_child(pid: int, job: Job, begin_at: float) -> int:
    """Return the exit code of the child; kill it after `die_after_s`."""
    if after_s := job.get("die_after_s"):
        time.sleep(max(0.0, begin_at + after_s - time.monotonic()))
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def collect_answer(pid: int, job: Job, begin_at: float) -> dict[str, Any]:
    """Return the answer; `outcome` is the error with its class or the result, empty for a killed child."""
    code, outcome, moments = wait_for_child(pid, job, begin_at), Path(job["outcome"]), Path(job["moments"])
    return {
        "exit": code,
        "outcome": json.loads(outcome.read_text()) if outcome.exists() else [],
        "moments": moments.read_text().splitlines() if moments.exists() else [],
        "seconds": time.monotonic() - begin_at,
    }


if __name__ == "__main__":
    main()
