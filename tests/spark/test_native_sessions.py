"""Test the checks of the driver on the results of native session tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.histories import random_history, write_history
from tests.spark.native_runs import native_definition
from tests.spark.runs import WINDOWS, planned

from backstream.chunks import sessions, windows
from backstream.chunks.replay import replay_chunks
from backstream.chunks.tasks import Tasks, run_native_tasks
from backstream.errors import ContractError, CountError
from backstream.native.task import TaskResult
from backstream.native.task_runner import Task, run_native_task
from backstream.runs.plan import Mode
from backstream.spark.engine import SparkEngine


def run_with(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch, actual: Callable[[TaskResult], TaskResult]
) -> None:
    """Run a range with changed task results."""
    write_history(folder / "data", random_history(4, rows=80))
    content = native_definition(folder / "data", window=WINDOWS["session"])
    plan = planned(folder, content, Mode.REPLAY, since=0, until=3)

    def done(*requested: Any) -> dict[int, TaskResult]:
        return {number: actual(each) for number, each in run_native_tasks(*requested).items()}

    monkeypatch.setattr(sessions, "run_native_tasks", done)
    list(replay_chunks(SparkEngine(spark), plan, plan.chunks))


@pytest.mark.parametrize("kind", ["session", "tumbling"])
def test_a_task_that_outlives_the_job_leaves_no_file_for_the_others(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The case of a failed task, after which Spark computes the chunks."""
    write_history(tmp_path / "data", random_history(4, rows=80))
    content = native_definition(tmp_path / "data", window=WINDOWS[kind])
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)
    requested: list[Task] = []

    def done(tasks: Tasks, planned: Sequence[Task]) -> dict[int, TaskResult]:
        requested.extend(planned)
        return run_native_tasks(tasks, planned)

    for module in (sessions, windows):
        monkeypatch.setattr(module, "run_native_tasks", done)
    list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    with pytest.raises(RuntimeError, match="the native engine could not compute"):
        run_native_task(requested[0])
    assert [*tmp_path.rglob("*.scratch*")] == []


def test_units_that_are_lost_are_an_error_that_names_both_counts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_less(each: TaskResult) -> TaskResult:
        return each if each.units else replace(each, in_units=max(0, each.in_units - 1))

    message = r"the units of sessions have \d+ records, the sessions have \d+"
    with pytest.raises(CountError, match=message):
        run_with(spark, tmp_path, monkeypatch, one_less)


def test_executors_with_different_hashes_are_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backstream.native.task_cuts.TASK_ROWS", 20)
    monkeypatch.setattr("backstream.native.task_cuts.MAX_READ_RATIO", 1_000)

    def of_another_version(each: TaskResult) -> TaskResult:
        return replace(each, hashed_by=f"DuckDB {each.number}", host=f"worker-{each.number}")

    with pytest.raises(ContractError, match="into two shares: DuckDB 0 on worker-0, DuckDB 1 on worker-1"):
        run_with(spark, tmp_path, monkeypatch, of_another_version)
