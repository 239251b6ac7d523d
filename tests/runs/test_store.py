"""Test how runs are found, listed, and loaded."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.runs.test_plan import plan_in

from backstream.errors import PlanError, SpecError
from backstream.runs.home import Home
from backstream.runs.plan import Plan
from backstream.runs.store import Runs


def write(tmp_path: Path, at_s: int, **changes: object) -> Plan:
    plan = replace(plan_in(tmp_path), **changes)  # type: ignore[arg-type]
    os.utime(plan.write(), (at_s, at_s))
    return plan


def test_runs_of_a_dataset_are_listed_by_the_time_of_their_plans(tmp_path: Path) -> None:
    old, new, other = (
        write(tmp_path, at_s, dataset=dataset, reason=str(at_s))
        for at_s, dataset in ((1, "clicks"), (3, "clicks"), (2, "visits"))
    )
    runs = Runs(Home(tmp_path))
    assert [folder.path.name for folder in runs.of_dataset("clicks")] == [new.run_id, old.run_id]
    assert [folder.path.name for folder in runs.of_dataset()] == [new.run_id, other.run_id, old.run_id]
    assert runs.of_dataset("unknown") == []


def test_a_folder_without_a_plan_is_no_run(tmp_path: Path) -> None:
    plan = write(tmp_path, 1)
    plan.folder.plan.unlink()
    runs = Runs(Home(tmp_path))
    assert (runs.of_dataset("clicks"), runs.find(plan.run_id)) == ([], None)


def test_a_trigger_has_its_own_runs_only(tmp_path: Path) -> None:
    first = write(tmp_path, 1, triggered_by="a b")
    second = write(tmp_path, 2, triggered_by="a-b")
    longer = write(tmp_path, 3, triggered_by="a-b.c")
    assert first.run_id.rpartition(".")[0] == second.run_id.rpartition(".")[0]
    runs = Runs(Home(tmp_path))
    found = {trigger: [*runs.of_trigger("clicks", trigger)] for trigger in ("a b", "a-b", "a-b.c", "a")}
    assert found == {"a b": [first.folder], "a-b": [second.folder], "a-b.c": [longer.folder], "a": []}


@pytest.mark.parametrize("name", ["", ".", "..", "*", "clicks/../clicks", "/etc"])
def test_a_text_that_is_no_run_id_finds_no_run(tmp_path: Path, name: str) -> None:
    plan = write(tmp_path, 1)
    (plan.folder.path.parent / "plan.json").write_text("{}")
    runs = Runs(Home(tmp_path))
    assert runs.find(plan.run_id) == plan.folder
    assert runs.find(name) is None
    with pytest.raises(SpecError, match=r"which has 1 runs"):
        runs.plan_of_id(name)


def test_a_plan_of_another_version_is_an_error_only_if_it_is_needed(tmp_path: Path) -> None:
    plan = write(tmp_path, 1)
    runs = Runs(Home(tmp_path))
    assert runs.plan("clicks", plan.run_id) == runs.plan_or_none("clicks", plan.run_id) == plan
    plan.folder.plan.write_text('{"plan_version": 1}')
    assert runs.plan_or_none("clicks", plan.run_id) is None
    with pytest.raises(PlanError, match="plan version must be"):
        runs.plan("clicks", plan.run_id)
