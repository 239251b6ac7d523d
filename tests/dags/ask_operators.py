"""Questions about the operators, their connections, and the commands with which they start Spark."""

from __future__ import annotations

import io
import json
import logging
import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.dags.answers import heavy, raised

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
    {"since": "2999-01-01T00:00:00Z"},
]
FOR_REPLAYS: list[dict[str, Any]] = [{"mode": "replay"}, {"delay": "45m"}, {"allowed_lateness": "1h"}]
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
    {"conn_type": "sqlite", "host": "/lake/catalog.db"},
    {
        "conn_type": "iceberg",
        "host": "https://rest/api",
        "login": "me",
        "password": "s/1",
        "extra": {"scope": "a b"},
    },
    {"conn_type": "http", "host": "rest", "port": 8181, "schema": "http", "password": "t/2"},
    {"conn_type": "hive_metastore", "host": "meta", "extra": {"hive.hive2-compatible": True}},
    {"conn_type": "aws", "login": "AK", "password": "s/3", "extra": {"region_name": "eu-west-1", "role_arn": "r"}},
    {"conn_type": "http"},
]
SECRETS = ("se/cr+et", "se%2Fcr%2Bet", "t%2F1", "p%40%2Fw", "me%3As%2F1", "t%2F2", "s%2F3")
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


def tasks() -> dict[str, Any]:
    """Return the results of tasks for errors, forms, and connections, and their commands for Spark."""
    return {
        "errors": _errors(),
        "modes": [_mode(choice) for choice in ("as defined", "", "replay", "recompute", "fast")],
        "without connection": raised(lambda: _operator().execute({})),
        "asked": _asked(),
        "unknown": raised(lambda: _ask_for(colour="red")),
        "refused": [raised(lambda: _check(form)) for form in WRONG_FORMS],  # noqa: B023 - called at once
        "without arrival times": [raised(partial(_check, form, arrival_time=None)) for form in FOR_REPLAYS],
        "decisions": [_decision(event) for event in EVENTS],
        "alerts": _alerts(),
        "catalogs": [_provided("catalog", connection) for connection in CATALOGS],
        "warehouses": [_provided("warehouse", connection) for connection in WAREHOUSES],
        "named": [_named("theirs"), _named("nobody")],
        "masked": _masked(),
        "yarn": _submitted_to(YARN),
        "kubernetes": raised(_executed_without_kubernetes),
        "driver elsewhere": raised(lambda: _executed_on(YARN | {"extra": {"deploy-mode": "cluster"}})),
        "limit": raised(lambda: _executed_on(KUBERNETES | {"extra": {"start-timeout-s": "soon"}})),
        "submitted": _submitted(),
        "ended": {status: raised(lambda: _ended_with(status)) for status in (0, 1, 3, 52, 137, 143)},  # noqa: B023 - called at once
        "full disk": _full_disk(),
        "options": _java_options(),
        "settings": [_settings_named("local[2]"), _settings_named("spark://master:7077")],
        "heavy": heavy(),
        "ends": _ends(),
        "private": _private_parts(),
    }


def _private_parts() -> dict[str, Any]:
    """Return the private parts of Airflow's hook that the commands use, as the installed version has them."""
    from inspect import getsource, signature

    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    build = SparkSubmitHook._build_spark_submit_command  # noqa: SLF001 - its contract
    variables = getsource(SparkSubmitHook._build_spark_common_args)  # noqa: SLF001 - as above
    return {"command": str(signature(build)), "variables": "self._env = self._env_vars" in variables}


