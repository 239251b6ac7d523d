"""The chapters of what happens on the cluster: each is a fixture, and rests on the one before."""
# ruff: noqa: ARG001 - a chapter names the one before

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from demo.airflow_api import FINISHED
from tests.e2e.cluster import FOLDER, Cluster, running
from tests.e2e.story import (
    BACKFILL,
    DEFINITION,
    ENDS,
    HISTORY,
    KINDS,
    LAST_DAY,
    RANGE,
    SLEEPERS,
    Nights,
    attempts,
    backfilled_again,
    clear,
    families_of,
    scheduled,
)
from tests.e2e.team import FIRST_DAY, POOL, FarRun, create_table, write_far, write_team
from tests.lake.store import BUCKET, Store
from tests.spark.histories import write_history
from tests.workflow.conftest import LENIENT

from backstream.eventtime.instants import DAY_MS, SECOND_MS
from backstream.orchestration.run_range import with_seconds
from backstream.variables import CATALOG_VARIABLE, WAREHOUSE_VARIABLE


@pytest.fixture(scope="module")
def nights() -> Nights:
    """The three days before today."""
    return Nights(int(time.time() * SECOND_MS) // DAY_MS * DAY_MS)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, s3: Store, nights: Nights) -> Iterator[Cluster]:
    """The running stack, over datasets of the same three days, and one of the last three."""
    folder = tmp_path_factory.mktemp("cluster")
    definitions = folder / "definitions"
    definitions.mkdir()
    for name, backfill in KINDS.items():
        text = DEFINITION.format(name=name, backfill=backfill, end=ENDS.get(name, "2024-03-05"))
        (definitions / f"{name}.toml").write_text(text)
        write_history(folder / "home" / "data" / name, nights.history if name == "nightly" else HISTORY)
    (definitions / "lenient.json").write_text(json.dumps(LENIENT))

    def add_dags(dags: Path) -> None:
        write_team(folder / "sales", dags)
        write_far(folder / "far", dags)

    with running(folder, definitions, s3, add_dags) as started, pytest.MonkeyPatch.context() as patch:
        patch.setenv(CATALOG_VARIABLE, started.catalog_uri)
        patch.setenv(WAREHOUSE_VARIABLE, s3.address(f"{BUCKET}/{FOLDER}"))
        started.until("the DAGs are known", lambda: _are_known(started))
        yield started


def _are_known(cluster: Cluster) -> bool:
    found = {each["dag_id"] for each in cluster.admin.get("/api/v2/dags").json()["dags"]}
    return {f"{kind}_{name}" for kind in ("backfill", "reprocess", "restate") for name in KINDS} < found


@pytest.fixture(scope="module")
def crowd(cluster: Cluster) -> list[str]:
    """Runs of another DAG that go on and on."""
    return [cluster.trigger("sleepers") for _ in range(SLEEPERS)]


@pytest.fixture(scope="module")
def misspelt(cluster: Cluster) -> str:
    """A run with a parameter that does not exist."""
    return cluster.trigger("reprocess_events", **LAST_DAY, reason="test", colour="red")


@pytest.fixture(scope="module")
def on_demand(cluster: Cluster, crowd: list[str], misspelt: str) -> str:
    """A run from the form that waits for approval: another delay, all chunks in one Spark job."""
    asked = {"reason": "what had an hour cost?", "delay": "1h", "max_spark_jobs": 1, "approval": "always"}
    return cluster.trigger("reprocess_live", **RANGE, **asked)


@pytest.fixture(scope="module")
def cancelled(cluster: Cluster, on_demand: str) -> dict[str, str]:
    """The same run, marked as failed once its first chunk was done; chunks to the attempts that did them."""
    cluster.until("a chunk of the run from the form is done", lambda: attempts(cluster, "live"))
    cluster.fail("reprocess_live", on_demand)
    cluster.until("nothing of it runs", lambda: not cluster.jobs())
    return attempts(cluster, "live")


@pytest.fixture(scope="module")
def killed(cluster: Cluster, cancelled: dict[str, str], on_demand: str) -> list[int]:
    """A Backfill over two intervals; the task of its first Spark job is killed. The other run is resumed."""
    cluster.api.unpause("backfill_events")
    answer = cluster.admin.post("/api/v2/backfills", json=BACKFILL | {"max_active_runs": 2})
    assert answer.status_code == 200, answer.text
    family = cluster.until("a job of the Backfill runs", lambda: families_of(cluster.jobs()))[0]
    os.kill(family[0], signal.SIGKILL)
    clear(cluster, "reprocess_live", on_demand)
    return list(family[1:])


@pytest.fixture(scope="module")
def backfilled(cluster: Cluster, killed: list[int]) -> list[dict[str, Any]]:
    """The runs of the Backfill, all of them done."""

    def done() -> list[dict[str, Any]]:
        found = cluster.runs("backfill_events")
        return found if len(found) == 2 and all(run["state"] in {"success", "failed"} for run in found) else []

    return list(cluster.until("the Backfill has ended", done))


@pytest.fixture(scope="module")
def crowded(cluster: Cluster, backfilled: list[dict[str, Any]], crowd: list[str]) -> set[str]:
    """The states of the crowd when the Backfill was done; then it has to go, for it keeps the scheduler busy."""
    states = {cluster.state("sleepers", each) for each in crowd}
    for each in crowd:
        cluster.fail("sleepers", each)
    return states


@pytest.fixture(scope="module")
def rejected(cluster: Cluster, on_demand: str, crowded: set[str]) -> str:
    """The same run from the form, after a viewer has tried to answer and an administrator has said no."""
    question = cluster.until_asked("reprocess_live", on_demand)
    assert "delay" in question["body"]
    assert cluster.answer(cluster.viewer, "reprocess_live", on_demand, "Approve") == 403
    assert cluster.decide("reprocess_live", on_demand, "Reject") == "failed"
    return on_demand


@pytest.fixture(scope="module")
def unanswered(cluster: Cluster, rejected: str) -> str:
    """A run whose question nobody answers in time."""
    return cluster.trigger("reprocess_hasty", **LAST_DAY, reason="nobody is there")


@pytest.fixture(scope="module")
def first_night(cluster: Cluster, nights: Nights, unanswered: str) -> str:
    """A run of the first of the last three days."""
    day = nights.days(0, 1)
    ends = {"since": with_seconds(day.start_ms), "until": with_seconds(day.end_ms)}
    return cluster.trigger("reprocess_nightly", **ends, reason="the first")


@pytest.fixture(scope="module")
def approved(cluster: Cluster, rejected: str, unanswered: str, first_night: str) -> str:
    """The same run again, cleared from its question on, and approved."""
    clear(cluster, "reprocess_live", rejected, "approve")
    assert cluster.decide("reprocess_live", rejected, "Approve") == "success"
    return rejected


@pytest.fixture(scope="module")
def timed_out(cluster: Cluster, approved: str, unanswered: str, first_night: str) -> str:
    """How that run ended."""
    assert cluster.until_finished("reprocess_nightly", first_night) == "success"
    return cluster.until_finished("reprocess_hasty", unanswered)


@pytest.fixture(scope="module")
def left(cluster: Cluster, nights: Nights, timed_out: str) -> str:
    """What a run that looks for missing days says while the second is in the queue of a Backfill."""
    day = nights.days(1, 2)
    date = with_seconds(day.start_ms)
    asked = {"dag_id": "backfill_nightly", "from_date": date, "to_date": date}
    answer = cluster.admin.post("/api/v2/backfills", json=asked)  # never begins: the DAG is paused
    assert answer.status_code == 200, answer.text
    run_id = cluster.trigger("restate_nightly", until=with_seconds(day.end_ms), dry_run=True)
    assert cluster.until_finished("restate_nightly", run_id) == "success"
    cancelled = cluster.admin.put(f"/api/v2/backfills/{answer.json()['id']}/cancel")
    assert cancelled.status_code == 200, cancelled.text
    return cluster.log_of("restate_nightly", run_id, "find_intervals")


@pytest.fixture(scope="module")
def raced(cluster: Cluster, approved: str, left: str) -> list[str]:
    """Two runs of the same day, both staged before either is published; the states they end in.

    While their jobs run the scheduler crashes and is started again.
    """
    run_ids = [cluster.trigger("reprocess_events", **LAST_DAY, reason="race", approval="always") for _ in range(2)]
    cluster.until("the jobs of both run", lambda: len(families_of(cluster.jobs())) == len(run_ids))
    cluster.stack.crash("scheduler")
    for run_id in run_ids:
        cluster.until_asked("reprocess_events", run_id)
    return [cluster.decide("reprocess_events", run_id, "Approve") for run_id in run_ids]


@pytest.fixture(scope="module")
def tick(cluster: Cluster, nights: Nights, raced: list[str]) -> str:
    """The run that the schedule has started for yesterday; it waits for what is stale or missing, without a slot.

    The first of the last three days was published, and then records of it came late; of the second there is none.
    """
    write_history(cluster.home / "data" / "nightly", nights.late)
    cluster.api.unpause("backfill_nightly")
    (run,) = cluster.until("the schedule has started a run", lambda: scheduled(cluster))
    run_id = str(run["dag_run_id"])
    cluster.until(
        "its task waits",
        lambda: cluster.task("backfill_nightly", run_id, "restate")["state"] == "deferred",
    )
    return run_id


@pytest.fixture(scope="module")
def second_day(backfilled: list[dict[str, Any]]) -> str:
    """The run of the second day of the Backfill."""
    return str(max(backfilled, key=lambda run: str(run["logical_date"]))["dag_run_id"])


@pytest.fixture(scope="module")
def redone(cluster: Cluster, second_day: str, tick: str) -> dict[str, set[str]]:
    """What Backfills of the same days run again, by their behaviour, once the run of the second day has failed."""
    cluster.fail("backfill_events", second_day)
    asked = {"none": RANGE["since"], "failed": RANGE["since"], "completed": BACKFILL["to_date"]}
    return {behaviour: backfilled_again(cluster, behaviour, since) for behaviour, since in asked.items()}


@pytest.fixture(scope="module")
def ticked(cluster: Cluster, tick: str, redone: dict[str, set[str]]) -> dict[str, Any]:
    """The run that the schedule has started, at its end."""
    cluster.until_finished("backfill_nightly", tick)
    (ended,) = scheduled(cluster)
    return dict(ended)


@pytest.fixture(scope="module")
def looked_again(cluster: Cluster, ticked: dict[str, Any]) -> list[str]:
    """States of the same run: with its look cleared and marked as failed, and with it cleared once more."""
    run_id = ticked["dag_run_id"]
    place = "restate_nightly", f"before__{run_id}"

    def failed_look() -> str:
        clear(cluster, "backfill_nightly", run_id, "restate")
        cluster.until("it looks again", lambda: cluster.state(*place) not in FINISHED)
        cluster.fail(*place)
        return cluster.until_finished("backfill_nightly", run_id)

    # On a busy machine a look may have ended before it was marked.
    states = [next((state for state in (failed_look() for _ in range(3)) if state == "failed"), "success")]
    clear(cluster, "backfill_nightly", run_id, "restate")
    return [*states, cluster.until_finished("backfill_nightly", run_id)]


@pytest.fixture(scope="module")
def team_runs(cluster: Cluster) -> dict[str, tuple[str, str]]:
    """A Backfill and a scheduled run of a team, whose jobs wait for the one slot of a pool; DAGs and run ids."""
    cluster.api.set_pool(POOL, 0)
    create_table(cluster)
    cluster.api.unpause("backfill_sold")
    answer = cluster.admin.post("/api/v2/backfills", json={"dag_id": "backfill_sold", **FIRST_DAY})
    assert answer.status_code == 200, answer.text
    found = {"Backfill": _waiting(cluster, "backfill_sold", "replay")}
    cluster.api.unpause("sales")
    found["scheduled"] = _waiting(cluster, "sales", "sold.replay")
    cluster.api.set_pool(POOL, 1)
    for dag_id, run_id in found.values():
        state = cluster.until_finished(dag_id, run_id)
        failed = [each for each in cluster.api.task_instances(dag_id, run_id) if each["state"] == "failed"]
        assert state == "success", [cluster.log_of(dag_id, run_id, each["task_id"]) for each in failed]
    return found


def _waiting(cluster: Cluster, dag_id: str, task_id: str) -> tuple[str, str]:
    """Wait until a task of the only run of a DAG waits for a slot; return the DAG and the run."""

    def waits() -> list[str]:
        run_ids = [str(run["dag_run_id"]) for run in cluster.runs(dag_id)]
        return [each for each in run_ids if cluster.task(dag_id, each, task_id)["state"] == "scheduled"]

    (run_id,) = cluster.until(f"{task_id} of {dag_id} waits for a slot", waits)
    return dag_id, run_id


@pytest.fixture(scope="module")
def far(cluster: Cluster) -> FarRun:
    """A run that was cancelled while its driver ran on a worker, and then cleared."""
    write_history(cluster.home / "data" / "far", HISTORY)
    cluster.until("no other job runs", lambda: not cluster.jobs())
    run_id = cluster.trigger("reprocess_far", **LAST_DAY, reason="the driver is elsewhere")

    def driver() -> psutil.Process | None:
        is_waiting = cluster.task("reprocess_far", run_id, "replay")["state"] == "deferred"
        return next(iter(cluster.jobs()), None) if is_waiting else None

    found: psutil.Process = cluster.until("the driver runs on the cluster", driver)
    parents, environment = [" ".join(each.cmdline()) for each in found.parents()], found.environ()
    pool = cluster.admin.get("/api/v2/pools/spark").json()
    cluster.fail("reprocess_far", run_id)
    cluster.until("the driver has ended", lambda: not cluster.jobs())
    clear(cluster, "reprocess_far", run_id)
    return FarRun(run_id, parents, environment, pool, cluster.until_finished("reprocess_far", run_id))
