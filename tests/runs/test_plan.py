"""Test plans: their files, their hash, and their summary."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backstream.errors import LedgerError, PlanError
from backstream.eventtime.instants import DAY_MS
from backstream.runs.plan import ArrivalOrder, Chunk, InputFile, Mode, Plan, PlannedTable
from backstream.runs.plan_summary import PlanSummary

PLAN = Plan(
    dataset="clicks",
    definition={"name": "clicks", "quality": {"late_ratio": {"warn": 0.05, "fail": 0.25}}},
    definition_hash="d1",
    definition_path="clicks.toml",
    planned_by_version="0.1.0",
    mode=Mode.REPLAY,
    arrival_order=ArrivalOrder.RECORDED,
    since_ms=0,
    until_ms=172_800_000,
    clock_start_ms=5,
    clock_end_ms=172_800_123,
    home_location="/nowhere",
    inputs=(InputFile("/data/a.parquet", 10, 1_234, 0, 99, None, None),),
    chunks=(
        Chunk("0000", 0, 86_400_000, 90_000_000, (0,), 7),
        Chunk("0001", 86_400_000, 172_800_000, 176_400_000, (), 0),
    ),
    tables={"": PlannedTable("clicks", "/lake/clicks", (("page", "string", 1, False),), "window_start")},
    base_snapshots={"": None, "metrics": 42},
    triggered_by="cli",
    reason="café",
)


def plan_in(folder: Path) -> Plan:
    return replace(PLAN, home_location=str(folder))


def test_a_plan_is_read_back_unchanged(tmp_path: Path) -> None:
    plan = plan_in(tmp_path)

    file = plan.write()

    assert file == tmp_path / "runs" / "clicks" / plan.run_id / "plan.json"
    assert Plan.read(file) == plan
    assert Plan.read(file).run_id == plan.run_id


def test_equal_plans_have_the_same_file(tmp_path: Path) -> None:
    first = plan_in(tmp_path).write()
    content = first.read_bytes()

    assert plan_in(tmp_path).write() == first
    assert first.read_bytes() == content


def test_a_plan_is_written_without_a_remaining_draft(tmp_path: Path) -> None:
    file = plan_in(tmp_path).write()

    assert sorted(path.name for path in file.parent.iterdir()) == ["plan.json", "run.json"]


def test_the_hash_is_the_same_in_every_process() -> None:
    assert PLAN.plan_hash == "8a86ece2e66d"
    assert PLAN.run_id == "cli.8a86ece2e66d"


@pytest.mark.parametrize(
    "other",
    [
        replace(PLAN, mode=Mode.RECOMPUTE),
        replace(PLAN, until_ms=172_800_001),
        replace(PLAN, clock_end_ms=0),
        replace(PLAN, definition={"name": "clicks"}),
        replace(PLAN, inputs=(replace(PLAN.inputs[0], size_bytes=1_235),)),
        replace(PLAN, chunks=PLAN.chunks[:1]),
        replace(PLAN, base_snapshots={"": 1, "metrics": 42}),
        replace(PLAN, planned_by_version="0.1.1"),
        replace(PLAN, reason="because"),
    ],
)
def test_the_hash_depends_on_every_part(other: Plan) -> None:
    assert other.plan_hash != PLAN.plan_hash


def test_a_run_id_is_the_trigger_in_characters_that_every_file_system_allows() -> None:
    plan = replace(PLAN, triggered_by="manual__2013-02-01T00:00:00+00:00/x y")

    assert plan.run_id == f"manual__2013-02-01T00-00-00-00-00-x-y.{plan.plan_hash}"


def move_until(content: dict[str, Any]) -> None:
    content["until_ms"] += 86_400_000


def leave_out_a_file(content: dict[str, Any]) -> None:
    content["chunks"]["files"] = [["", 2]]


def add_a_key(content: dict[str, Any]) -> None:
    content["force"] = True


def remove_a_key(content: dict[str, Any]) -> None:
    del content["mode"]


@pytest.mark.parametrize("change", [move_until, leave_out_a_file, add_a_key, remove_a_key])
def test_a_plan_that_was_changed_by_hand_is_rejected(
    tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    file = plan_in(tmp_path).write()
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))

    with pytest.raises(PlanError) as refused:
        Plan.read(file)

    actual = str(refused.value).removeprefix("plan was changed after it was made: hash ")[:12]
    assert str(refused.value) == (
        f"plan was changed after it was made: hash {actual}, recorded {content['plan_hash']} ({file})"
    )
    assert actual != content["plan_hash"]


def test_a_plan_of_another_version_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text('{"plan_version": 2}')

    with pytest.raises(PlanError) as refused:
        Plan.read(file)

    assert str(refused.value) == f"plan version must be 9, got 2: create a new plan ({file})"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no plan at FILE"),
        ("plan", "plan at FILE is not JSON: Expecting value: line 1 column 1 (char 0)"),
        ("[]", "plan at FILE must be a JSON object, got list"),
    ],
)
def test_a_file_without_a_plan_is_rejected(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "plan.json"
    if text is not None:
        file.write_text(text)

    with pytest.raises(LedgerError) as refused:
        Plan.read(file)

    assert str(refused.value) == message.replace("FILE", str(file))


def test_the_summary_of_a_plan_is_written_beside_it(tmp_path: Path) -> None:
    plan = plan_in(tmp_path)

    plan.write()

    assert PlanSummary.read(plan.folder.summary) == PlanSummary(
        dataset="clicks",
        run_id=plan.run_id,
        plan_hash=plan.plan_hash,
        triggered_by="cli",
        reason="café",
        mode="replay",
        since_ms=0,
        until_ms=172_800_000,
        expected_events={"0000": 7, "0001": 0},
        staging=(f"/lake/clicks/data/{plan.run_id}",),
    )


def test_a_summary_of_another_version_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text('{"dataset": "clicks"}')

    with pytest.raises(LedgerError) as refused:
        PlanSummary.read(file)

    assert (
        str(refused.value) == f"summary of a plan at {file} was written by another version: run_id: Field required"
    )


def test_a_plan_of_thousands_of_chunks_and_a_hundred_files_is_small(tmp_path: Path) -> None:
    inputs = tuple(
        InputFile(f"/data/year=2013/part-{number:05}-of-a-hundred.parquet", 1_000_000, 2**30, 0, 1, 2, 3, 4)
        for number in range(100)
    )
    chunks = tuple(
        Chunk(f"{day:04}", day * DAY_MS, (day + 1) * DAY_MS, (day + 1) * DAY_MS + 1, files, 10_000 + day)
        for day in range(3_000)
        for files in [tuple(range(day // 30, min(day // 30 + 3, 100)))]
    )
    plan = replace(plan_in(tmp_path), inputs=inputs, chunks=chunks, until_ms=3_000 * DAY_MS)

    file = plan.write()

    assert Plan.read(file) == plan
    assert file.stat().st_size < 200_000


def test_a_chunk_is_found_by_its_id() -> None:
    assert PLAN.chunk("0001").start_ms == 86_400_000

    with pytest.raises(PlanError) as refused:
        PLAN.chunk("0002")
    assert str(refused.value) == f"no chunk '0002' in plan {PLAN.run_id}, which has 2"
