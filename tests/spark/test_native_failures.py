"""Processes of native tasks crash, are many, and are canceled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.spark.native_failures import ATTEMPTS, MANY

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("failures")
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.native_failures", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found | {"folder": folder}


def test_many_tasks_in_one_session_all_end(results: dict[str, Any]) -> None:
    assert 0 < results["one"] < results["rows"]
    assert results["many"] == [MANY, MANY * results["one"]]


def test_spark_repeats_a_task_whose_process_was_killed(results: dict[str, Any]) -> None:
    assert results["killed once"] == [results["one"], 2]


def test_a_task_that_is_killed_in_each_attempt_is_named_with_its_bounds_and_files(results: dict[str, Any]) -> None:
    message, processes = results["killed always"]
    assert processes == ATTEMPTS
    assert message.startswith("the native engine could not compute records outside of 2024-03-01T00:00Z to ")
    assert f"in 1 files ({results['folder'] / 'events.parquet'} ...)" in message
    assert message.endswith(
        f"its process ended in each of {ATTEMPTS} attempts: Python worker exited unexpectedly (crashed)"
    )


def test_a_canceled_task_ends_within_five_seconds(results: dict[str, Any]) -> None:
    assert results["canceled"]
    assert results["processes"] == 1
    assert max(results["job_s"], results["process_s"]) <= 5
