"""A real Airflow publishes on a real control plane in each way, and cancels and repeats jobs there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from demo.airflow_api import FINISHED, AirflowApi
from demo.settings import USER, Spark
from demo.stack import Stack
from tests.chain.stored import HISTORY, settings
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.jobs import NAMESPACE, PLACE, connection_to, settings_of, write_definition
from tests.lake.store import BUCKET, Store
from tests.spark.histories import Expected, days
from tests.spark.runs import in_ms

from backstream.definition.loader import load_definition
from backstream.lake.reader import load_rows
from backstream.runs.home import Home
from backstream.variables import CACHE_VARIABLE

LIMIT_S = 600
RANGE: dict[str, Any] = {
    "since": "2024-03-01T00:00:00Z",
    "until": "2024-03-05T00:00:00Z",
    "reason": "test",
    "max_spark_jobs": 1,
}
DATASETS = {"by_client": "client", "by_cluster": "cluster", "by_operator": "operator"}
FAULTS = {"cancelled": "operator", "killed": "cluster"}
DAG_FILE = """\
from backstream.airflow import backfill_dags

for mode in ("client", "cluster", "operator"):
    connection, kinds = f"kubernetes_{{mode}}", ["backfill", "reprocess"]
    globals().update(backfill_dags(f"{place}/{{mode}}", kinds=kinds, spark_connection=connection))
