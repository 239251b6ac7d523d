"""Tasks in processes of this machine: their order, their errors, their end, and the end of their processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import pytest

from backstream.chunks.processes import Processes
from backstream.errors import JobError
from backstream.native.task_runner import FAILED
from backstream.storage.stores import Stores

Marker = tuple[str, int]
"""A folder in which each attempt leaves a file, and the number of attempts whose process is killed."""


@pytest.fixture
def processes() -> Iterator[Processes]:
    started = Processes(slots=2)
    yield started
    started.cancel()


def square(number: int, _: Stores) -> int:
    time.sleep(0.05 * (3 - number % 3))
    return number * number


def fail(number: int, _: Stores) -> int:
    if number == 1:
        msg = f"{FAILED} part {number}: the file is damaged"
        raise RuntimeError(msg)
    return number


def leave_marker(marker: Marker, _: Stores) -> int:
    folder, killed = Path(marker[0]), marker[1]
    earlier = len([*folder.iterdir()])
    (folder / f"{earlier}-{os.getpid()}").touch()
    if earlier < killed:
        os.kill(os.getpid(), signal.SIGKILL)
    return earlier


def sleep_long(_: int, __: Stores) -> None:
    time.sleep(600)


def test_results_are_in_the_order_of_the_tasks(processes: Processes) -> None:
    assert processes.run(square, range(9)) == [number * number for number in range(9)]


def test_the_sentence_of_a_failed_task_is_the_error(processes: Processes) -> None:
    with pytest.raises(RuntimeError, match=f"{FAILED} part 1: the file is damaged"):
        processes.run(fail, range(4))
    assert processes.run(square, [3]) == [9]  # the processes are still there


def test_a_task_whose_process_is_killed_runs_again(processes: Processes, tmp_path: Path) -> None:
    (tmp_path / "killed").mkdir()
    (tmp_path / "other").mkdir()

    attempts = processes.run(leave_marker, [(str(tmp_path / "killed"), 2), (str(tmp_path / "other"), 0)])

    assert attempts == [2, 0]


def test_a_task_that_is_killed_in_each_attempt_is_an_error_with_the_task(
    processes: Processes, tmp_path: Path
) -> None:
    with pytest.raises(JobError) as error:
        processes.run(leave_marker, [(str(tmp_path), 99)])

    message = str(error.value)
    assert str(tmp_path) in message
    assert "its process ended in each of 4 attempts" in message
    assert "SIGKILL" in message
    assert len([*tmp_path.iterdir()]) == 4


def test_cancelled_tasks_end_at_once(processes: Processes) -> None:
    processes.run(square, [1])
    begin = time.monotonic()
    Timer(0.5, processes.cancel).start()

    with pytest.raises(JobError, match="it was cancelled"):
        processes.run(sleep_long, range(2))

    assert time.monotonic() - begin < 30


PARENT = """
import sys
from tests.chunks.test_processes import Processes, leave_marker, sleep_long
processes = Processes(slots=1)
processes.run(leave_marker, [(sys.argv[1], 0)])
print("started", flush=True)
processes.run(sleep_long, [1])
"""


def test_processes_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "started\n"
        (marker,) = tmp_path.iterdir()
        worker = int(marker.name.partition("-")[2])

        parent.kill()

    deadline = time.monotonic() + 30
    while Path(f"/proc/{worker}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path(f"/proc/{worker}").exists()
