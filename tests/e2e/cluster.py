"""What compose brings up, as processes: Airflow on PostgreSQL, a Spark master, two workers. The lake is in S3."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import psutil
from demo.airflow_api import FINISHED, AirflowApi
from demo.processes import Service
from demo.settings import CHECKOUT, USER, Spark, free_ports
from demo.stack import Stack
from sqlalchemy import make_url
from tests.class_archive import quick_options
from tests.e2e.listening import LINEAGE_PATH, Received, listening
from tests.e2e.questions import can_answer
from tests.house.compose import commands
from tests.house.compose import environment as compose_environment
from tests.lake import postgres
from tests.lake.store import BUCKET, Store

CATALOG_PASSWORD = "catalog-secret-7f3a"  # noqa: S105 - to be looked for where it must not be
ALERT_TOKEN = "alert-secret-9c1b"  # noqa: S105 - to be looked for where it must not be
FOLDER = "cluster"
LIMIT_S = 900
_POLL_S = 1.0
_DEFERRABLE = "AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE"
AIRFLOW = ("api-server", "scheduler", "dag-processor", "triggerer")
"""The services of Airflow in the compose file, whose commands are run here word for word but for ports."""

SLEEPERS = '''\
"""Runs that never end: each waits for a slot of a pool that has none."""

from __future__ import annotations

from airflow.sdk import DAG, task

with DAG("sleepers", schedule=None, max_active_runs=50, is_paused_upon_creation=False):

    @task(pool="nobody")
    def wait() -> None:
        """Never begins."""

    wait()
'''


@dataclass
class Cluster:
    """The running stack, by its API and its folders."""

    stack: Stack
    api: AirflowApi
    admin: httpx.Client
    viewer: httpx.Client
    home: Path
    catalog: str
    received: Received

    def trigger(self, dag_id: str, **conf: Any) -> str:
        """Start a run by hand; return its id."""
        answer = self.admin.post(f"/api/v2/dags/{dag_id}/dagRuns", json={"logical_date": None, "conf": conf})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["dag_run_id"])

    def fail(self, dag_id: str, run_id: str) -> None:
        """Mark a run as failed; again, where PostgreSQL has ended a deadlock with the scheduler by refusing it."""
        path, body = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}", {"state": "failed"}
        self.until("the run is marked", lambda: self.admin.patch(path, json=body).status_code == 200)

    def runs(self, dag_id: str, **query: Any) -> list[dict[str, Any]]:
        """The runs of a DAG."""
        answer = self.admin.get(f"/api/v2/dags/{dag_id}/dagRuns", params={"limit": 100, **query})
        return list(answer.json()["dag_runs"])

    def state(self, dag_id: str, run_id: str) -> str:
        """Of a run."""
        return self.api.run_state(dag_id, run_id)

    def task(self, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
        """One task of a run."""
        return next(each for each in self.api.task_instances(dag_id, run_id) if each["task_id"] == task_id)

    def log_of(self, dag_id: str, run_id: str, task_id: str) -> str:
        """What a task said in its last attempt."""
        entries = self.api.log(self.task(dag_id, run_id, task_id))
        return "\n".join(json.dumps(each) for each in entries)

    def until(self, what: str, done: Callable[[], Any]) -> Any:
        """Wait until something is so, as long as all processes live; return what it gave."""
        end = time.monotonic() + LIMIT_S
        while not (found := done()):
            self.stack.require_alive()
            assert time.monotonic() < end, f"waited in vain until {what}\n{self._standing()}"
            time.sleep(_POLL_S)
        return found

    def _standing(self) -> str:
        """Where the tasks of unfinished runs stand, and the last that each process has printed."""
        known = [(dag["dag_id"], run) for dag in self._dags() for run in self.runs(dag["dag_id"])]
        unfinished = [(dag_id, run["dag_run_id"]) for dag_id, run in known if run["state"] not in FINISHED]
        tasks = [
            f"  {dag_id} {run_id} {task['task_id']}[{task['map_index']}] try {task['try_number']}: {task['state']}"
            for dag_id, run_id in unfinished
            for task in self.api.task_instances(dag_id, run_id)
        ]
        return "\n".join([*tasks, *self.stack.tails()])

    def _dags(self) -> list[dict[str, Any]]:
        return list(self.admin.get("/api/v2/dags").json()["dags"])

    @property
    def catalog_uri(self) -> str:
        """The address of the lake's catalog, which the tasks know by a connection."""
        return self.catalog.replace("postgres@", f"postgres:{CATALOG_PASSWORD}@")

    def until_finished(self, dag_id: str, run_id: str) -> str:
        """Wait for the end of a run; return its state."""
        return str(
            self.until(
                f"{dag_id} {run_id} has ended",
                lambda: state if (state := self.state(dag_id, run_id)) in FINISHED else None,
            )
        )

    def until_asked(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """Wait until a run asks for approval; return the question."""

        def asked() -> dict[str, Any] | None:
            assert self.state(dag_id, run_id) not in FINISHED, self.api.task_instances(dag_id, run_id)
            return self._open_question(dag_id, run_id)

        return dict(self.until(f"{dag_id} {run_id} asks", asked))

    def decide(self, dag_id: str, run_id: str, choice: str) -> str:
        """Answer the question of a run until that is settled, and wait for the run's end; return its state."""

        def ended() -> str | None:
            if self._open_question(dag_id, run_id):
                assert self.answer(self.admin, dag_id, run_id, choice) == 200
            return state if (state := self.state(dag_id, run_id)) in FINISHED else None

        return str(self.until(f"{dag_id} {run_id} has ended", ended))

    def _open_question(self, dag_id: str, run_id: str) -> dict[str, Any] | None:
        task = self.task(dag_id, run_id, "approve")
        if not can_answer(self.stack, task):
            return None
        answer = self.admin.get(self.question(dag_id, run_id))
        return answer.json() if answer.status_code == 200 and not answer.json()["response_received"] else None

    @staticmethod
    def question(dag_id: str, run_id: str) -> str:
        """The address of the question of a run."""
        return f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/taskInstances/approve/-1/hitlDetails"

    def answer(self, client: httpx.Client, dag_id: str, run_id: str, choice: str) -> int:
        """Answer a question; return the server's status."""
        body = {"chosen_options": [choice], "params_input": {}}
        return client.patch(self.question(dag_id, run_id), json=body).status_code

    def jobs(self) -> list[psutil.Process]:
        """The Spark drivers that run, by the plan in their command line: a JVM, and its Python."""
        running = psutil.process_iter(["cmdline"])
        return [each for each in running if self._is_driver(each.info["cmdline"] or [])]

    def _is_driver(self, words: list[str]) -> bool:
        """Not the short-lived JVM that puts the command line together."""
        is_ours = "--plan" in words and any(str(self.home / "runs") in word for word in words)
        return is_ours and "org.apache.spark.launcher.Main" not in words

    def texts(self) -> Iterator[tuple[Path, str]]:
        """Every file of text that the stack has left: logs, plans, reports, and what its processes printed."""
        for path in self.home.rglob("*"):
            if path.is_file() and path.suffix in {".log", ".json", ".html", ".txt", ".conf"}:
                yield path, path.read_text(encoding="utf-8", errors="replace")


def compose(service: str) -> list[list[str]]:
    """The command and the health check of a service of Airflow in the compose file."""
    programs = Path(sys.executable).parent
    return [
        [str(programs / line[0]), *(word.replace("8080", "{port}") for word in line[1:])]
        for line in commands(service)
    ]


@contextmanager
def running(folder: Path, definitions: Path, store: Store, add_dags: Callable[[Path], None]) -> Iterator[Cluster]:
    """The stack for the length of a block; the lake's files are in the store."""
    binaries = postgres.binaries()
    assert binaries is not None
    home = folder / "home"
    # What a crashed scheduler had locked stays locked while children of it hold its connections.
    patient = [*postgres.QUICKEST, "idle_in_transaction_session_timeout=20s"]
    with postgres.running(binaries, patient) as server, _spark(folder / "spark") as far, listening() as received:
        databases = {name: server.new_database() for name in ("airflow", "lake")}
        settings = _settings(definitions, databases["airflow"], _connection(server, databases["lake"]), received)
        settings["AIRFLOW_CONN_BACKSTREAM_WAREHOUSE"] = json.dumps(_warehouse(store))
        settings["AIRFLOW_CONN_FAR_SPARK"] = json.dumps(far)
        _dag_files(folder / "dags")
        add_dags(folder / "dags")
        spark, services = Spark(far["host"], chunks_at_once=2), {name: compose(name)[0] for name in AIRFLOW}
        with Stack(home, spark, settings | _dags(folder / "dags"), services) as stack:
            limit_spark(stack)
            cluster = _cluster(stack, home, databases["lake"], received)
            with closing(cluster.admin), closing(cluster.viewer):
                yield cluster


def _connection(server: postgres.Server, database: str) -> dict[str, str]:
    name = make_url(database).database or ""
    known = {"login": postgres.USER, "password": CATALOG_PASSWORD, "host": str(server.folder)}
    return {"conn_type": "postgres", "schema": name} | known


def _warehouse(store: Store) -> dict[str, Any]:
    known = {"login": store.key_id, "password": store.secret, "extra": {"endpoint_url": store.endpoint}}
    return {"conn_type": "generic", "host": f"s3://{BUCKET}/{FOLDER}", **known}


def _settings(definitions: Path, database: str, catalog: dict[str, str], received: Received) -> dict[str, str]:
    alert = {"conn_type": "http", "host": f"http://127.0.0.1:{received.port}/hook", "password": ALERT_TOKEN}
    lineage = {"type": "http", "url": f"http://127.0.0.1:{received.port}", "endpoint": LINEAGE_PATH.lstrip("/")}
    return {
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(lineage),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database,
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin,viewer:viewer",
        "AIRFLOW__CORE__PARALLELISM": "6",
        _DEFERRABLE: compose_environment("scheduler")[_DEFERRABLE],
        # On a busy machine a scheduler may be silent for long, and must not be taken for dead by itself.
        "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "120",
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "60",
        # The files of the DAGs stay as they are.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
        "AIRFLOW__METRICS__OTEL_ON": "True",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{received.port}",
        "OTEL_METRIC_EXPORT_INTERVAL": "5000",
        "AIRFLOW_CONN_BACKSTREAM_ALERTS": json.dumps(alert),
        "AIRFLOW_CONN_BACKSTREAM_CATALOG": json.dumps(catalog),
        "BACKSTREAM_DEFINITIONS": str(definitions),
        "BACKSTREAM_EXPECTATIONS": str(definitions),
        "PYTHONPATH": os.pathsep.join([str(CHECKOUT / "pipelines"), str(CHECKOUT)]),
    }


def _dags(folder: Path) -> dict[str, str]:
    return {"AIRFLOW__CORE__DAGS_FOLDER": str(folder)}


def _dag_files(folder: Path) -> None:
    """The project's own, and one whose runs never end."""
    shutil.copytree(CHECKOUT / "dags", folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "sleepers.py").write_text(SLEEPERS, encoding="utf-8")


def limit_spark(stack: Stack) -> None:
    """A core for each application, so that two run at the same time on two workers of one core."""
    limits = {
        "spark.cores.max": "1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": quick_options(),
    }
    with (stack.place.spark_conf / "spark-defaults.conf").open("a", encoding="utf-8") as file:
        file.writelines(f"{name} {value}\n" for name, value in limits.items())


def _cluster(stack: Stack, home: Path, catalog: str, received: Received) -> Cluster:
    api = stack.start()
    passwords = json.loads((stack.place.airflow / "passwords.json").read_text(encoding="utf-8"))
    admin, viewer = (_client(stack.place.url, name, passwords[name]) for name in (USER, "viewer"))
    api.set_pool("nobody", 0)
    return Cluster(stack, api, admin, viewer, home, catalog, received)


def _client(url: str, name: str, password: str) -> httpx.Client:
    client = httpx.Client(base_url=url, trust_env=False, timeout=60)
    token = client.post("/auth/token", json={"username": name, "password": password}).json()["access_token"]
    client.headers["Authorization"] = f"Bearer {token}"
    return client


@contextmanager
def _spark(folder: Path) -> Iterator[dict[str, Any]]:
    """A master and two workers, by the commands of the compose file on free ports; yields a connection to them.

    The connection has drivers run on the workers.
    """
    port, rest_port, *web_ports = map(str, free_ports(5))
    master = f"spark://127.0.0.1:{port}"
    known = {"spark-master": "127.0.0.1", "7077": port, "spark://spark-master:7077": master, "2g": "1g", "2": "1"}
    env = _spark_environment(folder) | {"SPARK_MASTER_OPTS": f"-Dspark.master.rest.port={rest_port}"}
    services = [_started("spark-master", known | {"8080": web_ports[0]}, folder, env)]
    try:
        _until_listening(int(port), services[0])
        for number, web_port in enumerate(web_ports[1:3], start=1):
            services.append(_started(f"spark-worker-{number}", known | {"8081": web_port}, folder, env))
        extra = {"deploy-mode": "cluster", "rest-port": rest_port}
        yield {"conn_type": "spark", "host": master, "extra": extra}
    finally:
        for service in services:
            service.process.terminate()
        for service in services:
            service.process.wait(30)


def _spark_environment(folder: Path) -> dict[str, str]:
    return os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_JAVA_OPTS": quick_options(),
        "PYSPARK_PYTHON": sys.executable,
    }


def _started(name: str, known: Mapping[str, str], folder: Path, env: Mapping[str, str]) -> Service:
    binary, *words = (known.get(word, word) for word in commands(name)[0])
    return Service.started(name, [str(Path(sys.executable).parent / binary), *words], folder, env)


def _until_listening(port: int, service: Service) -> None:
    end = time.monotonic() + 60
    while True:
        service.require_alive()
        with socket.socket() as probe:
            if not probe.connect_ex(("127.0.0.1", port)):
                return
        assert time.monotonic() < end, service.tail()
        time.sleep(0.2)
