"""A definition with the checkpoint of a job has a DAG that copies its batches before Spark removes them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.structured_streaming.recorded import JOBS

from backstream.definition.loader import load_definition, resolve_raw_paths
from backstream.runs.home import Home
from backstream.source.raw_files import list_raw_files
from backstream.workflow.inputs.job_batches import JobBatches, keep_job_batches

CHECKOUT = Path(__file__).parents[2]
ORDERS = """\
name = "NAME"

[source]
format = "json"
path = "FOLDER/input/orders"
event_time = "ts_us"
event_time_unit = "us"
key = ["key"]

[source.columns]
ts_us = "bigint"
key = "string"

[window]
kind = "tumbling"
size = "1h"

[watermark]
strategy = "structured_streaming"
LOGS

[aggregates]
orders = "count(*)"
"""

Ask = Callable[..., Any]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A folder with the recorded job `orders`."""
    return Path(shutil.copytree(JOBS / "orders", tmp_path / "job"))


def write_orders(file: Path, job: Path, logs: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    text = ORDERS.replace("NAME", file.stem).replace("LOGS", logs.replace("JOB", str(job)))
    file.write_text(text.replace("FOLDER", str(job)))
    return file


def remove_batches(job: Path, numbers: Sequence[int]) -> None:
    """Remove the files of some batches, as Spark does."""
    for number in numbers:
        for folder in ("offsets", "commits"):
            (job / "checkpoint" / folder / str(number)).unlink()


def numbers_in_run(definition: Path, home: Home) -> list[int]:
    """Return the numbers of the batches that a run knows."""
    resolved = resolve_raw_paths(load_definition(definition), home)
    job = JobBatches.load(resolved, home, list_raw_files(resolved.source, "here"), "here")
    return job.table.number.tolist() if job else []


def test_each_definition_with_a_checkpoint_has_a_dag_that_keeps_its_batches(
    job: Path, tmp_path: Path, ask: Ask
) -> None:
    write_orders(tmp_path / "definitions/orders.toml", job, 'checkpoint = "JOB/checkpoint"')
    write_orders(tmp_path / "definitions/reported.toml", job, 'progress = "JOB/progress.jsonl"')

    (found,) = ask("dags", CHECKOUT / "dags", tmp_path / "definitions")

    assert found["errors"] == {}
    assert [name for name in found["dags"] if name.startswith("keep_batches")] == ["keep_batches_orders"]
    dag = found["dags"]["keep_batches_orders"]
    assert dag["chain"] == {"keep_batches": []}
    assert dag["schedule"][1:] == ["0 * * * *", "UTC"]
    assert (dag["catchup"], dag["max_active_runs"], dag["paused"]) == (False, 1, False)
    assert dag["tags"] == ["backstream", "keep_batches", "orders"]


def test_the_task_keeps_new_batches_and_refuses_logs_that_are_none(job: Path, tmp_path: Path, ask: Ask) -> None:
    orders = write_orders(tmp_path / "orders.toml", job, 'checkpoint = "JOB/checkpoint"')
    wrong = write_orders(tmp_path / "wrong.toml", job, 'checkpoint = "JOB/input"')

    first, second, refused = ask("keeps", tmp_path / "home", orders, orders, wrong)

    kept, lost = "13 batches from 25 to 37", "25 batches from 0 to 24: Spark had removed what it wrote down"
    assert first == [f"{job}/checkpoint: kept  {kept}\nlost  {lost}"]
    assert second == [f"{job}/checkpoint: no new batch"]
    assert refused == [
        "AirflowFailException",
        f"no checkpoint of Structured Streaming: there is no folder `offsets` with batches ({job}/input)",
    ]


def test_batches_that_end_between_two_runs_are_kept_although_spark_removes_others(
    job: Path, tmp_path: Path
) -> None:
    definition = write_orders(tmp_path / "orders.toml", job, 'checkpoint = "JOB/checkpoint"')
    home, checkpoint = Home(tmp_path / "home"), f"{job}/checkpoint"
    later = {}
    for name in ("offsets/36", "commits/36", "offsets/37", "commits/37", "commits/35"):
        file = job / "checkpoint" / name
        later[file] = file.read_bytes()
        file.unlink()

    first = keep_job_batches(load_definition(definition), home)  # batch 35 has not ended yet
    for file, content in later.items():
        file.write_bytes(content)
    remove_batches(job, range(25, 34))
    second = keep_job_batches(load_definition(definition), home)

    assert [*first[checkpoint].new] == [*range(25, 35)]
    assert [*second[checkpoint].new] == [35, 36, 37]
    assert second[checkpoint].lost == []
    assert numbers_in_run(definition, home) == [*range(25, 38)]


def test_batches_that_spark_has_removed_between_two_runs_are_named(job: Path, tmp_path: Path) -> None:
    definition = write_orders(tmp_path / "orders.toml", job, 'checkpoint = "JOB/checkpoint"')
    home, checkpoint = Home(tmp_path / "home"), f"{job}/checkpoint"
    shutil.copytree(job / "checkpoint", tmp_path / "all")
    remove_batches(job, range(30, 38))
    keep_job_batches(load_definition(definition), home)
    shutil.rmtree(job / "checkpoint")
    shutil.copytree(tmp_path / "all", job / "checkpoint")
    remove_batches(job, range(25, 33))

    kept = keep_job_batches(load_definition(definition), home)

    assert ([*kept[checkpoint].new], kept[checkpoint].lost) == ([33, 34, 35, 36, 37], [range(30, 33)])


def test_a_folder_of_kept_batches_needs_no_copy(job: Path, tmp_path: Path) -> None:
    logs = 'checkpoint = ["JOB/kept", "JOB/checkpoint"]'
    definition = write_orders(tmp_path / "orders.toml", job, logs)
    (job / "kept").mkdir()
    (job / "kept/batches-000000000000-000000000000.jsonl").write_text("")

    kept = keep_job_batches(load_definition(definition), Home(tmp_path / "home"))

    assert list(kept) == [f"{job}/checkpoint"]
