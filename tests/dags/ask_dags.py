"""Questions about the DAGs of a folder, and about the runs that they start."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.dags.answers import heavy, raised


def dags(folder: str, *definitions: str) -> list[dict[str, Any]]:
    """Return the DAGs of a folder for each folder of definitions, with the heavy modules that parsing imported."""
    from airflow.dag_processing.dagbag import DagBag

    found = []
    for each in definitions:
        os.environ["BACKSTREAM_DEFINITIONS"] = each
        bag = DagBag(dag_folder=folder)
        told = {
            "errors": bag.import_errors,
            "warnings": {path: list(warnings) for path, warnings in bag.captured_warnings.items()},
            "dags": {dag_id: _told(dag) for dag_id, dag in bag.dags.items()},
            "heavy": heavy(),
        }
        found.append(told)
    return found


def _told(dag: Any) -> dict[str, Any]:
    return {
        "tags": sorted(dag.tags),
        "catchup": dag.catchup,
        "max_active_runs": dag.max_active_runs,
        "schedule": [type(dag.timetable).__name__, *_cron(dag.timetable)],
        "params": {name: dag.params.get_param(name).schema for name in dag.params},
        "defaults": dag.params.dump(),
        "first_and_last": [each and each.isoformat() for each in (dag.start_date, dag.end_date)],
        "chain": {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks},
        "outlets": {task.task_id: [asset.name for asset in task.outlets] for task in dag.tasks if task.outlets},
        "deadline": _deadline(dag),
        "sections": {name: dag.params.get_param(name).schema.get("section") for name in dag.params},
        "retries": {task.task_id: task.retries for task in dag.tasks},
        "paused": dag.is_paused_upon_creation,
        "pools": {task.task_id: task.pool for task in dag.tasks},
        "docs": {task.task_id: task.doc_md for task in dag.tasks},
        "mapped": [task.task_id for task in dag.tasks if task.is_mapped],
    }


def _cron(timetable: Any) -> list[str]:
    return [timetable.expression, str(timetable.timezone)] if hasattr(timetable, "expression") else []


def _deadline(dag: Any) -> list[str] | None:
    if not dag.deadline:
        return None
    (alert,) = dag.deadline
    return [alert.reference.reference_name, str(alert.interval), alert.callback.path]


def parse_s(folder: str, *definitions: str) -> list[float]:
    """Return the seconds of processor time to parse a folder of DAG files, for each folder of definitions."""
    from time import process_time

    from airflow.dag_processing.dagbag import DagBag

    found = []
    for each in definitions:
        os.environ["BACKSTREAM_DEFINITIONS"] = each
        begin = process_time()
        DagBag(dag_folder=folder)
        found.append(process_time() - begin)
    return found


def own_dags(folder: str) -> dict[str, Any]:
    """Return the options of DAGs and tasks in a team's DAG file, its task group, and its errors."""
    from airflow.sdk import DAG

    from backstream.airflow import BackfillTaskGroup, backfill_dags
    from backstream.orchestration.airflow_versions import list_switched_off

    options = {"owner": "sales", "queue": "big", "priority_weight": 7, "executor": "LocalExecutor"}
    made = backfill_dags(
        folder,
        kinds=["backfill"],
        pool="sales",
        spark_connection="sales_spark",
        default_args=options,
        tags=["sales"],
        max_active_runs=2,
    )
    dag = made["backfill_clicks"]
    path = str(Path(folder) / "eu" / "clicks.toml")
    with DAG("weekly", schedule=None) as weekly:
        BackfillTaskGroup(
            "clicks",
            path,
            since="{{ ds }}T00:00:00Z",
            until="{{ macros.ds_add(ds, 7) }}T00:00:00Z",
            run_params={"reason": "weekly"},
            pool="sales",
        )
    context: dict[str, Any] = {"dag": weekly, "run_id": "one", "params": {}, "dag_run": SimpleNamespace()}
    request = vars(weekly.get_task("clicks.plan"))["op_args"][0]
    filled = request | {"since": "2024-03-01T00:00:00Z", "until": "2024-03-08T00:00:00Z"}
    return {
        "ids": sorted(made),
        "dag": [sorted(dag.tags), dag.max_active_runs],
        "tasks": {task.task_id: [getattr(task, name) for name in options] for task in dag.tasks},
        "replay": [dag.get_task("replay").pool, _partial(dag.get_task("replay"))["conn_id"]],
        "copied": [len(task.params) for task in dag.tasks],
        "form": len(dag.params),
        "outlets": [asset.name for asset in dag.get_task("publish").outlets],
        **_assets(path),
        "weights": _weights(weekly, "clicks.replay"),
        "group": sorted(weekly.task_ids),
        "range": [request["since"], request["until"], request["reason"]],
        "planned": _planned_in_group(path, filled, context),
        "refused": [
            raised(lambda: backfill_dags(package="no.such_package")),
            raised(lambda: backfill_dags(f"{folder}/none")),
            raised(lambda: backfill_dags(folder, package="json")),
            raised(lambda: backfill_dags(folder, kinds=["reproces"])),
            raised(lambda: BackfillTaskGroup("g", path, run_params={"mod": "replay"})),
        ],
        "switched off": list_switched_off((3, 1)),
        "here": list_switched_off((3, 3)),
    }


