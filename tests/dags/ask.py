"""Run by the tests as a process of its own: asks Airflow a question and prints the answer as a line of JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HEAVY = ("pyspark", "pandas", "great_expectations", "numpy", "pyarrow", "pyiceberg")
SOUND_FORM = {"since": "2013-02-01T00:00:00Z", "until": "2013-02-08T00:00:00+01:00", "reason": "why"}
WRONG_FORMS: list[dict[str, Any]] = [
    {"since": "2013-02-01"},
    {"until": "soon"},
    {"delay": "an hour"},
    {"max_spark_jobs": 0},
    {"mode": "fast"},
    {"reason": " "},
    {"reason": None},
    {"since": None},
    {"since": "0001-01-01T00:00:00Z"},
    {"until": "9999-12-31T00:00:00Z"},
    {"chunk": "5h"},
]
LONG_AGO = {"since": "2004-03-01T00:00:00Z", "until": "2004-04-01T00:00:00Z"}
ALL_YEARS = {"since": "0001-01-01T00:00:00Z", "until": "9999-12-31T00:00:00Z"}
ADA = {"id": "7", "name": "ada"}
AT = "2026-01-01T00:00:00+00:00"
EVENTS: list[dict[str, Any]] = [
    {"chosen_options": ["Approve"], "responded_by_user": ADA, "responded_at": AT},
    {"chosen_options": ["Reject"], "responded_by_user": ADA, "responded_at": AT},
    {"chosen_options": ["Reject"], "responded_by_user": None, "responded_at": AT, "timedout": True},
    {"chosen_options": ["Approve"], "responded_by_user": None, "responded_at": AT},
    {"error": "timeout", "error_type": "timeout", "responded_at": AT},
]
LAKE = {"conn_type": "postgres", "login": "lake", "password": "p@/w", "schema": "flights"}
CATALOGS: list[dict[str, Any]] = [
    LAKE | {"host": "db", "port": 5432},
    LAKE | {"host": "/run/postgres"},
    {"conn_type": "mysql"},
]
STORE = {"conn_type": "aws", "host": "s3://lake/prod", "login": "AK/ID", "password": "se/cr+et"}
WAREHOUSES: list[dict[str, Any]] = [
    STORE | {"extra": {"endpoint_url": "http://minio:9000", "region_name": "eu-west-1", "other": 1}},
    STORE | {"conn_type": "generic", "extra": {"aws_session_token": "t/1"}},
    {"conn_type": "aws", "host": "s3://lake"},
    {"conn_type": "ftp", "host": "s3://lake"},
    {"conn_type": "aws", "host": "lake"},
]
YARN = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "client", "queue": "backfill"}}
KUBERNETES = {"conn_type": "spark", "host": "k8s://https://cluster:6443"}
CLUSTERS: dict[str, dict[str, Any]] = {
    "standalone": {"conn_type": "spark", "host": "spark://master:7077"},
    "kubernetes": KUBERNETES | {"extra": {"deploy-mode": "client", "namespace": "backfills"}},
    "yarn": YARN,
}
LOCAL_SPARK = json.dumps({"conn_type": "spark", "host": "local[2]"})


def dags(folder: str, *definitions: str) -> list[dict[str, Any]]:
    """What is in a folder of DAG files, for each folder of definitions, and what parsing has imported."""
    from airflow.dag_processing.dagbag import DagBag

    found = []
    for each in definitions:
        os.environ["BACKSTREAM_DEFINITIONS"] = each
        bag = DagBag(dag_folder=folder)
        told = {
            "errors": bag.import_errors,
            "warnings": {path: list(warnings) for path, warnings in bag.captured_warnings.items()},
            "dags": {dag_id: _told(dag) for dag_id, dag in bag.dags.items()},
            "heavy": _heavy(),
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
    """Seconds of a core that parsing a folder of DAG files takes, for each folder of definitions."""
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
    context: dict[str, Any] = {"dag": weekly, "run_id": "one", "params": {}}
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
            _raised(lambda: backfill_dags(package="no.such_package")),
            _raised(lambda: backfill_dags(f"{folder}/none")),
            _raised(lambda: backfill_dags(folder, package="json")),
            _raised(lambda: backfill_dags(folder, kinds=["reproces"])),
            _raised(lambda: BackfillTaskGroup("g", path, run_params={"mod": "replay"})),
        ],
        "switched off": list_switched_off((3, 1)),
        "here": list_switched_off((3, 3)),
    }


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
    """The arguments that all tasks of a mapped task have."""
    arguments: dict[str, Any] = task.partial_kwargs
    return arguments


def _planned_in_group(path: str, request: dict[str, Any], context: dict[str, Any]) -> list[str]:
    """Return trigger, range, reason, and home of a run in a task group."""
    from backstream.orchestration import tasks as ours
    from backstream.runs.plan import Plan

    pushed: dict[str, str] = {}
    ti = SimpleNamespace(
        dag_id="weekly", task_id="clicks.plan", xcom_push=lambda key, value: pushed.update({key: value})
    )
    ours.execute_plan(Path(path), "clicks", context | {"ti": ti}, request)
    plan = Plan.read(Path(pushed["plan"]))
    return [plan.triggered_by, str(plan.range), plan.reason, os.environ["BACKSTREAM_HOME"]]


def tasks() -> dict[str, Any]:
    """What a task makes of errors, of choices in the form, of a missing connection, and how it calls Spark."""
    return {
        "errors": _errors(),
        "modes": [_mode(choice) for choice in ("as defined", "", "replay", "recompute", "fast")],
        "without connection": _raised(lambda: _operator().execute({})),
        "asked": _asked(),
        "unknown": _raised(lambda: _ask_for(colour="red")),
        "refused": [_raised(lambda: _check(form)) for form in WRONG_FORMS],  # noqa: B023 - called at once
        "decisions": [_decision(event) for event in EVENTS],
        "alerts": _alerts(),
        "catalogs": [_provided("catalog", connection) for connection in CATALOGS],
        "warehouses": [_provided("warehouse", connection) for connection in WAREHOUSES],
        "masked": _masked(),
        "yarn": _submitted_to(YARN),
        "kubernetes": _raised(lambda: _executed_on(KUBERNETES)),
        "driver elsewhere": _raised(lambda: _executed_on(YARN | {"extra": {"deploy-mode": "cluster"}})),
        "submitted": _submitted(),
        "ended": {status: _raised(lambda: _ended_with(status)) for status in (0, 1, 3, 52, 137, 143)},  # noqa: B023 - called at once
        "full disk": _full_disk(),
        "options": _java_options(),
        "settings": [_settings_named("local[2]"), _settings_named("spark://master:7077")],
        "heavy": _heavy(),
        "ends": _ends(),
    }


def _ends() -> list[list[int | None]]:
    """The ends of two runs, one in a team's own DAG, as stored when Airflow tells of a failure and a restart."""
    from airflow.listeners.listener import get_listener_manager

    from backstream.runs.home import Home
    from backstream.runs.requests import RunRequest, load_requests

    home = Home(Path("home-of-ends").resolve())
    os.environ |= {"BACKSTREAM_HOME": str(home.path), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    RunRequest("clicks", "backfill_clicks", "killed", "killed", 0).write(home)
    RunRequest("clicks", "weekly", "killed", "weekly.clicks.plan.killed", 0, task_group="clicks").write(home)
    hooks, stored = get_listener_manager().hook, []
    for hook in (hooks.on_dag_run_failed, hooks.on_dag_run_running):
        for dag_id in ("other", "backfill_clicks", "weekly"):
            hook(dag_run=SimpleNamespace(dag_id=dag_id, run_id="killed"), msg="")
            ends = {request.dag_id: request.ended_at_ms for request in load_requests(home, "clicks")}
            stored.append([ends["backfill_clicks"], ends["weekly"]])
    return stored


def plans(definition: str, home: str, late: str) -> dict[str, list[Any]]:
    """What the task `plan` makes of runs of a definition: jobs, plan file and log, or error and message.

    The files of the source are those of `late` too, once a run has been planned.
    """
    os.environ["BACKSTREAM_HOME"] = home
    os.environ.pop("AIRFLOW_CONN_BACKSTREAM_CATALOG", None)
    whole = {"since": "2024-03-01T00:00:00Z", "until": "2024-03-05T01:00:00+01:00", "reason": "why"}
    told = {
        "dry run": _planned(definition, "zero", whole | {"dry_run": True}),
        "first": _planned(definition, "one", whole | {"max_spark_jobs": 3}),
    }
    data = Path(definition).parent / "data"
    Path(late).rename(data / "late.parquet")
    told |= {
        "cleared": _planned(definition, "one", whole | {"max_spark_jobs": 1}),
        "asked otherwise": _planned(definition, "one", whole | {"chunk": "2d"}),
        "another run": _planned(definition, "two", whole),
    }
    (data / "late.parquet").unlink()
    told |= {
        "cannot go on": _planned(definition, "two", whole),
        "replanned": _planned(definition, "two", whole | {"replan": True}),
        "nonsense": _planned(definition, "three", whole | {"delay": "1h"}),
        "found before": _found(definition, until="2024-03-04T00:00:00Z"),
        "found everywhere": _found(definition),
        "left to others": _found(definition, "2024-03-03", until="2024-03-05T00:00:00Z"),
        "only waited for": _found(definition, "2024-03-03", is_published=True, until="2024-03-05T00:00:00Z"),
        "no event": _planned(
            definition, "three", whole | {"since": "2004-03-01T00:00:00Z", "until": "2004-04-01T00:00:00Z"}
        ),
        "all years": _planned(
            definition,
            "three",
            whole | {"since": "0001-01-01T00:00:00Z", "until": "9999-12-31T00:00:00Z", "dry_run": True},
        ),
        "reported": _reported(told["first"][1], home),
        "half a day": _planned(definition, "three", whole | {"since": "2024-03-01T12:00:00Z"}),
        "no range": _planned(definition, "four", {"since": "soon", "until": "later", "reason": "why"}),
    }
    return told | {"requests": _requests(home)}


def _requests(home: str) -> Any:
    """The requests that the runs left, by trigger."""
    from dataclasses import asdict

    from backstream.runs.home import Home
    from backstream.runs.requests import load_requests

    return {request.triggered_by: asdict(request) for request in load_requests(Home(Path(home)), "clicks")}


def _found(
    definition: str, unfinished: str = "", *, is_published: bool = False, **form: Any
) -> list[dict[str, Any]]:
    """What a run of `restate_<name>` triggers while the run of `backfill_<name>` for some day is unfinished."""
    from backstream.definition.loader import load_definition
    from backstream.orchestration import tasks as ours
    from backstream.orchestration.dags import restate_dag

    def runs(dag_id: str, logical_dates: list[datetime], states: list[str]) -> int:
        assert (dag_id, states) == ("backfill_clicks", ["queued", "running"])
        return sum(f"{date:%Y-%m-%d}" == unfinished for date in logical_dates)

    def tasks(dag_id: str, logical_dates: list[datetime], task_ids: list[str], states: list[str]) -> int:
        assert (dag_id, task_ids) == ("backfill_clicks", ["publish"])
        return len(logical_dates) if is_published and "success" in states else 0

    path = Path(definition)
    dag = restate_dag(load_definition(path), path)
    params = dag.params.dump() | {"approval": "always", "reason": "again"} | form
    context = {
        "params": params,
        "dag": dag,
        "run_id": "r",
        "ti": SimpleNamespace(get_dr_count=runs, get_ti_count=tasks),
    }
    return ours.execute_find_intervals(path, context)


def ticks() -> dict[str, list[str]]:
    """The data intervals of some schedules that touch the last two days of February 2024."""
    from backstream.eventtime.instants import instant_ms
    from backstream.eventtime.intervals import Interval
    from backstream.orchestration.run_range import data_intervals as ours

    span = Interval(instant_ms("2024-02-28", "since"), instant_ms("2024-03-01", "until"))
    return {
        schedule: [str(each).replace("T00:00Z", "") for each in ours(schedule, span)]
        for schedule in ("@daily", "0 0 1 * *", "0 0 * * 4")
    }


def besides() -> dict[str, Any]:
    """What the task `restate` of a run starts: the run of another DAG, or why not."""
    return {
        "scheduled": _beside("SCHEDULED"),
        "backfill": _beside("BACKFILL"),
        "manual": _beside("MANUAL"),
        "paused": _beside("SCHEDULED", is_paused=True),
    }


def _beside(run_type: str, *, is_paused: bool = False) -> Any:
    from airflow.sdk.api.datamodels._generated import DagRunType
    from airflow.sdk.exceptions import AirflowSkipException, DagRunTriggerException

    from backstream.definition.loader import load_definition
    from backstream.orchestration.dags import backfill_dag
    from backstream.runs.bundled_files import bundled_folder

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


def _planned(definition: str, run_id: str, form: dict[str, Any]) -> list[Any]:
    import io
    import logging

    from backstream.definition.loader import load_definition
    from backstream.orchestration import tasks as ours
    from backstream.orchestration.dags import reprocess_dag

    path = Path(definition)
    dag = reprocess_dag(load_definition(path), path)
    pushed: dict[str, str] = {}
    context = {
        "params": dag.params.dump() | form,
        "dag": dag,
        "run_id": run_id,
        "dag_run": SimpleNamespace(triggering_user_name="ada"),
        "ti": SimpleNamespace(task_id="plan", xcom_push=lambda key, value: pushed.update({key: value})),
    }
    heard = io.StringIO()
    handler = logging.StreamHandler(heard)
    ours.log.addHandler(handler)
    ours.log.setLevel(logging.INFO)
    try:
        jobs = ours.execute_plan(path, "clicks", context)
    except Exception as error:  # noqa: BLE001 - the answer is which one it is
        return [type(error).__name__, str(error)]
    finally:
        ours.log.removeHandler(handler)
    return [[job["name"] for job in jobs], pushed.get("plan", ""), heard.getvalue()]


def _reported(plan: str, home: str) -> list[str]:
    """What the task `report` returns and logs where what the pages show cannot be written."""
    import io
    import logging

    from backstream.orchestration import tasks as ours

    in_its_way = Path(home) / "dataset_state" / "clicks.json"
    in_its_way.unlink(missing_ok=True)
    in_its_way.mkdir(parents=True)
    heard = io.StringIO()
    handler = logging.StreamHandler(heard)
    ours.log.addHandler(handler)
    try:
        return [ours.execute_report(Path(plan), plan), heard.getvalue()]
    finally:
        ours.log.removeHandler(handler)
        in_its_way.rmdir()


def _errors() -> dict[str, list[str]]:
    """What becomes of each of our errors inside a task: the class that Airflow sees, and the message."""
    from backstream import errors as ours

    kinds = [kind for kind in vars(ours).values() if isinstance(kind, type)]
    return {kind.__name__: _raised(lambda: _fail(kind)) for kind in kinds}  # noqa: B023 - called at once


def _fail(kind: type[Exception]) -> None:
    from backstream.orchestration.tasks import fail_without_retry

    msg = "12 of 744 windows are incomplete\n  first: .."
    with fail_without_retry():
        raise kind(msg)


def _mode(choice: str) -> str:
    from backstream.errors import SpecError
    from backstream.orchestration.params import parse_mode

    try:
        return repr(parse_mode(choice))
    except SpecError as error:
        return str(error)


def _ask_for(**params: Any) -> Any:
    from backstream.orchestration.params import RunParams

    return RunParams.from_params(SOUND_FORM | params, [*SOUND_FORM, "mode", "delay", "chunk"], "reprocess_flights")


def _asked() -> str:
    """What a filled-in form comes to; what Airflow's own parts add is not ours to refuse."""
    return repr(_ask_for(delay="45m", chunk=None, mode="replay", openlineage={}))


def _check(form: dict[str, Any]) -> None:
    """Check a form as every task does before it begins."""
    from airflow.sdk.definitions.param import process_params

    from backstream.definition.loader import load_definition
    from backstream.orchestration.dags import reprocess_dag
    from backstream.runs.bundled_files import bundled_folder

    path = bundled_folder("definitions") / "flights.toml"
    dag = reprocess_dag(load_definition(path), path)
    process_params(dag, dag.get_task("plan"), SOUND_FORM | form, suppress_exception=False)


def _decision(event: dict[str, Any]) -> str:
    from backstream.orchestration.run_operators import parse_decision

    return str(parse_decision(event))


def _alerts() -> list[str]:
    """What the log says when nobody can be reached: not a word of the address, which has the token in it."""
    import io
    import logging

    from backstream.orchestration import notifications

    heard = io.StringIO()
    notifications.log.addHandler(logging.StreamHandler(heard))
    notifications.log.setLevel(logging.INFO)
    notifications.post_alert("without a connection")
    for host in ("http://127.0.0.1:9/hook", "file:///etc"):
        connection = {"conn_type": "http", "host": host, "password": "token"}
        os.environ["AIRFLOW_CONN_BACKSTREAM_ALERTS"] = json.dumps(connection)
        notifications.post_alert("run failed")
    return heard.getvalue().splitlines()


def _provided(what: str, connection: dict[str, Any]) -> str:
    """The address that a connection comes to."""
    from backstream.errors import SpecError
    from backstream.orchestration.connections import provide_lake
    from backstream.runs.home import Home

    variable, home = f"AIRFLOW_CONN_BACKSTREAM_{what.upper()}", Home(Path("/nowhere"))
    os.environ[variable] = json.dumps(connection)
    try:
        provide_lake()
    except SpecError as error:
        return str(error)
    finally:
        del os.environ[variable]
    return home.catalog_uri if what == "catalog" else home.warehouse_uri


def _masked() -> list[str]:
    """What a log shows of the secrets, as they are and as an address has them."""
    from airflow.sdk._shared.secrets_masker import redact  # what the log does with each line

    return [str(redact(f"it is {secret}")) for secret in ("se/cr+et", "se%2Fcr%2Bet", "t%2F1", "p%40%2Fw")]


def _executed_on(connection: dict[str, Any]) -> None:
    os.environ["AIRFLOW_CONN_BACKSTREAM_SPARK"] = json.dumps(connection)
    try:
        _operator().execute({})
    finally:
        del os.environ["AIRFLOW_CONN_BACKSTREAM_SPARK"]


def _submitted_to(connection: dict[str, Any]) -> list[str]:
    os.environ["AIRFLOW_CONN_BACKSTREAM_SPARK"] = json.dumps(connection)
    task = _operator()
    command: list[str] = task._get_hook()._build_spark_submit_command(task.application)  # noqa: SLF001 - the point
    return command[1:-5]


def clusters() -> dict[str, dict[str, Any]]:
    """The command lines for clusters and their environment, as if the package for Kubernetes were installed."""
    vars(import_module("airflow.providers.apache.spark.hooks.spark_submit"))["kube_client"] = object()
    os.environ["AIRFLOW_CONN_BACKSTREAM_CATALOG"] = json.dumps(LAKE | {"host": "db"})
    os.environ["AIRFLOW_CONN_BACKSTREAM_WAREHOUSE"] = json.dumps(STORE)
    return {name: _command(connection) for name, connection in CLUSTERS.items()}


def _command(connection: dict[str, Any]) -> dict[str, Any]:
    from backstream.orchestration.connections import provide_lake

    os.environ["AIRFLOW_CONN_BACKSTREAM_SPARK"] = json.dumps(connection)
    provide_lake()  # as a task does before it submits
    task = _operator()
    hook = task._get_hook()  # noqa: SLF001 - the command it builds is the point
    command = hook._build_spark_submit_command(task.application)  # noqa: SLF001 - as above
    lake = {name: os.environ[name] for name in ("BACKSTREAM_CATALOG_URI", "BACKSTREAM_WAREHOUSE")}
    return {"command": command, "application": task.application, "environment": (hook._env or {}) | lake}  # noqa: SLF001


def _operator(**options: Any) -> Any:
    from backstream.orchestration.job_operators import ReplayOperator

    arguments = ["--plan", "/nowhere/plan.json", "--chunk", "0000"]
    file = "/nowhere/flights.toml"
    name = "flights 0000"
    return ReplayOperator(task_id="replay", name=name, definition_path=file, application_args=arguments, **options)


_TRACE = r"echo java.io.IOException: No space left on device; seq 200 | sed 's/.*/\tat org.A.b(A.scala:&)/'"
_SENTENCE = "echo StorageError: the disk is full | tee $BACKSTREAM_ERROR_FILE"


def _ended_with(status: int) -> None:
    """Execute the task with a `spark-submit` that says something and ends with a status."""
    _submitter(status).execute({})


def _submitter(status: int, *lines: str) -> Any:
    """Return the task with a `spark-submit` that runs lines of a shell, says something, and ends with a status."""
    binary = Path(f"spark-submit-{status}").resolve()
    says = [*lines, f"echo a job of status {status}", 'printf %s "$SPARK_SUBMIT_OPTS" > options', f"exit {status}"]
    binary.write_text("\n".join(["#!/bin/sh", *says, ""]), encoding="utf-8")
    binary.chmod(0o755)
    return _operator(spark_binary=str(binary))


def _full_disk() -> dict[str, Any]:
    """The error, the log, and the traces of a job that prints a trace of Java and its sentence."""
    task = _submitter(4, _TRACE, _SENTENCE)
    task.application_args = ["--plan", str(Path("run/plan.json").resolve()), "--chunk", "0000"]
    raised = _raised(lambda: task.execute({}))
    (file,) = Path("run/errors").iterdir()
    log = [line.replace(str(file.resolve()), "FILE") for line in task._hook._last_submit_log_lines]  # noqa: SLF001 - the log
    return {"raised": raised, "log": log, "trace": file.read_text(encoding="utf-8").splitlines()}


def _java_options() -> str:
    """What a job's Java is asked for on a machine that gives huge pages to who asks."""
    from backstream.spark import java

    java.HUGE_PAGES = Path("huge_pages")
    java.HUGE_PAGES.write_text("always [madvise] never", encoding="utf-8")
    os.environ["BACKSTREAM_CLASS_ARCHIVE"] = ""
    os.environ.pop(java.OPTIONS_VARIABLE, None)
    _raised(lambda: _ended_with(1))
    return Path("options").read_text(encoding="utf-8")


def _settings_named(master: str) -> list[str]:
    """Where `spark-submit` finds its settings: the file it is given, and the folder in its environment."""
    folder = Path("settings").resolve()
    folder.mkdir(exist_ok=True)
    (folder / "spark-defaults.conf").write_text("spark.ui.enabled false", encoding="utf-8")
    os.environ |= {"SPARK_CONF_DIR": str(folder), "AIRFLOW_CONN_BACKSTREAM_SPARK": _spark_at(master)}
    binary = Path("spark-submit-settings").resolve()
    says = 'printf "%s\\n" "$SPARK_CONF_DIR" "$@" > settings.txt'
    binary.write_text(f"#!/bin/sh\n{says}\nexit 1\n", encoding="utf-8")
    binary.chmod(0o755)
    _raised(lambda: _operator(spark_binary=str(binary)).execute({}))
    os.environ.pop("SPARK_CONF_DIR", None)
    named, *words = Path("settings.txt").read_text(encoding="utf-8").splitlines()
    file = words[words.index("--properties-file") + 1] if "--properties-file" in words else ""
    return [Path(each).name for each in (file, named)]


def _spark_at(master: str) -> str:
    return json.dumps({"conn_type": "spark", "host": master})


def _submitted() -> dict[str, Any]:
    os.environ["AIRFLOW_CONN_BACKSTREAM_SPARK"] = LOCAL_SPARK
    task = _operator()
    hook = task._get_hook()  # noqa: SLF001 - the command it builds is the point
    command = hook._build_spark_submit_command(task.application)  # noqa: SLF001 - as above
    return {"command": command, "environment": hook._env}  # noqa: SLF001 - as above


def _raised(action: Callable[[], object]) -> list[str]:
    try:
        action()
    except Exception as error:  # noqa: BLE001 - the answer is which one it is
        return [type(error).__name__, str(error)]
    return ["nothing", ""]


def _heavy() -> list[str]:
    return [module for module in HEAVY if module in sys.modules]


if __name__ == "__main__":
    answer = globals()[sys.argv[1]](*sys.argv[2:])
    print(json.dumps(answer))  # noqa: T201 - the answer
