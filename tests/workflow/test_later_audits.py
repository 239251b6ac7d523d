"""Judge published runs again, with a suite that changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.workflow.conftest import LENIENT
from tests.workflow.history import CLICKS, at, planned, write_clicks, write_definition
from tests.workflow.publishing import stage_counts
from typer.testing import CliRunner, Result

from backstream.cli import app
from backstream.runs.plan import Plan
from backstream.variables import HOME_VARIABLE
from backstream.workflow.audit import audit_run
from backstream.workflow.publish import publish_run

CLICKED = [
    (at("1 05:00"), at("1 05:01"), "A", 0, "home"),
    (at("1 06:00"), at("1 06:01"), "A", 1, "home"),
]


def judge_with(folder: Path, column: str, **limits: int) -> None:
    """Write a suite that limits a number of a run."""
    check: dict[str, Any] = {
        "type": "expect_column_values_to_be_between",
        "description": f"limits of {column}",
        "severity": "critical",
        "kwargs": {"column": column} | limits,
        "meta": {"frame": "run"},
    }
    (folder / "own.json").write_text(json.dumps(LENIENT | {"name": "own", "expectations": [check]}))


def audit(run: str) -> Result:
    return CliRunner(env={"COLUMNS": "250", "NO_COLOR": "1"}).invoke(app, ["audit", run])


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Return the plan of a run that was audited and staged."""
    monkeypatch.setenv("BACKSTREAM_EXPECTATIONS", str(tmp_path))
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    judge_with(tmp_path, "rows", min_value=1)
    write_clicks(tmp_path / "data/a.parquet", CLICKED)
    definition = write_definition(tmp_path, CLICKS + '\n[quality]\nsuite = "own"\n')
    plan = planned(tmp_path, definition)
    stage_counts(plan, CLICKED)
    audit_run(plan)
    return plan


def test_only_a_published_run_is_judged_again(plan: Plan) -> None:
    result = audit(plan.run_id)

    assert result.exit_code == 1
    assert f"only a published run can be judged again: run {plan.run_id} is not published" in result.stderr


def test_with_the_same_suite_there_is_nothing_to_do(plan: Plan) -> None:
    publish_run(plan)

    result = audit("clicks")

    assert (result.exit_code, plan.folder.later_audit.exists()) == (0, False)
    assert result.stdout == f"run {plan.run_id} is published with the verdict pass: there is nothing to do\n"


def test_the_command_judges_a_published_run_with_another_suite(plan: Plan, tmp_path: Path) -> None:
    publish_run(plan)
    judge_with(tmp_path, "rows", min_value=3)

    result = audit("clicks")

    assert result.exit_code == 1
    assert "judged again on 20" in result.stdout
    assert 'failed the check "limits of rows"' in result.stdout
    status = CliRunner(env={"COLUMNS": "500"}).invoke(app, ["status", "clicks"]).stdout
    assert "published  pass" in status
    assert "judged again on 20" in status


def test_other_limits_count_as_other_expectations(plan: Plan) -> None:
    publish_run(plan)
    definition = Path(plan.definition_path)
    definition.write_text(definition.read_text() + "rows_ratio = 0.7\n")

    assert "pass, with expectations that changed" in audit("clicks").stdout


def test_a_run_is_judged_by_the_rows_that_it_had_replaced(plan: Plan, tmp_path: Path) -> None:
    publish_run(plan)
    judge_with(tmp_path, "replaced_rows", max_value=0)

    result = audit(plan.run_id)

    assert (result.exit_code, "pass, with" in result.stdout) == (0, True)


def test_a_suite_that_is_gone_is_an_error_and_the_run_stays(plan: Plan, tmp_path: Path) -> None:
    publish_run(plan)
    (tmp_path / "own.json").unlink()

    result = audit(plan.run_id)

    assert (result.exit_code, plan.folder.later_audit.exists()) == (1, False)
    assert "own" in result.stderr