def keeps(home: str, *definitions: str) -> list[list[str]]:
    """Return the result, or the error, of the task that keeps the batches of a job, for each definition."""
    from backstream.orchestration.tasks import execute_keep_batches

    os.environ["BACKSTREAM_HOME"] = home
    found = []
    for each in definitions:
        texts: list[str] = []
        error = raised(lambda: texts.append(execute_keep_batches(Path(each))))  # noqa: B023 - called at once
        found.append(texts or error)
    return found


def teams(*projects: str) -> dict[str, Any]:
    """Return the DAGs of projects in one DAG file: the DAGs that they trigger, their assets, and permissions."""
    from backstream.airflow import backfill_dags

    made: dict[str, Any] = {}
    for project in projects:
        made |= backfill_dags(project, access_control={Path(project).name: {"can_read"}})
    found = {
        dag_id: {
            "outlets": [asset.uri for asset in dag.get_task("publish").outlets]
            if "publish" in dag.task_ids
            else [],
            "triggers": [_trigger(task) for task in dag.tasks if task.task_id in ("restate", "reprocess")],
            "roles": sorted(dag.access_control),
            "tags": sorted(dag.tags),
        }
        for dag_id, dag in made.items()
    }
    invalid = Path(projects[0]) / "backstream.toml"
    invalid.write_text('team = "Sales Team"\n', encoding="utf-8")
    from backstream.orchestration.definitions import load_definitions

    return {"dags": found, "problems": load_definitions((Path(projects[0]),)).problems}


def _trigger(task: Any) -> str:
    return str(_partial(task)["trigger_dag_id"] if task.is_mapped else task.trigger_dag_id)


def _assets(definition: str) -> dict[str, Any]:
    """Return the partition keys of two days, and the assets of a source with two parts."""
    from backstream.definition.loader import load_definition
    from backstream.eventtime.instants import instant_ms
    from backstream.eventtime.intervals import Interval
    from backstream.orchestration.run_range import partition_keys
    from backstream.orchestration.run_tasks import input_assets

    loaded = load_definition(Path(definition))
    names = "raw_clicks", "s3://lake/clicks"
    parts = tuple(loaded.source.model_copy(update={"asset": name}) for name in names)
    source = loaded.source.model_copy(update={"parts": parts})
    found: Any = input_assets(loaded.model_copy(update={"source": source}))
    days = Interval(instant_ms("2024-02-29", "since"), instant_ms("2024-03-02", "until"))
    return {
        "partitions": partition_keys(days),
        "inputs": [[type(each).__name__, *_names(each)] for each in found.objects],
    }


