"""What spark-submit runs, where it says no before anything is read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.workflow.history import CLICKS, at, planned, write_clicks, write_definition

from backstream.jobs.replay import main
from backstream.runs.plan import Plan
from backstream.workflow.publish import create_run_tables


def plan_of_a_day(folder: Path) -> Plan:
    write_clicks(folder / "data/a.parquet", [(at("1 05:00"), at("1 05:01"), "A", 0, "home")])
    return planned(folder, write_definition(folder))


def test_a_job_without_a_plan_fails_with_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--plan", f"{tmp_path}/plan.json", "--chunk", "0000"])

    assert (status, capsys.readouterr().err) == (1, f"LedgerError: no plan at {tmp_path}/plan.json\n")


def test_a_job_refuses_a_plan_that_was_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_of_a_day(tmp_path)
    file = plan.folder.plan
    file.write_text(file.read_text().replace('"mode":"recompute"', '"mode":"replay"'))

    status = main(["--plan", str(file), "--chunk", "0000"])

    said = capsys.readouterr().err
    assert status == 3  # no retry heals it
    assert said.startswith("PlanError: plan was changed after it was made: hash ")
    assert said.endswith(f", recorded {plan.plan_hash} ({file})\n")


def test_a_job_refuses_a_chunk_that_is_not_in_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_of_a_day(tmp_path)

    status = main(["--plan", str(plan.folder.plan), "--chunk", "0000", "--chunk", "0001"])

    assert (status, capsys.readouterr().err) == (
        3,
        f"PlanError: no chunk '0001' in plan {plan.run_id}, which has 1\n",
    )


def test_a_job_whose_table_changed_since_the_plan_stages_nothing_and_is_not_tried_again(tmp_path: Path) -> None:
    plan = plan_of_a_day(tmp_path)
    create_run_tables(planned(tmp_path, write_definition(tmp_path, CLICKS + 'last = "max(seq)"\n')))
    write_definition(tmp_path)

    job = [sys.executable, "-m", "backstream.jobs.replay", "--plan", str(plan.folder.plan), "--chunk", "0000"]
    done = subprocess.run(job, capture_output=True, text=True, check=False)

    assert done.returncode == 3
    assert done.stderr[done.stderr.index("ContractError") :] == (
        "ContractError: table `clicks` was created or changed after this run was planned\n"
        "  record_count: planned as long, field 5, found long, field 6\n"
        "  run_id: planned as string, field 6, found string, field 7\n"
        "\n"
        "hint: plan the range again\n"
    )
    assert not plan.staging("").exists()
