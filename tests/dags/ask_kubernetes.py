"""Questions about drivers on Kubernetes, whose API is played; `make kubernetes` has a real one."""

from __future__ import annotations

import http.server
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from tests.dags.answers import raised

KEY = "backstream-1"
DRIVER, EXECUTOR = f"{KEY}-driver", "events-exec-1"
RIGHTS = 'pods "x" is forbidden: User "system:serviceaccount:spark:default" cannot get resource "pods"'
QUOTA = 'pods "x-exec-1" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1'
GIVEN_UP = "26/11/28 ERROR ExecutorPodsLifecycleManager: Max number of executor failures (3) reached"
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient cpu.",
}


def _pod(name: str, phase: str, state: dict[str, Any] | None = None, **others: Any) -> dict[str, Any]:
    role = "driver" if name == DRIVER else "executor"
    containers = [{"name": f"spark-kubernetes-{role}", "image": "spark:4"}]
    told = {"name": containers[0]["name"], "image": "spark:4", "imageID": "", "restartCount": 0, "ready": False}
    return {
        "metadata": {"name": name, "labels": {"spark-role": role}, **others.pop("metadata", {})},
        "spec": {"containers": containers},
        "status": {"phase": phase, "containerStatuses": [told | {"state": state}] if state else [], **others},
    }


def _ended(status: int, reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": status, "reason": reason}}


RUNNING = _pod(DRIVER, "Running", {"running": {}})
DELETED = {"metadata": {"deletionTimestamp": "2026-11-28T12:00:00Z"}}
CASES: dict[str, tuple[list[dict[str, Any]], str]] = {
    "succeeded": ([_pod(DRIVER, "Succeeded", _ended(0, "Completed"))], ""),
    "succeeded beside another container": ([_pod(DRIVER, "Running", _ended(0, "Completed"))], ""),
    "works": ([RUNNING, _pod(EXECUTOR, "Running"), _pod("events-exec-2", "Pending")], ""),
    "out of memory": ([_pod(DRIVER, "Failed", _ended(137, "OOMKilled"))], ""),
    "killed": ([_pod(DRIVER, "Failed", _ended(137))], ""),
    "evicted": ([_pod(DRIVER, "Failed", reason="Evicted", message="The node was low on memory.")], ""),
    "deleted": ([_pod(DRIVER, "Running", _ended(143), **DELETED)], ""),
    "gone": ([], ""),
    "no rights": ([_pod(DRIVER, "Failed", _ended(1))], f"Message: {RIGHTS}. Received status: Status(code=403)"),
    "quota": ([_pod(DRIVER, "Failed", _ended(1))], f"Message: {QUOTA}. Received status: ..\n{GIVEN_UP}"),
    "quota before another error": ([_pod(DRIVER, "Failed", _ended(1))], f"Message: {QUOTA}. Received status: .."),
    "an error": ([_pod(DRIVER, "Failed", _ended(1))], "INFO x\nValueError: no such month\n\tat a.b(c)"),
    "image": (
        [_pod(DRIVER, "Pending", {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}})],
        "",
    ),
    "configuration": (
        [_pod(DRIVER, "Pending", {"waiting": {"reason": "CreateContainerConfigError", "message": "no secret"}})],
        "",
    ),
    "no node": ([_pod(DRIVER, "Pending", conditions=[UNSCHEDULABLE])], ""),
    "no node for executors": ([RUNNING, _pod(EXECUTOR, "Pending", conditions=[UNSCHEDULABLE])], ""),
}
"""The pods of a job, and the log of its driver."""


