"""Check that a retry runs its plan, or reports the reason why it cannot."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.workflow.history import CLICKS, at, planned, write_clicks, write_definition

from backstream.definition.loader import require_unchanged_definition
from backstream.errors import PlanError
from backstream.eventtime.instants import DAY_MS, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.jobs.replay import main
from backstream.runs.home import Home
from backstream.runs.manifest import Manifest, list_unfinished_chunks, version_warning
from backstream.runs.plan import Mode, Plan
from backstream.runs.results import Audit, Verdict
from backstream.source.input_versions import require_unchanged_inputs
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
from backstream.workflow.resume import find_interrupted_run

SINCE_MS = instant_ms("2024-03-01", "since")
THREE_DAYS = Interval(SINCE_MS, SINCE_MS + 3 * DAY_MS)


def write_day(folder: Path, day: int, name: str = "") -> Path:
    file = folder / "data" / f"{name or day}.parquet"
    write_clicks(file, [(at(f"{day} 05:00"), at(f"{day} 05:01"), "A", day, "home")])
    return file


def three_days(folder: Path) -> Plan:
    """Plan three days with one file each, as the command line does."""
    for day in (1, 2, 3):
        write_day(folder, day)
    return planned_by_cli(folder, write_definition(folder))


def planned_by_cli(folder: Path, definition: Path, mode: Mode | None = None) -> Plan:
    home = Home(folder / "home")
    return plan_run(PlanRequest(definition, THREE_DAYS, mode=mode, trigger="cli", home=home))


def finish(plan: Plan, number: int) -> None:
    """Write the manifest of a chunk."""
    chunk_id = plan.chunks[number].chunk_id
    Manifest(plan.run_id, chunk_id, "0", 0, {}, {}).write(plan.folder.manifest(chunk_id))


def find_notes(folder: Path, mode: Mode | None = None) -> tuple[str, ...] | None:
    """Return the notes about the interrupted run; None if there is none."""
    resumable = find_interrupted_run(folder / "clicks.toml", THREE_DAYS, mode, Home(folder / "home"))
    return resumable.notes if resumable else None


def test_a_plan_with_unchanged_files_can_run_after_files_were_added(tmp_path: Path) -> None:
    plan = three_days(tmp_path)
    write_day(tmp_path, 2, "late")

    require_unchanged_inputs(plan)
    require_unchanged_definition(plan)


def test_at_most_ten_removed_files_are_listed(tmp_path: Path) -> None:
    for number in range(14):
        write_day(tmp_path, 1, f"f{number:02}")
    plan = planned(tmp_path, write_definition(tmp_path))
    for number in range(1, 13):
        (tmp_path / "data" / f"f{number:02}.parquet").unlink()

    with pytest.raises(PlanError) as caught:
        require_unchanged_inputs(plan)

    listed = "".join(f"\n  removed: {tmp_path}/data/f{number:02}.parquet" for number in range(1, 11))
    assert str(caught.value) == (
        f"cannot run {plan.run_id}: 12 input files of 14 cannot be read as planned{listed}\n  and 2 more"
        "\n\nhint: restore the files, or create a new plan for the range"
    )


def test_a_rewritten_file_is_listed_with_its_changes(tmp_path: Path) -> None:
    plan = three_days(tmp_path)
    first, second = (tmp_path / "data" / f"{day}.parquet" for day in (1, 2))
    with first.open("ab") as file:
        file.write(b"12345")
    os.utime(second, ns=(0, 86_400_000_000_000))
    size = plan.inputs[0].size_bytes

    with pytest.raises(PlanError) as caught:
        require_unchanged_inputs(replace(plan, inputs=(plan.inputs[0], replace(plan.inputs[1], modified_ms=0))))

    _, *facts = str(caught.value).partition("\n\n")[0].splitlines()
    assert facts == [
        f"  changed: {first} had {size:,} bytes, has {size + 5:,}",
        f"  changed: {second} was written 1970-01-01T00:00Z, and again 1970-01-02T00:00Z",
    ]


def test_a_changed_definition_is_refused_with_each_changed_value(tmp_path: Path) -> None:
    plan = three_days(tmp_path)
    write_definition(tmp_path, CLICKS.replace("[aggregates]", '[aggregates]\npages = "max(page)"'), size='"2h"')

    with pytest.raises(PlanError) as caught:
        require_unchanged_definition(plan)

    assert str(caught.value) == (
        f"cannot run {plan.run_id}: the definition changed since it was planned ({tmp_path}/clicks.toml)"
        '\n  aggregates.pages: absent -> "max(page)"'
        '\n  window.size: "1h" -> "2h"'
        "\n\nhint: create a new plan for the range, or undo the change"
    )


def test_a_reformatted_definition_is_unchanged(tmp_path: Path) -> None:
    plan = three_days(tmp_path)
    write_definition(tmp_path, "# clicks\n" + CLICKS.replace('"1h"', '"60m"').replace("{folder}", "{folder}/."))

    require_unchanged_definition(plan)


def test_a_plan_runs_without_its_definition_file(tmp_path: Path) -> None:
    plan = three_days(tmp_path)
    (tmp_path / "clicks.toml").unlink()

    require_unchanged_definition(plan)


def test_a_retried_job_fails_without_a_retry_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = three_days(tmp_path)
    (tmp_path / "data/3.parquet").unlink()

    status = main(["--plan", str(plan.folder.plan), "--chunk", "0000"])

    assert status == 3  # no retry heals it
    assert capsys.readouterr().err.splitlines()[:2] == [
        f"PlanError: cannot run {plan.run_id}: 1 input file of 3 cannot be read as planned",
        f"  removed: {tmp_path}/data/3.parquet",
    ]

    write_definition(tmp_path, size='"2h"')
    status = main(["--plan", str(plan.folder.plan), "--chunk", "0000"])

    assert status == 3
    assert '  window.size: "1h" -> "2h"' in capsys.readouterr().err.splitlines()


def test_a_retry_with_another_version_is_recorded(tmp_path: Path) -> None:
    plan = replace(three_days(tmp_path), planned_by_version="0.0.9")

    assert version_warning(plan, "0.0.9") is None
    assert version_warning(plan, "0.1.0") == (
        f"plan {plan.run_id} was created by backstream 0.0.9; this is backstream 0.1.0"
    )


def test_a_run_is_resumed_with_its_own_plan_after_files_were_added(tmp_path: Path) -> None:
    plan = three_days(tmp_path)
    finish(plan, 0)
    write_day(tmp_path, 2, "late")

    resumable = find_interrupted_run(tmp_path / "clicks.toml", THREE_DAYS, None, Home(tmp_path / "home"))

    assert resumable is not None
    assert (resumable.plan.run_id, list_unfinished_chunks(resumable.plan)) == (plan.run_id, ["0001", "0002"])
    assert resumable.notes == (
        f"resuming the interrupted run {plan.run_id}: 1 of 3 chunks are finished",
        "files that came after the plan are not read: 1 file, 1 record; replan to read them (--replan)",
    )


def test_a_run_without_a_finished_chunk_is_not_resumed(tmp_path: Path) -> None:
    three_days(tmp_path)

    assert find_notes(tmp_path) is None


def test_another_range_or_mode_is_another_run(tmp_path: Path) -> None:
    finish(three_days(tmp_path), 0)
    two_days = Interval(THREE_DAYS.start_ms, THREE_DAYS.end_ms - DAY_MS)

    assert find_notes(tmp_path, Mode.REPLAY) is None
    assert find_interrupted_run(tmp_path / "clicks.toml", two_days, None, Home(tmp_path / "home")) is None
    assert find_notes(tmp_path, Mode.RECOMPUTE) is not None


@pytest.mark.parametrize(("verdict", "is_resumable"), [(Verdict.WARN, True), (Verdict.FAIL, False)])
def test_a_run_that_the_gate_refused_has_ended(tmp_path: Path, verdict: Verdict, *, is_resumable: bool) -> None:
    plan = three_days(tmp_path)
    for number in range(3):
        finish(plan, number)
    Audit(plan.run_id, "suite", verdict, "", ()).write(plan.folder.audit_result)

    assert (find_notes(tmp_path) is not None) is is_resumable


def test_an_interrupted_run_cannot_be_resumed_with_a_changed_definition(tmp_path: Path) -> None:
    plan = three_days(tmp_path)
    finish(plan, 0)
    write_definition(tmp_path, size='"2h"')

    with pytest.raises(PlanError) as caught:
        find_notes(tmp_path)

    assert str(caught.value) == (
        f"cannot run {plan.run_id}: the definition changed since it was planned ({tmp_path}/clicks.toml)"
        '\n  window.size: "1h" -> "2h"'
        "\n  1 of 3 chunks are finished"
        "\n\nhint: use --replan to create a new plan; the interrupted run is kept"
    )


def test_a_run_with_finished_chunks_is_resumed_without_its_input_files(tmp_path: Path) -> None:
    plan = three_days(tmp_path)
    for number in range(3):
        finish(plan, number)
    shutil.rmtree(tmp_path / "data")
    write_day(tmp_path, 4)

    assert find_notes(tmp_path) is not None