"""


class Airflow:
    """The Airflow of these tests."""

    def __init__(self, stack: Stack, api: AirflowApi, folder: Path) -> None:
        self.stack, self.api, self.folder = stack, api, folder
        self.pages = httpx.Client(base_url=stack.place.url, trust_env=False, timeout=60)
        login = {"username": USER, "password": stack.password}
        token = self.pages.post("/auth/token", json=login).json()["access_token"]
        self.pages.headers["Authorization"] = f"Bearer {token}"

    def trigger(self, dataset: str) -> str:
        """Start a run of a dataset, and return its id."""
        return self.api.trigger(f"reprocess_{dataset}", RANGE)

    def until(self, what: str, done: Callable[[], bool]) -> None:
        """Wait until a condition is true."""
        self.stack.wait_until(what, done, LIMIT_S)

    def task(self, dataset: str, run_id: str) -> dict[str, Any]:
        """Return the task that replays all chunks."""
        tasks = self.api.task_instances(f"reprocess_{dataset}", run_id)
        return next(task for task in tasks if task["task_id"] == "replay")

    def require_published(self, dataset: str, run_id: str) -> str:
        """Wait for the end of a run, check that each row is published once, and return the log of the job."""
        dag_id = f"reprocess_{dataset}"
        self.until(f"has run {dataset}", lambda: self.api.run_state(dag_id, run_id) in FINISHED)
        log = self.log(self.task(dataset, run_id))
        assert self.api.run_state(dag_id, run_id) == "success", log
        path = next(self.folder.rglob(f"{dataset}.toml"))
        rows = load_rows(Home.from_environment(), dataset).to_pylist()
        values = {in_ms(row): (row["events"], row["total"]) for row in rows}
        assert len(values) == len(rows)
        assert values == Expected(HISTORY, load_definition(path), days(0, 4)).published()
        return log

    def log(self, task: dict[str, Any]) -> str:
        """Return the log of a task, with that of its trigger."""
        return "\n".join(json.dumps(line) for line in self.api.log(task))  # an exception is beside its event


@pytest.fixture(scope="module")
def airflow(cluster: Cluster, private: Path, s3: Store) -> Iterator[Airflow]:
    """Return an Airflow with a connection and a folder of definitions for each way."""
    folder = private / "dags"
    for dataset, mode in (DATASETS | FAULTS).items():
        write_definition(folder / mode, dataset)
    (folder / "backfills.py").write_text(DAG_FILE.format(place=folder))
    connections = {
        f"AIRFLOW_CONN_KUBERNETES_{mode.upper()}": connection_to(cluster, mode) for mode in DATASETS.values()
    }
    own = {
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder),
        CACHE_VARIABLE: str(private / "airflow-cache"),
        "KUBECONFIG": str(cluster.kubeconfig),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    variables = settings(private, s3, PLACE) | connections | own
    with Stack(private / "state", Spark("local[1]", 3), variables) as stack:
        with (stack.place.spark_conf / "spark-defaults.conf").open("a", encoding="utf-8") as file:
            file.write(settings_of(cluster))
        api = stack.start()
        known = datetime(2000, 1, 1, tzinfo=UTC)
        for dataset in DATASETS | FAULTS:
            dag_id = f"reprocess_{dataset}"
            stack.wait_until("knows the DAG", partial(api.has_dag, dag_id, known), LIMIT_S)
        airflow = Airflow(stack, api, folder)
        yield airflow
        airflow.pages.close()


def pods(cluster: Cluster) -> list[str]:
    """Return the roles of the pods that run."""
    return [
        pod["metadata"]["labels"]["spark-role"]
        for pod in cluster.pods(NAMESPACE)
        if pod["status"]["phase"] == "Running"
    ]


def test_a_range_is_published_in_each_way(airflow: Airflow, cluster: Cluster) -> None:
    runs = {dataset: airflow.trigger(dataset) for dataset in DATASETS}
    deferred = set()
    while not all(airflow.api.run_state(f"reprocess_{dataset}", run) in FINISHED for dataset, run in runs.items()):
        deferred |= {name for name, run in runs.items() if airflow.task(name, run)["state"] == "deferred"}
        airflow.stack.require_alive()
        time.sleep(1)

    for dataset, run_id in runs.items():
        log = airflow.require_published(dataset, run_id)
        assert "chunk 0003 (2024-03-04T00:00Z to 2024-03-05T00:00Z)" in log, log
    assert deferred == {"by_cluster", "by_operator"}
    assert cluster.pods(NAMESPACE) == []


def test_a_cancelled_task_ends_its_job_and_a_cleared_one_publishes(airflow: Airflow, cluster: Cluster) -> None:
    dag_id, run_id = "reprocess_cancelled", airflow.trigger("cancelled")
    airflow.until("has an executor", lambda: "executor" in pods(cluster))
    path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}"
    assert airflow.pages.patch(path, json={"state": "failed"}).status_code == 200
    airflow.until("has no pod", lambda: cluster.pods(NAMESPACE) == [])
    left = json.loads(cluster.kubectl("get", "sparkapplications,secrets", "-n", NAMESPACE, "-o", "json"))
    assert left["items"] == []

    assert airflow.pages.post(f"{path}/clear", json={"dry_run": False}).status_code == 200
    airflow.require_published("cancelled", run_id)
    assert cluster.pods(NAMESPACE) == []


def test_the_retry_of_airflow_resumes_after_a_driver_was_killed(
    airflow: Airflow, cluster: Cluster, s3: Store
) -> None:
    run_id = airflow.trigger("killed")
    prefix = f"{BUCKET}/{PLACE}/home/runs/killed"
    airflow.until("has a chunk", lambda: any("/chunks/" in key for key in s3.keys(prefix)))
    (driver,) = [pod for pod in cluster.pods(NAMESPACE) if pod["metadata"]["labels"]["spark-role"] == "driver"]
    cluster.kubectl("delete", "pod", driver["metadata"]["name"], "-n", NAMESPACE, "--force", "--grace-period=0")
    airflow.require_published("killed", run_id)

    task = airflow.task("killed", run_id)
    first = airflow.log(task | {"try_number": 1})
    assert task["try_number"] == 2
    assert "its driver pod was deleted" in first, first
    assert "Running Spark version" in first  # the log of the driver is in that of the task
    assert cluster.pods(NAMESPACE) == []
