"""The chain of counts on a Spark standalone cluster of two workers, one of which may lack the state folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from demo.processes import Service
from demo.settings import CHECKOUT, free_ports
from tests.chain.breaks import WITHIN
from tests.chain.job import KINDS, plan_of, publish, rows_published, write_definition
from tests.chain.submitted import END
from tests.spark.histories import Expected, random_history
from tests.spark.runs import published

from backstream.definition.loader import parse_definition
from backstream.errors import BackstreamError
from backstream.runs.manifest import load_manifests
from backstream.runs.plan import Plan
from backstream.spark.session import SMALL_DATA_SETTINGS

pytestmark = pytest.mark.e2e
SPARK = Path(sys.executable).parent
QUICK = {name: value for name, value in SMALL_DATA_SETTINGS.items() if name != "spark.master"}
LIMIT_S = 600
KILLED = "an executor killed after writing"


class Cluster:
    """A master and its workers, each of one core."""

    def __init__(self, folder: Path) -> None:
        """Start the master."""
        self.folder = folder
        self.port, *self.web_ports = free_ports(4)
        self.services = [self._started("master", ["-h", "127.0.0.1", "-p", str(self.port)], self.web_ports[0])]

    @property
    def master(self) -> str:
        """Its address."""
        return f"spark://127.0.0.1:{self.port}"

    def add_worker(self, number: int, hidden: Path | None = None) -> Service:
        """Start a worker; one that does not see a folder has an empty disk mounted over it."""
        words = ["-c", "1", "-m", "1g", "-h", "127.0.0.1", self.master]
        self.services.append(self._started(f"worker-{number}", words, self.web_ports[number], hidden))
        return self.services[-1]

    def submit(self, *jobs: tuple[str, Plan]) -> list[tuple[int, str]]:
        """Run the jobs of all chunks of some plans, each with a fault; return their status and their output."""
        settings = QUICK | {
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.speculation": "true",
            "spark.default.parallelism": "2",
            "spark.sql.shuffle.partitions": "2",
        }
        command = [str(SPARK / "spark-submit"), "--master", self.master]
        command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        command += [str(CHECKOUT / "tests" / "chain" / "submitted.py")]
        command += [word for fault, plan in jobs for word in (fault, str(plan.folder.plan))]
        result = subprocess.run(
            command, env=self._environment(), check=False, capture_output=True, text=True, timeout=LIMIT_S
        )
        # spark-submit writes all that Python prints to its standard output
        parts = re.split(rf"^{END}(\d+)\n", result.stdout, flags=re.MULTILINE)
        assert len(parts) == 2 * len(jobs) + 1, result.stdout + result.stderr
        return [(int(status), said) for said, status in zip(parts[::2], parts[1::2], strict=False)]

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
        return Service.started(name, command, self.folder, self._environment())

    def _environment(self) -> dict[str, str]:
        return os.environ | {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(self.folder / "work"),
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(CHECKOUT / "pipelines"), str(CHECKOUT)]),
        }


@contextmanager
def cluster_in(folder: Path) -> Iterator[Cluster]:
    """A cluster for the length of a block."""
    cluster = Cluster(folder)
    try:
        yield cluster
    finally:
        cluster.stop()


@dataclass
class Job:
    """A plan, a fault of its job, and how the job ended."""

    fault: str
    kind: str
    plan: Plan
    status: int = -1
    said: str = ""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Job]:
    """The jobs by fault and kind of window, one after another in one application on two workers.

    The workers share all folders with the driver.
    """
    planned = [
        Job(fault, kind, plan_in(tmp_path_factory.mktemp("job"), kind))
        for kind, faults in {"sliding": [*WITHIN, "a row lost"], "cumulate": ["a fate flipped"]}.items()
        for fault in faults
    ] + [Job(KILLED, kind, plan_in(tmp_path_factory.mktemp("job"), kind)) for kind in KINDS]
    with cluster_in(tmp_path_factory.mktemp("cluster")) as cluster:
        for number in (1, 2):
            cluster.add_worker(number)
        ends = cluster.submit(*((job.fault, job.plan) for job in planned))
    for job, (status, said) in zip(planned, ends, strict=True):
        job.status, job.said = status, said
        print(f"{job.fault}, {job.kind}: status {job.status}\n{job.said[-1_500:]}")  # noqa: T201
    return {(job.fault, job.kind): job for job in planned}


def plan_in(folder: Path, kind: str, trigger: str = "test") -> Plan:
    write_definition(folder, kind)
    return plan_of(folder, trigger)


def require_reference(plan: Plan, kind: str) -> None:
    """Check that what is staged is what the reference makes of the history."""
    history = random_history(seed=len(kind), rows=300, days=2)
    assert (
        published(load_manifests(plan))
        == Expected(history, parse_definition(plan.definition, "plan"), plan.range).published()
    )


def test_a_worker_that_does_not_see_the_state_folder_ends_the_job_before_any_work(tmp_path: Path) -> None:
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine does not let us hide a folder from a process: unshare -m failed")
    plan = plan_in(tmp_path, "tumbling")
    with cluster_in(tmp_path / "cluster") as cluster:
        cluster.add_worker(1)
        blind = cluster.add_worker(2, hidden=Path(plan.home))
        tables = {"none": "the shared folder test", "no marker is asked for": "table `"}
        ends = cluster.submit(*((fault, plan) for fault in tables))
        for (status, said), table in zip(ends, tables.values(), strict=True):
            assert status == 1
            sentence = rf"rows of {table}.* that executors wrote on 127.0.0.1 cannot be seen by the driver"
            assert re.search(sentence, said), said
            assert "hint: the executors must write to a folder that the driver sees; mount it on each" in said
        assert load_manifests(plan) == []
        with pytest.raises(BackstreamError, match="left no manifest"):
            publish(plan)

        blind.process.terminate()
        blind.process.wait(30)
        cluster.add_worker(2)
        ((status, said),) = cluster.submit(("none", plan))
        assert status == 0, said
    require_reference(plan, "tumbling")
    publish(plan)
    assert rows_published(plan) == sum(file.rows for each in load_manifests(plan) for file in each.files[""])


@pytest.mark.parametrize("fault", [*WITHIN, "a row lost"])
def test_what_goes_wrong_on_a_cluster_fails_the_job(jobs: dict[tuple[str, str], Job], fault: str) -> None:
    job = jobs[fault, "sliding"]
    assert job.status == 1, job.said
    assert "CountError: " in job.said
    assert load_manifests(job.plan) == []
    with pytest.raises(BackstreamError, match="left no manifest"):
        publish(job.plan)


def test_a_fate_that_is_flipped_on_a_cluster_is_found_by_the_gate(jobs: dict[tuple[str, str], Job]) -> None:
    job = jobs["a fate flipped", "cumulate"]
    assert job.status == 0, job.said
    with pytest.raises(BackstreamError, match="the panes of every window contain their records"):
        publish(job.plan)


@pytest.mark.parametrize("kind", KINDS)
def test_an_executor_that_is_killed_after_it_wrote_loses_nothing(
    jobs: dict[tuple[str, str], Job], kind: str
) -> None:
    job = jobs[KILLED, kind]
    assert job.status == 0, job.said
    require_reference(job.plan, kind)
    publish(job.plan)
