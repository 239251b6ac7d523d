"""DAGs and task groups that a team makes in its own DAG file, with its own options and project."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.workflow.history import at, write_clicks, write_definition

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a definition in a subfolder, and recorded events of two days."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "backstream.toml").write_text('home = "state"\n')
    (folder / "eu").mkdir()
    clicks = [(at(f"{day} 05:00"), at(f"{day} 05:01"), "A", day, "home") for day in (1, 2, 8)]
    write_clicks(folder / "eu" / "data" / "a.parquet", clicks)
    write_definition(folder / "eu")
    return folder


@pytest.fixture(scope="module")
def made(ask: Ask, project: Path) -> dict[str, Any]:
    """Return the DAGs and errors of a team's own DAG file."""
    found: dict[str, Any] = ask("own_dags", project)
    return found


def test_a_team_chooses_kinds_tags_and_arguments_of_its_dags(made: dict[str, Any]) -> None:
    assert made["ids"] == ["backfill_clicks"]
    assert made["dag"] == [["backfill", "backstream", "clicks", "sales"], 2]


def test_every_task_has_the_owner_queue_priority_and_executor_of_the_team(made: dict[str, Any]) -> None:
    assert sorted(made["tasks"]) == ["approve", "audit", "plan", "publish", "replay", "report", "restate"]
    assert {tuple(options) for options in made["tasks"].values()} == {("sales", "big", 7, "LocalExecutor")}


def test_no_task_has_a_copy_of_the_form_which_would_cost_most_of_the_parsing(made: dict[str, Any]) -> None:
    assert made["form"] == 11
    assert set(made["copied"]) == {0}


def test_a_task_of_a_backfill_waits_behind_the_same_task_of_a_scheduled_run(made: dict[str, Any]) -> None:
    assert made["weights"] == {"backfill": 0, "manual": 1, "restate": 6, "scheduled": 6}


def test_days_of_a_range_are_partitions_in_airflows_format(made: dict[str, Any]) -> None:
    assert made["outlets"] == ["clicks", "clicks.days"]
    assert made["partitions"] == ["2024-02-29T00:00:00", "2024-03-01T00:00:00"]


def test_assets_of_the_sources_trigger_the_restatement(made: dict[str, Any]) -> None:
    assert made["inputs"] == [["AssetNameRef", "raw_clicks"], ["AssetUriRef", "s3://lake/clicks"]]


def test_spark_jobs_use_the_pool_and_the_connection_of_the_team(made: dict[str, Any]) -> None:
    assert made["replay"] == ["sales", "sales_spark"]


def test_a_task_group_has_the_tasks_of_a_run_and_a_range_from_templates(made: dict[str, Any]) -> None:
    names = "approve", "audit", "plan", "publish", "replay", "report"
    assert made["group"] == [f"clicks.{name}" for name in names]
    assert made["range"] == ["{{ ds }}T00:00:00Z", "{{ macros.ds_add(ds, 7) }}T00:00:00Z", "weekly"]


def test_a_run_in_a_task_group_is_planned_in_the_project_of_its_definition(
    made: dict[str, Any], project: Path
) -> None:
    trigger, *others = made["planned"]
    assert re.fullmatch(r"one\.weekly\.clicks\.[0-9a-f]{8}", trigger)
    assert others == [
        "2024-03-01T00:00Z to 2024-03-08T00:00Z",
        "weekly",
        str(project / "state"),
    ]


def test_a_mistake_in_a_dag_file_is_an_error_in_one_sentence(made: dict[str, Any], project: Path) -> None:
    assert made["refused"] == [
        ["SpecError", "no package 'no.such_package' with definitions: No module named 'no'"],
        ["SpecError", f"no folder of definitions at {project}/none"],
        ["SpecError", f"definitions come from a folder or a package, got both: {project} and json"],
        ["SpecError", "kinds must be of backfill, reprocess, restate, keep_batches, got 'reproces'"],
        [
            "SpecError",
            (
                "mod is not a parameter of the task group g, got 'replay'\n"
                "  there are: since, until, time_zone, mode, delay, idle_timeout, allowed_lateness, chunk,"
                " approval,"
                " max_spark_jobs, allow_unsealed, gate_override, replan, reason"
            ),
        ],
    ]


def test_each_feature_that_needs_a_later_airflow_has_a_message(made: dict[str, Any]) -> None:
    assert made["here"] == []
    assert made["switched off"] == [
        "backfill.deadline sends an alert: needs Airflow 3.2",
        "the task restate is skipped while its DAG is paused: needs Airflow 3.2; below, it waits",
        "each published day is a partition of the asset <name>.days: needs Airflow 3.3",
        "a canceled run ends its driver on a standalone cluster: needs Airflow 3.3",
    ]
