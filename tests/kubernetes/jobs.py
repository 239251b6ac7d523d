"""Plan runs whose home is in a store, and execute their replay tasks on a cluster in each way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from demo.settings import CHECKOUT
from tests.chain.job import KINDS, LENIENT, publish
from tests.chain.stored import HISTORY
from tests.kubernetes.cluster import IMAGE, Cluster
from tests.lake.store import BUCKET, Store
from tests.spark.histories import Expected, days, definition_of, write_history
from tests.spark.runs import in_ms, toml_value

from backstream.definition.loader import parse_definition
from backstream.lake.reader import load_rows
from backstream.runs.home import Home
from backstream.runs.manifest import load_manifests
from backstream.runs.plan import Mode, Plan
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run

NAMESPACE = "spark"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
LIMIT_S = 300.0
PLACE = "kubernetes"
_Found = TypeVar("_Found")


def write_events(folder: Path, s3: Store) -> None:
    """Write the events of all datasets into the store."""
    write_history(folder, HISTORY)
    for file in folder.rglob("*.parquet"):
        key = f"{BUCKET}/{PLACE}/events/{file.relative_to(folder)}"
        with s3.filesystem.open_output_stream(key) as stream:
            stream.write(file.read_bytes())


def write_definition(folder: Path, name: str) -> Path:
    """Write the definition of a dataset, whose job finishes one chunk after the other."""
    backfill = {"engine": "auto", "chunk": "1d", "max_events_per_job": 1}
    content = definition_of(
        folder, window=KINDS["sliding"], quality=LENIENT | {"verify": 1_000}, backfill=backfill
    )
    content |= {"name": name, "source": {**content["source"], "path": f"s3://{BUCKET}/{PLACE}/events"}}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.toml"
    path.write_text("".join(f"{key} = {toml_value(value)}\n" for key, value in content.items()))
    return path


def plan_days(folder: Path, name: str) -> Plan:
    """Plan the four days of a new dataset."""
    path = write_definition(folder, name)
    request = PlanRequest(path, days(0, 4), mode=Mode.REPLAY, trigger="test", home=Home.from_environment())
    return plan_run(request)


def require_published(plan: Plan) -> None:
    """Publish a run, and check that each window has the expected row once."""
    publish(Plan.load(plan.location))
    rows = load_rows(plan.home, plan.dataset).to_pylist()
    values = {in_ms(row): (row["events"], row["total"]) for row in rows}
    assert len(values) == len(rows)
    definition = parse_definition(plan.definition, "plan")
    assert values == Expected(HISTORY, definition, plan.range).published()


def finished_chunks(plan: Plan) -> dict[str, Any]:
    """Return the manifests in the store by chunk."""
    return {manifest.chunk_id: manifest for manifest in load_manifests(Plan.load(plan.location))}


def settings_of(cluster: Cluster, **others: str) -> str:
    """Return the content of `spark-defaults.conf`; `others` has `_` for `.` in names."""
    settings = {
        "spark.kubernetes.container.image": IMAGE,
        "spark.kubernetes.authenticate.driver.serviceAccountName": "spark",
        # Its port is not 443, which Spark expects.
        "spark.kubernetes.driver.master": f"https://kubernetes.default.svc:{cluster.ports['api']}",
        "spark.pyspark.python": sys.executable,
        "spark.executor.instances": "1",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": QUICK,
        "spark.executor.extraJavaOptions": QUICK,
        "spark.sql.shuffle.partitions": "2",
    }
    settings |= {name.replace("_", "."): value for name, value in others.items()}
    return "".join(f"{name} {value}\n" for name, value in settings.items())


def connection_to(cluster: Cluster, mode: str, namespace: str = NAMESPACE, limit_s: float = 120) -> str:
    """Return the Airflow connection of a way as JSON."""
    extra = {"deploy-mode": mode, "namespace": namespace, "start-timeout-s": limit_s}
    return json.dumps({"conn_type": "spark", "host": cluster.master, "extra": extra})


@dataclass
class Result:
    """The end of a task: the class and the message of its error, and its log."""

    kind: str
    message: str
    log: str

    @property
    def sentence(self) -> str:
        """The first line of the message."""
        return self.message.partition("\n")[0]


@dataclass
class Task:
    """A replay task of a run in a process of its own.

    Attributes:
        cluster: cluster of the task.
        plan: plan of the run.
        mode: `deploy-mode` of the connection.
        namespace: namespace of its pods.
        limit_s: limit for pods that wait.
        settings: other settings of Spark.
    """

    cluster: Cluster
    plan: Plan
    mode: str
    namespace: str = NAMESPACE
    limit_s: float = 120
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        number = len(list(self.cluster.folder.parent.glob("task-*")))
        self.folder = self.cluster.folder.parent / f"task-{number}"
        self.folder.mkdir()
        (self.folder / "spark-defaults.conf").write_text(settings_of(self.cluster, **self.settings))
        environment = os.environ | {
            "AIRFLOW_HOME": str(self.folder),
            "AIRFLOW_CONN_PLACE": connection_to(self.cluster, self.mode, self.namespace, self.limit_s),
            "KUBECONFIG": str(self.cluster.kubeconfig),
            "PYTHONPATH": str(CHECKOUT),
            "SPARK_CONF_DIR": str(self.folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        chunks = [chunk.chunk_id for chunk in self.plan.chunks]
        program = [sys.executable, "-u", "-m", "tests.e2e.run_task", str(self.folder / "result.json")]
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*program, "place", self.plan.location, *chunks],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def log(self) -> str:
        """The log of the task until now."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def until(self, what: str, find: Callable[[], _Found]) -> _Found:
        """Return what a function finds, while the task runs."""
        until_s = time.monotonic() + LIMIT_S
        while not (found := find()):
            assert self.process.poll() is None, f"the task ended before: {what}\n{self.log[-4000:]}"
            assert time.monotonic() < until_s, f"not in time: {what}\n{self.log[-4000:]}"
            time.sleep(0.2)
        return found

    def pod(self, role: str, phase: str = "Running") -> str:
        """Return the name of a pod of the task in a phase; empty without one."""
        found = [
            pod["metadata"]["name"]
            for pod in self.cluster.pods(self.namespace)
            if pod["metadata"]["labels"].get("spark-role") == role and pod["status"]["phase"] == phase
        ]
        return found[0] if found else ""

    def kill_pod(self, name: str) -> None:
        """Delete a pod without a grace period."""
        words = ["delete", "pod", name, "-n", self.namespace, "--force", "--grace-period=0"]
        self.cluster.kubectl(*words)

    def cancel(self) -> None:
        """End the task as a person does."""
        self.process.send_signal(signal.SIGTERM)

    def result(self) -> Result:
        """Return the end of the task, and check that nothing of it is left."""
        try:
            self.process.wait(LIMIT_S)
        finally:
            self.process.kill()
        kind, message = json.loads((self.folder / "result.json").read_text())
        self.require_nothing_left()
        return Result(kind, message, self.log)

    def require_nothing_left(self) -> None:
        """Check that no pod, secret, service, or application is left in the namespace."""
        kinds = "pods,secrets,services,sparkapplications"

        def left() -> list[str]:
            listed = json.loads(self.cluster.kubectl("get", kinds, "-n", self.namespace, "-o", "json"))
            return [f"{item['kind']} {item['metadata']['name']}" for item in listed["items"]]

        self.cluster.wait(f"nothing is left: {left()}", lambda: not left(), 60)