def _ends() -> list[list[int | None]]:
    """Return the recorded ends of two runs, one in a team's own DAG, after a failure, a restart, and a success."""
    from airflow.listeners.listener import get_listener_manager

    from backstream.runs.home import Home
    from backstream.runs.requests import RunRequest, load_requests

    home = Home(Path("home-of-ends").resolve())
    os.environ |= {"BACKSTREAM_HOME": str(home.path), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    RunRequest("clicks", "backfill_clicks", "killed", "killed", 0).write(home)
    RunRequest("clicks", "weekly", "killed", "weekly.clicks.plan.killed", 0, task_group="clicks").write(home)
    hooks, stored = get_listener_manager().hook, []
    for hook in (hooks.on_dag_run_failed, hooks.on_dag_run_running, hooks.on_dag_run_success):
        for dag_id in ("other", "backfill_clicks", "weekly"):
            hook(dag_run=SimpleNamespace(dag_id=dag_id, run_id="killed"), msg="")
            ends = {request.dag_id: request.ended_at_ms for request in load_requests(home, "clicks")}
            stored.append([ends["backfill_clicks"], ends["weekly"]])
    return stored


def _errors() -> dict[str, list[str]]:
    """Return the class and the message that Airflow gets for each error of backstream inside a task."""
    from backstream import errors as ours

    kinds = [kind for kind in vars(ours).values() if isinstance(kind, type)]
    return {kind.__name__: raised(lambda: _fail(kind)) for kind in kinds}  # noqa: B023 - called at once


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
    """Return the parameters of a filled-in form; parameters of Airflow's own parts are not rejected."""
    return repr(_ask_for(delay="45m", chunk=None, mode="replay", openlineage={}))


def _check(form: dict[str, Any], **source: Any) -> None:
    """Check a form as every task does before it begins; `source` has other values of this section."""
    from airflow.sdk.definitions.param import process_params

    from backstream.definition.loader import load_definition, parse_definition
    from backstream.orchestration.dags import reprocess_dag
    from backstream.runs.home import bundled_folder

    path = bundled_folder("definitions") / "flights.toml"
    content = load_definition(path).model_dump(mode="json")
    changed = content | {"source": content["source"] | source, "backfill": {"mode": "recompute"}}
    dag = reprocess_dag(parse_definition(changed, str(path)), path)
    process_params(dag, dag.get_task("plan"), SOUND_FORM | form, suppress_exception=False)


def _decision(event: dict[str, Any]) -> str:
    from backstream.orchestration.run_operators import parse_decision

    return str(parse_decision(event))


def _alerts() -> list[str]:
    """Return the log of alerts that cannot be sent; it must not contain the address, which has the token."""
    import io
    import logging

    from backstream.orchestration import notifications

    heard = io.StringIO()
    notifications.log.logger.addHandler(logging.StreamHandler(heard))
    notifications.log.setLevel(logging.INFO)
    notifications.post_alert("without a connection")
    for host in ("http://127.0.0.1:9/hook", "file:///etc"):
        connection = {"conn_type": "http", "host": host, "password": "token"}
        os.environ["AIRFLOW_CONN_BACKSTREAM_ALERTS"] = json.dumps(connection)
        notifications.post_alert("run failed")
    return heard.getvalue().splitlines()


def _provided(what: str, connection: dict[str, Any], wanted: str = "") -> str:
    """Return the address that a connection provides, or another wanted one."""
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
    return home.catalog_uri if (wanted or what) == "catalog" else home.warehouse_uri


def _named(connection_id: str) -> str:
    """Return the address of the catalog that a project names by the id of a connection."""
    os.environ["AIRFLOW_CONN_THEIRS"] = json.dumps({"conn_type": "http", "host": "http://theirs"})
    os.environ["BACKSTREAM_CATALOG_CONNECTION"] = connection_id
    try:
        provided = _provided("warehouse", STORE, "catalog")
    finally:
        del os.environ["BACKSTREAM_CATALOG_CONNECTION"]
        os.environ.pop("BACKSTREAM_CATALOG_URI", None)
    return provided


def _masked() -> list[str]:
    """Return the lines of a log with secrets, plain and encoded as in an address."""
    from airflow.sdk._shared.secrets_masker import redact  # what the log does with each line

    return [str(redact(f"it is {secret}")) for secret in SECRETS]


def _executed_on(connection: dict[str, Any]) -> None:
    os.environ["AIRFLOW_CONN_BACKSTREAM_SPARK"] = json.dumps(connection)
    try:
        _operator().execute({})
    finally:
        del os.environ["AIRFLOW_CONN_BACKSTREAM_SPARK"]


def _executed_without_kubernetes() -> None:
    from backstream.orchestration.runners import selection

    known = vars(selection)["_is_installed"]
    vars(selection)["_is_installed"] = lambda module: "kubernetes" not in module and known(module)
    try:
        _executed_on(KUBERNETES)
    finally:
        vars(selection)["_is_installed"] = known


def _submitted_to(connection: dict[str, Any]) -> list[str]:
    os.environ["AIRFLOW_CONN_BACKSTREAM_SPARK"] = json.dumps(connection)
    return _spark_command()[0][1:-5]


def _spark_command() -> tuple[list[str], dict[str, str]]:
    """Return the command of the task beside which the driver runs, and its variables."""
    from backstream.orchestration.runners.job_runner import SparkJob
    from backstream.orchestration.runners.spark_command import spark_command
    from backstream.runs.home import Home

    task, folder = _operator(), Path("/nowhere")
    job = SparkJob(task.name, task.job_module, tuple(task.application_args), Home(folder), folder)
    return spark_command(job, task.conn_id, deploy_mode="client")


def clusters() -> dict[str, dict[str, Any]]:
    """Return the commands for clusters with their environment."""
    os.environ["AIRFLOW_CONN_BACKSTREAM_CATALOG"] = json.dumps(LAKE | {"host": "db"})
    os.environ["AIRFLOW_CONN_BACKSTREAM_WAREHOUSE"] = json.dumps(STORE)
    return {name: _command(connection) for name, connection in CLUSTERS.items()}


def _command(connection: dict[str, Any]) -> dict[str, Any]:
    from backstream.orchestration.connections import provide_lake

    os.environ["AIRFLOW_CONN_BACKSTREAM_SPARK"] = json.dumps(connection)
    provide_lake()  # as a task does before it submits
    command, variables = _spark_command()
    lake = {name: os.environ[name] for name in ("BACKSTREAM_CATALOG_URI", "BACKSTREAM_WAREHOUSE")}
    return {"command": command, "application": command[-5], "environment": variables | lake}


def _operator(**options: Any) -> Any:
    from backstream.orchestration.job_operators import ReplayOperator

    arguments = ["--plan", "/nowhere/plan.json", "--chunk", "0000"]
    file = "/nowhere/flights.toml"
    name = "flights 0000"
    return ReplayOperator(task_id="replay", name=name, definition_path=file, application_args=arguments, **options)


_TRACE = r"echo java.io.IOException: No space left on device; seq 200 | sed 's/.*/\tat org.A.b(A.scala:&)/'"
_PHASES = "ls run/phases > phases.txt"
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
    """Return the error, the log, and the traces of a job that prints a trace of Java and its sentence."""
    task = _submitter(4, _TRACE, _SENTENCE, _PHASES)
    Path("run").mkdir()
    task.application_args = ["--plan", str(Path("run/plan.json").resolve()), "--chunk", "0000"]
    printed = io.StringIO()
    handler = logging.StreamHandler(printed)
    logger = logging.getLogger("backstream.orchestration.spark_job")
    logger.addHandler(handler)
    error = raised(lambda: task.execute({}))
    logger.removeHandler(handler)
    (file,) = Path("run/errors").iterdir()
    _, *log = printed.getvalue().replace(str(file.resolve()), "FILE").splitlines()
    while_it_ran = Path("phases.txt").read_text(encoding="utf-8").split()
    phases = [while_it_ran, [path.name for path in Path("run/phases").iterdir()]]
    trace = file.read_text(encoding="utf-8").splitlines()
    return {"raised": error, "log": log, "trace": trace, "phases": phases}


def _java_options() -> str:
    """Return the options of a job's Java on a machine that provides huge pages on request."""
    from backstream.spark import java

    java.HUGE_PAGES = Path("huge_pages")
    java.HUGE_PAGES.write_text("always [madvise] never", encoding="utf-8")
    os.environ["BACKSTREAM_CLASS_ARCHIVE"] = ""
    os.environ.pop(java.OPTIONS_VARIABLE, None)
    raised(lambda: _ended_with(1))
    return Path("options").read_text(encoding="utf-8")


def _settings_named(master: str) -> list[str]:
    """Return where `spark-submit` finds settings: the file in its options, the folder in its environment."""
    folder = Path("settings").resolve()
    folder.mkdir(exist_ok=True)
    (folder / "spark-defaults.conf").write_text("spark.ui.enabled false", encoding="utf-8")
    os.environ |= {"SPARK_CONF_DIR": str(folder), "AIRFLOW_CONN_BACKSTREAM_SPARK": _spark_at(master)}
    binary = Path("spark-submit-settings").resolve()
    says = 'printf "%s\\n" "$SPARK_CONF_DIR" "$@" > settings.txt'
    binary.write_text(f"#!/bin/sh\n{says}\nexit 1\n", encoding="utf-8")
    binary.chmod(0o755)
    raised(lambda: _operator(spark_binary=str(binary)).execute({}))
    os.environ.pop("SPARK_CONF_DIR", None)
    named, *words = Path("settings.txt").read_text(encoding="utf-8").splitlines()
    file = words[words.index("--properties-file") + 1] if "--properties-file" in words else ""
    return [Path(each).name for each in (file, named)]


def _spark_at(master: str) -> str:
    return json.dumps({"conn_type": "spark", "host": master})


def _submitted() -> dict[str, Any]:
    os.environ["AIRFLOW_CONN_BACKSTREAM_SPARK"] = LOCAL_SPARK
    command, environment = _spark_command()
    return {"command": command, "environment": environment}
