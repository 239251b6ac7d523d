"""Check expectations in a process of its own: the results, its end, and a kill."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache

import pandas as pd
import psutil
import pytest

from backstream.quality import gate_process
from backstream.quality.gate_process import end_gate_process, start_gate_process, validate_in_process
from backstream.quality.gx_adapter import FrameExpectation, validate_frames

FRAMES = {"clicks": pd.DataFrame({"page": ["home", "news", None], "clicks": [1, 2, 3]})}
EXPECTED = [
    FrameExpectation("clicks", "expect_column_values_to_not_be_null", {"column": "page"}),
    FrameExpectation("clicks", "expect_column_max_to_be_between", {"column": "clicks", "max_value": 3}),
    FrameExpectation("clicks", "expect_column_values_to_be_between", {"column": "page", "min_value": 1}),
]


@pytest.fixture(autouse=True)
def own_process() -> Iterator[None]:
    """End the process after each test."""
    end_gate_process()
    yield
    end_gate_process()


def _facts(results: list[object]) -> list[str]:
    return [repr(each) for each in results]


def test_a_process_returns_the_results_of_this_one() -> None:
    found = validate_in_process(FRAMES, EXPECTED)

    assert [each.is_met for each in found] == [False, True, False]
    assert list(found[0].failing.index) == [2]
    assert "TypeError" in found[2].error
    assert _facts([*found]) == _facts([*validate_frames(FRAMES, EXPECTED)])
    assert _facts([*validate_in_process(FRAMES, EXPECTED)]) == _facts([*found])
    assert start_gate_process().poll() is None


def test_the_work_of_a_killed_process_is_done_here() -> None:
    killed = start_gate_process()
    killed.kill()
    killed.wait()

    assert [each.is_met for each in validate_in_process(FRAMES, EXPECTED)] == [False, True, False]
    assert start_gate_process() is not killed


def test_the_work_of_a_process_that_was_killed_within_its_answer_is_done_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = "import pickle, sys; sys.stdout.buffer.write(pickle.dumps(['answer'])[:-4])"

    @cache
    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    monkeypatch.setattr(gate_process, "start_gate_process", start)

    assert [each.is_met for each in validate_in_process(FRAMES, EXPECTED)] == [False, True, False]


@pytest.mark.parametrize("end", ["pass", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_process_ends_with_the_one_that_started_it(end: str) -> None:
    program = f"""
from backstream.quality import gate_process
from backstream.quality.gate_process import start_gate_process
print(start_gate_process().pid, flush=True)
{end}
"""
    started = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert started.stderr == ""
    until_s = time.monotonic() + 60
    while psutil.pid_exists(int(started.stdout)):
        assert time.monotonic() < until_s
        time.sleep(0.1)
