"""Test the arrival index: each input file is read once, and the index has the right numbers."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.spark.histories import DAY_ONE_MS, Row, days, definition_of, random_history, write_history
from tests.spark.runs import replay_chunk

from backstream.chunks.arrival_index import extend_index
from backstream.chunks.stream_reader import NativeReader
from backstream.definition.loader import parse_definition
from backstream.errors import PlanError
from backstream.eventtime.instants import DAY_MS
from backstream.runs.home import Home
from backstream.runs.plan import Mode, Plan
from backstream.source.arrival_index import ArrivalIndex, BucketGrid, IndexFolder
from backstream.spark.tasks import SparkTasks
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run

pytestmark = pytest.mark.slow

WINDOW = {"kind": "sliding", "size": "150m", "slide": "1h", "offset": "7m"}


def history() -> list[Row]:
    return random_history(seed=23, rows=120)


def content(folder: Path) -> dict[str, Any]:
    return definition_of(folder / "data", window=WINDOW)


def planned(folder: Path, since: int, until: int) -> Plan:
    path, whole = folder / "events.toml", content(folder)
    sections = {name: value for name, value in whole.items() if isinstance(value, dict)}
    lines = [f'name = "{whole["name"]}"']
    for name, section in sections.items():
        lines += [f"[{name}]", *(f"{key} = {value!r}" for key, value in section.items())]
    path.write_text("\n".join(lines))
    span = days(since, until)
    home = Home(folder / "home")
    return plan_run(PlanRequest(path, span, mode=Mode.REPLAY, trigger="test", home=home))


def folder_of(folder: Path) -> IndexFolder:
    definition = parse_definition(content(folder), "test")
    window = definition.window.spec()
    assert not hasattr(window, "gap_ms")
    buckets = BucketGrid.from_window(window, definition.watermark.spec(), definition.lateness.allowed)
    return IndexFolder.from_source(folder / "home", definition.name, definition.read_by, buckets)


def reader(spark: SparkSession, plan: Plan) -> NativeReader:
    return NativeReader(SparkTasks(spark), parse_definition(plan.definition, "test"), plan.columns)


def paths_in(batch: Path) -> set[str]:
    return {Path(path).parent.name for path in pq.read_table(batch)["path"].to_pylist()}


def test_a_file_is_read_once_and_a_new_one_when_it_is_there(spark: SparkSession, tmp_path: Path) -> None:
    first, later = history(), [row for row in history() if row[1] >= DAY_ONE_MS + 2 * DAY_MS]
    write_history(tmp_path / "data", [row for row in first if row not in later])
    folder = folder_of(tmp_path)

    for chunk in (plan := planned(tmp_path, 0, 2)).chunks:
        replay_chunk(spark, plan, chunk)
    (batch,) = folder.batches()
    write_history(tmp_path / "data", first)
    plan = planned(tmp_path, 0, 3)
    replay_chunk(spark, plan, plan.chunks[-1])

    (fresh,) = set(folder.batches()) - {batch}
    days_of = [f"arrival_day=2024-03-0{day}" for day in (1, 2, 3)]
    # Both earlier files were written anew, so they are other files now; in the index they are there twice.
    assert (paths_in(batch), paths_in(fresh)) == (set(days_of[:2]), set(days_of))
    assert sum(ArrivalIndex.from_folder(folder, plan.inputs).rows["events"].to_pylist()) == len(first)


def test_rows_of_the_index_are_in_the_buckets_of_the_grid(spark: SparkSession, tmp_path: Path) -> None:
    write_history(tmp_path / "data", history())
    plan, folder = planned(tmp_path, 0, 1), folder_of(tmp_path)

    rows = extend_index(plan.inputs, folder, reader(spark, plan).read_index).rows.to_pylist()

    grid = folder.grid
    assert sum(row["events"] for row in rows) == len(history())
    for row in rows:
        for event_ms in (row["first_event_ms"], row["last_event_ms"]):
            number, within_ms = divmod(event_ms - grid.first_cut_ms, grid.step_ms)
            assert row["event_bucket"] == 2 * number + (within_ms >= grid.second_cut_ms)
        for arrival_ms in (row["first_arrival_ms"], row["last_arrival_ms"]):
            assert row["arrival_bucket"] == arrival_ms // grid.arrival_width_ms


@pytest.mark.parametrize("is_copied", [False, True])
def test_what_a_file_holds_is_known_also_where_another_is_as_large(
    spark: SparkSession, tmp_path: Path, *, is_copied: bool
) -> None:
    write_history(tmp_path / "data", history())
    if is_copied:
        first = min((tmp_path / "data").rglob("*.parquet"))
        shutil.copy(first, first.with_name("copy.parquet"))
    plan, folder = planned(tmp_path, 0, 1), folder_of(tmp_path)
    assert (len({file.size_bytes for file in plan.inputs}) < len(plan.inputs)) == is_copied

    result = extend_index(plan.inputs, folder, reader(spark, plan).read_index)

    held = result.rows.group_by("path").aggregate([("events", "sum")]).to_pylist()
    assert {row["path"]: row["events_sum"] for row in held} == {file.path: file.rows for file in plan.inputs}


@pytest.mark.parametrize("is_as_large", [False, True])
def test_a_file_that_changed_since_it_was_planned_is_not_taken_for_the_old_one(
    spark: SparkSession, tmp_path: Path, *, is_as_large: bool
) -> None:
    write_history(tmp_path / "data", history())
    plan, folder = planned(tmp_path, 0, 1), folder_of(tmp_path)
    changed = Path(plan.inputs[0].path)
    if is_as_large:
        os.utime(changed, (1, 1))
    else:
        shutil.copy(plan.inputs[1].path, changed)

    with pytest.raises(PlanError) as refused:
        extend_index(plan.inputs, folder, reader(spark, plan).read_index)
    actual, _, hint = str(refused.value).partition("\n\n")
    what = f"cannot extend the arrival index: 1 input file of {len(plan.inputs)} cannot be read as planned"
    assert actual.startswith(f"{what}\n  changed: {changed} ")
    assert hint == "hint: restore the files, or create a new plan for the range"
    assert folder.batches() == []


def test_a_plan_takes_its_files_and_expected_events_from_the_index(spark: SparkSession, tmp_path: Path) -> None:
    rows = [row for row in history() if row[1] - row[0] < DAY_MS]
    write_history(tmp_path / "data", rows)
    before = planned(tmp_path, 2, 3)
    replay_chunk(spark, before, before.chunks[0])

    (chunk,) = planned(tmp_path, 2, 3).chunks

    first_ms = DAY_ONE_MS + 2 * DAY_MS
    inside = [row for row in rows if first_ms <= row[0] < chunk.halo_end_ms]
    read = {before.inputs[number].path for number in chunk.files}
    assert len(read) < len(before.inputs)
    assert {f"arrival_day=2024-03-{1 + (row[1] - DAY_ONE_MS) // DAY_MS:02}" for row in inside} == {
        Path(path).parent.name for path in read
    }
    # Whole buckets are counted, and there are two per slide.
    assert len(inside) <= chunk.expected_events <= len(inside) + 10