class Api(http.server.BaseHTTPRequestHandler):
    """The API server: it has the pods of a case, and keeps what is created and deleted."""

    pods: list[dict[str, Any]] = []  # noqa: RUF012 - a server makes an instance per request
    log = ""
    created: list[dict[str, Any]] = []  # noqa: RUF012 - as above
    requests: list[str] = []  # noqa: RUF012 - as above

    def do_GET(self) -> None:
        """The pods, or the log of the driver."""
        path = urlsplit(self.path).path
        if path.endswith("/log"):
            stamped = "".join(f"2026-11-28T12:00:00.1Z {line}\n" for line in self.log.splitlines())
            self._answer(200, stamped.encode())
        elif path.endswith("/pods"):
            self._answer(200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": self.pods})
        else:
            self._answer(404, {"message": "not found"})

    def do_POST(self) -> None:
        """It is created."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.created.append(body)
        self.requests.append(f"POST {urlsplit(self.path).path}")
        self._answer(201, body | {"metadata": {**body["metadata"], "uid": "1"}})

    def do_PATCH(self) -> None:
        """It is changed."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200, {"metadata": {}})

    def do_DELETE(self) -> None:
        """It is deleted."""
        self.requests.append(f"DELETE {urlsplit(self.path).path}")
        if "/pods/" in self.path:
            type(self).pods = []
        self._answer(200, {})

    def _answer(self, status: int, body: dict[str, Any] | bytes) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing on the terminal."""


@contextmanager
def _api() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        kubeconfig = {
            "current-context": "x",
            "clusters": [{"name": "x", "cluster": {"server": "http://elsewhere"}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "users": [{"name": "x", "user": {}}],
        }
        Path("kubeconfig").write_text(json.dumps(kubeconfig), encoding="utf-8")
        os.environ["KUBECONFIG"] = str(Path("kubeconfig").resolve())
        yield f"k8s://{url}"
        server.shutdown()


def kubernetes() -> dict[str, Any]:
    """Return the states of drivers, and what is created and deleted for a job."""
    with _api() as master:
        states = {name: _state(master, *case) for name, case in CASES.items()}
        Api.pods, Api.log = [RUNNING], "first\nsecond"
        submitted = _submitted(master)
    refused = "k8s://http://127.0.0.1:9"
    checked = {mode: _checked(mode) for mode in ("client", "cluster", "operator", "swarm")}
    unreachable = raised(lambda: _runner(refused).poll(KEY))
    return {"states": states, **submitted, "unreachable": unreachable, "checked": checked}


def _checked(mode: str) -> list[Any]:
    """Return what the check of an installation finds, and whether its tasks wait without a slot."""
    from backstream.orchestration import check_airflow

    extra = {"deploy-mode": mode}
    connection = SimpleNamespace(
        conn_id="backstream_spark", conn_type="spark", host="k8s://https://x", port=None, extra_dejson=extra
    )
    vars(check_airflow)["_load_connection"] = lambda _: connection
    vars(check_airflow)["_check_pool"] = lambda *, is_deferred: iter([is_deferred])
    finding, is_deferred = check_airflow._check_spark_connection()  # noqa: SLF001 - the check of one connection
    return [finding.state.value, finding.text, is_deferred]


def _runner(master: str, kind: str = "ClusterSubmit") -> Any:
    from backstream.orchestration.runners.selection import make_runner

    settings = {"conn_id": "x", "master": master, "namespace": "spark", "start_limit_s": 1e-9}
    return make_runner(kind, settings)


def _state(master: str, pods: list[dict[str, Any]], log: str) -> list[Any]:
    """Return phase and cause at the second look, without the seconds that a pod has waited."""
    Api.pods, Api.log = pods, log
    runner = _runner(master)
    runner.poll(KEY)
    state = runner.poll(KEY)
    return [state.phase.value, state.cause.partition(" (waited")[0], state.is_certain]


def _submitted(master: str) -> dict[str, Any]:
    """Return the manifest of a job by the operator, the requests, and two readings of the log."""
    from backstream.orchestration.runners import kubernetes_driver, spark_application
    from backstream.orchestration.runners.job_runner import SparkJob
    from backstream.runs.home import Home

    folder, template = Path("settings").resolve(), Path("driver.yaml").resolve()
    folder.mkdir()
    template.write_text("spec: {tolerations: [{key: batch}]}\n", encoding="utf-8")
    lines = [
        "spark.master local",
        "spark.kubernetes.container.image registry/spark:4",
        f"spark.kubernetes.driver.podTemplateFile {template}",
    ]
    (folder / "spark-defaults.conf").write_text("\n".join(lines), encoding="utf-8")
    os.environ["SPARK_CONF_DIR"] = str(folder)
    vars(kubernetes_driver)["stored_environment"] = lambda *_: {"BACKSTREAM_WAREHOUSE": "s3://KEY:SECRET@lake/x"}
    home, errors = Home(Path("/x"), "s3://lake/home"), Path("/x")
    job = SparkJob("events", "backstream.jobs.replay", ("--plan", "p"), home, errors)
    runner = _runner(master, spark_application.SparkOperator.__name__)
    key = runner.submit(job, "s3://lake/home/error.txt")
    *_, manifest = Api.created
    first, position = runner.read_log(KEY, "")
    again, _ = runner.read_log(KEY, position)
    requests = [request.replace(key, "KEY") for request in Api.requests]
    on_disk = SparkJob("events", job.module, (), Home(Path("/home")), Path("/x"))
    return {
        "manifest": manifest,
        "key": key,
        "requests": requests,
        "logs": [first, again],
        "on a disk": raised(lambda: runner.submit(on_disk, "")),
    }