def _names(reference: Any) -> list[str]:
    """Return the values of an attrs object."""
    return [str(getattr(reference, name)) for name in ("name", "uri") if hasattr(reference, name)]


def _weights(dag: Any, task_id: str) -> dict[str, int]:
    """Return the weights of a mapped task as the scheduler computes them, by the prefix of the run id."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.serialization.serialized_objects import DagSerialization

    task = DagSerialization.from_dict(DagSerialization.to_dict(dag)).get_task(task_id)
    kinds = "backfill", "manual", "restate", "scheduled"
    found = [TaskInstance(task, dag_version_id=None, run_id=f"{kind}__2024-03-01") for kind in kinds]
    return {kind: int(each.priority_weight or 0) for kind, each in zip(kinds, found, strict=True)}


def _partial(task: Any) -> dict[str, Any]:
    """Return the arguments that all tasks of a mapped task have."""
    arguments: dict[str, Any] = task.partial_kwargs
    return arguments


def _planned_in_group(path: str, request: dict[str, Any], context: dict[str, Any]) -> list[str]:
    """Return trigger, range, reason, and home of a run in a task group."""
    from backstream.orchestration import tasks as ours
    from backstream.runs.plan import Plan

    pushed: dict[str, str] = {}
    ti = SimpleNamespace(
        dag_id="weekly",
        task_id="clicks.plan",
        xcom_push=lambda key, value: pushed.update({key: value}),
        xcom_pull=lambda **_: None,
    )
    ours.execute_plan(Path(path), "clicks", context | {"ti": ti}, request)
    plan = Plan.read(Path(pushed["plan"]))
    return [plan.triggered_by, str(plan.range), plan.reason, os.environ["BACKSTREAM_HOME"]]


def ticks() -> dict[str, list[str]]:
    """Return the data intervals of some schedules in the last two days of February 2024."""
    from backstream.eventtime.instants import instant_ms
    from backstream.eventtime.intervals import Interval
    from backstream.orchestration.run_range import data_intervals as ours

    span = Interval(instant_ms("2024-02-28", "since"), instant_ms("2024-03-01", "until"))
    return {
        schedule: [str(each).replace("T00:00Z", "") for each in ours(schedule, span)]
        for schedule in ("@daily", "0 0 1 * *", "0 0 * * 4")
    }


def restates() -> dict[str, Any]:
    """Return the run that the task `restate` of each kind of run starts, or the reason for none."""
    return {
        "scheduled": _restated("SCHEDULED"),
        "backfill": _restated("BACKFILL"),
        "manual": _restated("MANUAL"),
        "paused": _restated("SCHEDULED", is_paused=True),
    }


def _restated(run_type: str, *, is_paused: bool = False) -> Any:
    from airflow.sdk.api.datamodels._generated import DagRunType
    from airflow.sdk.exceptions import AirflowSkipException, DagRunTriggerException

    from backstream.definition.loader import load_definition
    from backstream.orchestration.dags import backfill_dag
    from backstream.runs.home import bundled_folder

    path = bundled_folder("definitions") / "flights.toml"
    task: Any = backfill_dag(load_definition(path), path).get_task("restate")
    start, end = datetime(2013, 2, 1, tzinfo=UTC), datetime(2013, 3, 1, tzinfo=UTC)
    context = {
        "run_id": "scheduled__2013-03-01T00:00:00+00:00",
        "dag_run": SimpleNamespace(run_type=DagRunType[run_type]),
        "ti": SimpleNamespace(get_dag=lambda _: SimpleNamespace(is_paused=is_paused), xcom_push=lambda **_: None),
        "data_interval_start": start,
        "data_interval_end": end,
    }
    try:
        task.execute(context)
    except AirflowSkipException as skipped:
        return str(skipped)
    except DagRunTriggerException as asked:
        names = ("trigger_dag_id", "dag_run_id", "conf", "logical_date", "reset_dag_run", "wait_for_completion")
        return {name: getattr(asked, name) for name in names}
    return None
