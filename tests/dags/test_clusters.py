"""What the connection to a cluster comes to: Airflow's command line, given to the real `spark-submit`.

There is no cluster. Instead of the job, `spark-submit` starts a program that tells the settings it was given: with
the deploy mode `client` the driver is on this machine. Kubernetes' API, asked for executors, is played.
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.dags.conftest import Ask

SETTINGS = """\
import json, sys
from pyspark.java_gateway import launch_gateway

found = launch_gateway().jvm.java.lang.System.getProperties()
told = {name: found[name] for name in found if name.startswith("spark.")}
print(json.dumps({"settings": told, "arguments": sys.argv[1:]}))
"""
SECRETS = ("p@/w", "p%40%2Fw", "se/cr+et", "se%2Fcr%2Bet")


@pytest.fixture(scope="module")
def commands(ask: Ask) -> dict[str, dict[str, Any]]:
    """The command line for each cluster."""
    return dict(ask("clusters"))


def command_and_environment(given: dict[str, Any], program: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """A command line that starts another program than the job."""
    file = folder / "program.py"
    file.write_text(program, encoding="utf-8")
    (folder / "spark-defaults.conf").write_text("spark.kubernetes.container.image registry/spark:4.3.0\n")
    places = {"SPARK_CONF_DIR": str(folder), "HADOOP_CONF_DIR": str(folder)}
    quick = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    command = [str(file) if word == given["application"] else word for word in given["command"]]
    # What another test's Spark left in the environment must not help.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    return command, clean | given["environment"] | places | quick


def taken(given: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What the real `spark-submit` makes of a command line."""
    command, environment = command_and_environment(given, SETTINGS, folder)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not any(secret in done.stdout + done.stderr for secret in SECRETS)
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ("standalone", {"spark.master": "spark://master:7077"}),
        (
            "kubernetes",
            {
                "spark.master": "k8s://https://cluster:6443",
                "spark.kubernetes.namespace": "backfills",
                "spark.kubernetes.container.image": "registry/spark:4.3.0",
            },
        ),
        ("yarn", {"spark.master": "yarn", "spark.yarn.queue": "backfill"}),
    ],
)
def test_spark_submit_takes_the_command_line_for_a_cluster(
    cluster: str, expected: dict[str, str], commands: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    found = taken(commands[cluster], tmp_path)

    common = {"spark.submit.deployMode": "client", "spark.app.name": "flights 0000"}
    wanted = common | expected
    assert {name: found["settings"].get(name) for name in wanted} == wanted
    assert found["arguments"] == ["--plan", "/nowhere/plan.json", "--chunk", "0000"]


def test_no_key_is_in_a_command_line_though_the_driver_inherits_them(commands: dict[str, dict[str, Any]]) -> None:
    for given in commands.values():
        assert not any(secret in word for secret in SECRETS for word in given["command"])
        lake = [given["environment"][name] for name in ("BACKSTREAM_CATALOG_URI", "BACKSTREAM_WAREHOUSE")]
        assert lake == ["postgresql+psycopg2://lake:p%40%2Fw@db/flights", "s3://AK%2FID:se%2Fcr%2Bet@lake/prod"]


class Kubernetes(http.server.BaseHTTPRequestHandler):
    """As much of the API as Spark's driver asks for: nothing is there, and what is made is noted."""

    made: ClassVar[list[tuple[str, dict[str, Any]]]] = []

    def do_GET(self) -> None:
        """A list without items; nothing is watched."""
        listed = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}
        self._answer(404 if "watch=true" in self.path else 200, listed)

    def do_POST(self) -> None:
        """It is made as asked for."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.made.append((self.path, asked))
        self._answer(201, asked)

    def do_DELETE(self) -> None:
        """It is gone."""
        self._answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing on the terminal."""


EXECUTORS = """\
import time
from backstream.spark.session import submitted_context

submitted_context("executors are asked for")
time.sleep(60)
"""


def test_executor_pods_on_kubernetes_receive_no_settings_and_no_secrets(
    commands: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Kubernetes) as api:
        threading.Thread(target=api.serve_forever, daemon=True).start()
        master = f"k8s://http://127.0.0.1:{api.server_port}"
        command, environment = command_and_environment(commands["kubernetes"], EXECUTORS, tmp_path)
        words = [word.replace("k8s://https://cluster:6443", master) for word in command]
        with subprocess.Popen(
            words, env=environment, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as driver:
            until = time.monotonic() + 120
            while not _pods() and driver.poll() is None and time.monotonic() < until:
                time.sleep(0.1)
            with suppress(ProcessLookupError):  # it has failed, and says below why
                os.killpg(driver.pid, signal.SIGKILL)
            said = driver.communicate()[0].decode()
        api.shutdown()

    assert _pods(), said
    [container] = _pods()[0]["spec"]["containers"]
    assert container["image"] == "registry/spark:4.3.0"
    assert not [each["name"] for each in container["env"] if each["name"].startswith("BACKSTREAM")]
    assert not any(secret in json.dumps(Kubernetes.made) + said for secret in SECRETS)


def _pods() -> list[dict[str, Any]]:
    return [asked for path, asked in Kubernetes.made if path == "/api/v1/namespaces/backfills/pods"]
