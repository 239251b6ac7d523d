"""A job goes on only as long as the task that waits for it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from backstream.jobs.job_process import TASK_ENDED_STATUS, end_with_task
from backstream.variables import TASK_VARIABLE

JOB = """\
import time
from backstream.jobs.job_process import end_with_task
end_with_task()
print("ready", flush=True)
time.sleep(60)
"""
TASK = "import time; time.sleep(60)"


def job_of(task: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", JOB],
        env=os.environ | {TASK_VARIABLE: task},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_job_ends_when_its_task_was_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", TASK]) as task:
        job = job_of(f"{socket.gethostname()}/{task.pid}")
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        task.kill()
    _, said = job.communicate(timeout=20)
    assert job.returncode == TASK_ENDED_STATUS
    assert said == f"parent task (process {task.pid}) no longer exists; stopping the Spark job\n"


def test_a_job_does_not_start_if_its_task_has_already_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as task:
        pass
    printed, _ = job_of(f"{socket.gethostname()}/{task.pid}").communicate(timeout=20)
    assert printed == ""


@pytest.mark.parametrize("task", ["", "elsewhere/1", f"{socket.gethostname()}/x"])
def test_a_job_watches_no_task_without_a_local_process_id(task: str) -> None:
    assert end_with_task({TASK_VARIABLE: task}) is None
