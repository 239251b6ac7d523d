"""A Spark standalone cluster as processes, with workers that may not see some folders."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from demo.processes import Service
from demo.settings import CHECKOUT, free_ports
from tests.chain.submitted import END
from tests.class_archive import quick_options

from backstream.runs.plan import Plan
from backstream.spark.session import SMALL_DATA_SETTINGS

SPARK = Path(sys.executable).parent
QUICK = {name: value for name, value in SMALL_DATA_SETTINGS.items() if name != "spark.master"}
LIMIT_S = 600
PACKAGES = {"PYTHONPATH": os.pathsep.join([str(CHECKOUT / "pipelines"), str(CHECKOUT)])}


def require_mount_namespaces() -> None:
    """Skip the test if a folder cannot be hidden from a process."""
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine does not let us hide a folder from a process: unshare -m failed")


class Cluster:
    """A master and its workers, each of one core."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        """Start the master; the variables are those of its workers."""
        self.folder, self.variables = folder, dict(variables)
        self.port, *self.web_ports = free_ports(4)
        self.services = [self._started("master", ["-h", "127.0.0.1", "-p", str(self.port)], self.web_ports[0])]

    @property
    def master(self) -> str:
        """Its address."""
        return f"spark://127.0.0.1:{self.port}"

    def add_worker(self, number: int, hidden: Path | None = None) -> Service:
        """Start a worker; if it must not see a folder, an empty disk is mounted over it."""
        words = ["-c", "1", "-m", "1g", "-h", "127.0.0.1", self.master]
        self.services.append(self._started(f"worker-{number}", words, self.web_ports[number], hidden))
        return self.services[-1]

    def submit(self, *jobs: tuple[str, Plan]) -> list[tuple[int, str]]:
        """Run the jobs of all chunks of some plans, each with a fault; return their status and their output."""
        result = self.run(*jobs)
        # spark-submit writes all that Python prints to its standard output
        parts = re.split(rf"^{END}(\d+)\n", result.stdout, flags=re.MULTILINE)
        assert len(parts) == 2 * len(jobs) + 1, result.stdout + result.stderr
        return [(int(status), said) for said, status in zip(parts[::2], parts[1::2], strict=False)]

    def run(self, *jobs: tuple[str, Plan]) -> subprocess.CompletedProcess[str]:
        """Run jobs as `submit` does, and return the process, which may have been killed."""
        settings = QUICK | {
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": quick_options(),
            "spark.speculation": "true",
            "spark.default.parallelism": "2",
            "spark.sql.shuffle.partitions": "2",
        }
        command = [str(SPARK / "spark-submit"), "--master", self.master]
        command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        command += [str(CHECKOUT / "tests" / "chain" / "submitted.py")]
        command += [word for fault, plan in jobs for word in (fault, plan.location)]
        environment = _environment(self.folder, os.environ | PACKAGES)
        return subprocess.run(
            command, env=environment, check=False, capture_output=True, text=True, timeout=LIMIT_S
        )

    def stop(self) -> None:
        """End all of it."""
        for service in reversed(self.services):
            service.process.terminate()
        for service in self.services:
            service.process.wait(30)

    def _started(self, name: str, words: list[str], web_port: int, hidden: Path | None = None) -> Service:
        program = f"org.apache.spark.deploy.{name.partition('-')[0]}.{name.partition('-')[0].title()}"
        command = [str(SPARK / "spark-class"), program, "--webui-port", str(web_port), *words]
        if hidden:
            script = f'mount -t tmpfs none "{hidden}" && exec "$@"'
            command = ["unshare", "-m", "sh", "-c", script, "sh", *command]
        return Service.started(name, command, self.folder, _environment(self.folder, self.variables))


def _environment(folder: Path, variables: Mapping[str, str]) -> dict[str, str]:
    return {
        **variables,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_JAVA_OPTS": quick_options(),
        "PYSPARK_PYTHON": sys.executable,
    }


@contextmanager
def cluster_in(folder: Path, variables: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """A cluster for the length of a block; the variables are those of its workers, by default the driver's."""
    cluster = Cluster(folder, os.environ | PACKAGES if variables is None else variables)
    try:
        yield cluster
    finally:
        cluster.stop()
