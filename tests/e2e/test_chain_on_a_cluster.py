"""The chain of counts on a Spark standalone cluster of two workers, one of which may lack the state folder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.chain.breaks import WITHIN
from tests.chain.job import plan_of, publish, rows_published, write_definition
from tests.e2e.standalone import cluster_in, require_mount_namespaces
from tests.spark.histories import Expected, random_history
from tests.spark.runs import published

from backstream.definition.loader import parse_definition
from backstream.errors import BackstreamError
from backstream.runs.manifest import load_manifests
from backstream.runs.plan import Plan

pytestmark = pytest.mark.e2e
KILLED = "an executor killed after writing"
KILLED_KINDS = ("tumbling", "session")
"""Windows whose ends are known, and sessions, whose end depends on their records."""


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
    ] + [Job(KILLED, kind, plan_in(tmp_path_factory.mktemp("job"), kind)) for kind in KILLED_KINDS]
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


@pytest.mark.long
def test_a_worker_that_does_not_see_the_state_folder_ends_the_job_before_any_work(tmp_path: Path) -> None:
    require_mount_namespaces()
    plan = plan_in(tmp_path, "tumbling")
    with cluster_in(tmp_path / "cluster") as cluster:
        cluster.add_worker(1)
        blind = cluster.add_worker(2, hidden=plan.home.path)
        lost = {"none": "files of the shared folder test", "no marker is asked for": "rows of table `"}
        ends = cluster.submit(*((fault, plan) for fault in lost))
        for (status, said), things in zip(ends, lost.values(), strict=True):
            assert status == 1
            sentence = rf"{things}.* that executors wrote on .+ cannot be seen by the driver"
            assert re.search(sentence, said), said
            assert "hint: the executors must write to a folder that the driver sees; mount it on each" in said
        assert load_manifests(plan) == []
        with pytest.raises(BackstreamError, match="left no manifest"):
            publish(plan)

        blind.process.terminate()
        blind.process.wait(30)
        blind = cluster.add_worker(2, hidden=tmp_path / "data")
        ((status, said),) = cluster.submit(("none", plan))
        assert status == 1
        assert "StorageError: an executor on " in said, said
        assert f"cannot read an input file that the driver can read\n  {tmp_path}/data/arrival_day=" in said

        blind.process.terminate()
        blind.process.wait(30)
        cluster.add_worker(2)
        ((status, said),) = cluster.submit(("none", plan))
        assert status == 0, said
    require_reference(plan, "tumbling")
    publish(plan)
    assert rows_published(plan) == sum(file.rows for each in load_manifests(plan) for file in each.files[""])


@pytest.mark.parametrize("fault", [*WITHIN, "a row lost"])
def test_a_wrong_count_on_a_cluster_fails_the_job(jobs: dict[tuple[str, str], Job], fault: str) -> None:
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


@pytest.mark.parametrize("kind", KILLED_KINDS)
def test_an_executor_that_is_killed_after_it_wrote_loses_nothing(
    jobs: dict[tuple[str, str], Job], kind: str
) -> None:
    job = jobs[KILLED, kind]
    assert job.status == 0, job.said
    require_reference(job.plan, kind)
    publish(job.plan)
