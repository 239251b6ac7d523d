"""Backfills on a cluster, end to end: killed, approved, racing, late; held to the reference interpreter.

PostgreSQL holds Airflow's state and the lake's catalog, a Spark master and two workers run the chunks. A fixture
is a chapter, and each rests on the one before; minutes together.
"""
# ruff: noqa: ARG001 - a chapter names the one before

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest
from tests.e2e.cluster import ALERT_TOKEN, CATALOG_PASSWORD, Cluster, running
from tests.lake import postgres
from tests.spark.histories import Expected, Place, Row, days, random_history, write_history
from tests.steps.conftest import LENIENT

from backstream.core.folders import CATALOG_VARIABLE, Home
from backstream.core.instants import DAY_MS, HOUR_MS
from backstream.core.intervals import Interval
from backstream.core.plan import Plan
from backstream.definition.load import load
from backstream.definition.overrides import overridden
from backstream.lake import read
from backstream.lake.ledger import runs as ledger

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(postgres.binaries() is None, reason="no PostgreSQL server on this machine"),
]

DEFINITION = """\
name = "{name}"

[source]
path = "${{BACKSTREAM_HOME}}/data/{name}"
event_time = "happened_at"
arrival_time = "arrived_at"
partition = "origin"
sequence = "seq"
key = ["key"]
deduplicate_on = ["origin", "seq"]
event_time_range = ["2024-01-01", "2024-03-05"]

[window]
kind = "tumbling"
size = "1h"

[watermark]
strategy = "bounded_out_of_orderness"
delay = "10m"
interval = "30s"
idle_timeout = "1h"

[lateness]
allowed = "1h"

[aggregates]
events = "count(*)"
total = "sum(value)"

[backfill]
schedule = "@daily"
{backfill}

[quality]
suite = "lenient"
"""
KINDS = {"events": 'mode = "recompute"', "live": 'mode = "replay"\npublish = "live"\ndeadline = "15s"'}
HISTORY = random_history(seed=5)
SLEEPERS = 25
DAYS = days(0, 3)
RANGE = {"since": "2024-03-01T00:00:00Z", "until": "2024-03-04T00:00:00Z"}
BACKFILL = {"dag_id": "backfill_events", "from_date": RANGE["since"], "to_date": "2024-03-02T00:00:00Z"}
LAST_DAY = {"since": "2024-03-03T00:00:00+00:00", "until": "2024-03-04T01:00:00+01:00"}
LATE: list[Row] = [
    (DAYS.start_ms + DAY_MS + 5 * HOUR_MS, DAYS.end_ms + number, "A", 100_000 + number, "late", 1)
    for number in range(3)
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The running stack, over two datasets of the same three days."""
    folder = tmp_path_factory.mktemp("cluster")
    definitions = folder / "definitions"
    definitions.mkdir()
    for name, backfill in KINDS.items():
        (definitions / f"{name}.toml").write_text(DEFINITION.format(name=name, backfill=backfill))
        write_history(folder / "home" / "data" / name, HISTORY)
    (definitions / "lenient.json").write_text(json.dumps(LENIENT))
    with running(folder, definitions) as started, pytest.MonkeyPatch.context() as patch:
        patch.setenv(CATALOG_VARIABLE, started.catalog_uri)
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
    asked = {"reason": "what had an hour cost?", "delay": "1h", "parallelism": 1, "approval": "always"}
    return cluster.trigger("reprocess_live", **RANGE, **asked)


@pytest.fixture(scope="module")
def cancelled(cluster: Cluster, on_demand: str) -> dict[str, str]:
    """The same run, marked as failed once its first chunk was done; chunks to the attempts that did them."""
    cluster.until("a chunk of the run from the form is done", lambda: attempts(cluster, "live"))
    body = {"state": "failed"}
    answer = cluster.admin.patch(f"/api/v2/dags/reprocess_live/dagRuns/{quote(on_demand)}", json=body)
    assert answer.status_code == 200, answer.text
    cluster.until("nothing of it runs", lambda: not cluster.jobs())
    return attempts(cluster, "live")


@pytest.fixture(scope="module")
def killed(cluster: Cluster, cancelled: dict[str, str], on_demand: str) -> list[int]:
    """A Backfill over two intervals; the task of its first Spark job is killed. The other run is resumed."""
    cluster.api.unpause("backfill_events")
    answer = cluster.admin.post("/api/v2/backfills", json=BACKFILL | {"max_active_runs": 2})
    assert answer.status_code == 200, answer.text
    family = cluster.until("a job of the Backfill runs", lambda: _family(cluster.jobs()))
    os.kill(family[0], signal.SIGKILL)
    clear(cluster, "reprocess_live", on_demand)
    return list(family[1:])


def _family(jobs: list[psutil.Process]) -> list[int]:
    """A task, the JVM that it waits for, the Python that the JVM has started; empty as long as there is none."""
    for job in jobs:
        with suppress(psutil.NoSuchProcess):
            if children := job.children():
                return [job.ppid(), job.pid, *(child.pid for child in children)]
    return []


def clear(cluster: Cluster, dag_id: str, run_id: str, *task_ids: str) -> None:
    """Clear some tasks of a run and what comes after them; all of them when none is named."""
    body: dict[str, Any] = {"dag_run_id": run_id, "dry_run": False, "only_failed": False}
    body |= {"task_ids": task_ids, "include_downstream": True} if task_ids else {}
    answer = cluster.admin.post(f"/api/v2/dags/{dag_id}/clearTaskInstances", json=body)
    assert answer.status_code == 200, answer.text


def attempts(cluster: Cluster, name: str) -> dict[str, str]:
    """Finished chunks of all runs of a dataset to the attempts that did them."""
    files = (cluster.home / "runs" / name).glob("*/chunks/*.json")
    return {f"{file.parents[1].name} {file.stem}": json.loads(file.read_text())["attempt"] for file in files}


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
        cluster.admin.patch(f"/api/v2/dags/sleepers/dagRuns/{quote(each)}", json={"state": "failed"})
    return states


@pytest.fixture(scope="module")
def rejected(cluster: Cluster, on_demand: str, crowded: set[str]) -> str:
    """The same run from the form, after a viewer has tried to answer and an administrator has said no."""
    question = cluster.until_asked("reprocess_live", on_demand)
    assert "delay" in question["body"]
    assert cluster.answer(cluster.viewer, "reprocess_live", on_demand, "Approve") == 403
    assert cluster.answer(cluster.admin, "reprocess_live", on_demand, "Reject") == 200
    assert cluster.until_finished("reprocess_live", on_demand) == "failed"
    return on_demand


@pytest.fixture(scope="module")
def approved(cluster: Cluster, rejected: str) -> str:
    """The same run again, cleared from its question on, and approved."""
    clear(cluster, "reprocess_live", rejected, "approve")
    cluster.until_asked("reprocess_live", rejected)
    assert cluster.answer(cluster.admin, "reprocess_live", rejected, "Approve") == 200
    assert cluster.until_finished("reprocess_live", rejected) == "success"
    return rejected


@pytest.fixture(scope="module")
def raced(cluster: Cluster, approved: str) -> list[str]:
    """Two runs of the same day, both staged before either is published; the states they end in.

    While their jobs run the scheduler crashes and is started again.
    """
    run_ids = [cluster.trigger("reprocess_events", **LAST_DAY, reason="race", approval="always") for _ in range(2)]
    cluster.until("a job of them runs", lambda: _family(cluster.jobs()))
    cluster.stack.crash("scheduler")
    for run_id in run_ids:
        cluster.until_asked("reprocess_events", run_id)
    for run_id in run_ids:
        assert cluster.answer(cluster.admin, "reprocess_events", run_id, "Approve") == 200
    return [cluster.until_finished("reprocess_events", run_id) for run_id in run_ids]


@pytest.fixture(scope="module")
def restated(cluster: Cluster, raced: list[str]) -> str:
    """The run of `restate_events` after records of the second day came late."""
    write_history(cluster.home / "data" / "events", LATE)
    cluster.api.unpause("restate_events")
    run_id = cluster.trigger("restate_events")
    assert cluster.until_finished("restate_events", run_id) == "success"
    return run_id


def published(cluster: Cluster, name: str, interval: Interval = DAYS) -> dict[Place, tuple[int, int]]:
    rows = read.rows(Home(cluster.home), name, interval).to_pylist()
    return {_place(row): (row["events"], row["total"]) for row in rows}


def _place(row: dict[str, Any]) -> Place:
    start, end = (int(row[name].timestamp() * 1000) for name in ("window_start", "window_end"))
    return row["key"], start, end


def run_ids(cluster: Cluster, interval: Interval) -> set[str]:
    return set(read.rows(Home(cluster.home), "events", interval)["run_id"].to_pylist())


def expected(
    cluster: Cluster, name: str, history: list[Row], interval: Interval = DAYS, **overrides: str
) -> Expected:
    definition = load(cluster.home.parent / "definitions" / f"{name}.toml")
    taken = {key.replace("__", "."): value for key, value in overrides.items()}
    return Expected(history, overridden(definition, taken, definition.backfill.mode), interval)


def plans(cluster: Cluster, name: str) -> list[Plan]:
    return [Plan.read(path) for path in (cluster.home / "runs" / name).glob("*/plan.json")]


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ({"since": "2024-03-01"}, "Invalid input for param since: '2024-03-01' is not a 'date-time'"),
        ({"until": "soon"}, "Invalid input for param until: 'soon' is not a 'date-time'"),
        ({"delay": "an hour"}, "Invalid input for param delay: 'an hour' does not match"),
        ({"parallelism": 0}, "Invalid input for param parallelism: 0 is less than the minimum of 1"),
        ({"mode": "fast"}, "Invalid input for param mode: 'fast' is not one of"),
        ({"reason": " "}, "Invalid input for param reason: ' ' does not match"),
    ],
)
def test_the_server_refuses_a_form_that_is_filled_in_wrongly(
    cluster: Cluster, conf: dict[str, Any], said: str
) -> None:
    body = {"logical_date": None, "conf": RANGE | {"reason": "test"} | conf}
    answer = cluster.admin.post("/api/v2/dags/reprocess_events/dagRuns", json=body)
    assert answer.status_code == 400
    assert answer.json()["detail"].splitlines()[0].startswith(said)


def test_a_viewer_cannot_start_a_run(cluster: Cluster) -> None:
    body = {"logical_date": None, "conf": RANGE | {"reason": "test"}}
    assert cluster.viewer.post("/api/v2/dags/reprocess_events/dagRuns", json=body).status_code == 403


def test_a_run_that_was_cancelled_goes_on_with_its_plan_where_it_stopped(
    cluster: Cluster, cancelled: dict[str, str], rejected: str
) -> None:
    assert cancelled.items() <= attempts(cluster, "live").items()
    assert len(attempts(cluster, "live")) == 3
    assert "going on with plan" in cluster.log_of("reprocess_live", rejected, "plan")


def test_a_killed_task_takes_its_spark_application_with_it(cluster: Cluster, killed: list[int]) -> None:
    cluster.until("the killed job has ended", lambda: not any(map(_is_alive, killed)))


def _is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_a_backfill_ends_well_after_a_kill_and_beside_a_crowd_of_other_runs(
    cluster: Cluster, backfilled: list[dict[str, Any]], crowded: set[str]
) -> None:
    assert [run["state"] for run in backfilled] == ["success"] * 2
    assert {run["run_type"] for run in backfilled} == {"backfill"}
    assert crowded == {"running"}
    tries = [cluster.task("backfill_events", run["dag_run_id"], "replay")["try_number"] for run in backfilled]
    assert sorted(tries) == [1, 2]


def test_a_retry_runs_the_plan_that_there_was(cluster: Cluster, backfilled: list[dict[str, Any]]) -> None:
    triggers = [plan.trigger for plan in plans(cluster, "events")]
    assert sorted(each for each in triggers if each.startswith("backfill__")) == sorted(
        run["dag_run_id"] for run in backfilled
    )


def test_what_a_backfill_publishes_is_what_the_reference_says(
    cluster: Cluster, backfilled: list[dict[str, Any]]
) -> None:
    wanted = expected(cluster, "events", HISTORY, days(0, 2)).values()
    assert published(cluster, "events", days(0, 2)) == {
        place: final for place, (_, _, final) in wanted.items() if final
    }


@pytest.mark.parametrize(("behaviour", "count"), [("none", 0), ("failed", 0), ("completed", 2)])
def test_another_backfill_of_the_same_days_does_again_what_it_is_asked_to(
    cluster: Cluster, backfilled: list[dict[str, Any]], behaviour: str, count: int
) -> None:
    body = BACKFILL | {"reprocess_behavior": behaviour}
    answer = cluster.admin.post("/api/v2/backfills/dry_run", json=body)
    assert answer.json()["total_entries"] == count


def test_a_parameter_that_does_not_exist_fails_the_run_at_once(cluster: Cluster, misspelt: str) -> None:
    assert cluster.until_finished("reprocess_events", misspelt) == "failed"
    assert cluster.task("reprocess_events", misspelt, "plan")["try_number"] == 1
    assert "colour is no parameter of reprocess_events, got 'red'" in cluster.log_of(
        "reprocess_events", misspelt, "plan"
    )


def test_someone_is_told_of_a_run_that_failed(cluster: Cluster, misspelt: str) -> None:
    told = cluster.until("someone is told", lambda: [each for each in cluster.alerts.told if misspelt in each[1]])
    assert told == [(f"/hook/{ALERT_TOKEN}", f"reprocess_events: run {misspelt} failed (task_failure)")]


def test_someone_is_told_of_a_run_that_takes_too_long_from_when_it_was_queued(
    cluster: Cluster, rejected: str
) -> None:
    said = f"reprocess_live: run {rejected} is not done 15s after it was queued"
    cluster.until("someone is told", lambda: said in [text for _, text in cluster.alerts.told])


def test_a_rejected_run_publishes_nothing_and_says_who_rejected_it(cluster: Cluster, rejected: str) -> None:
    (row,) = [each for each in ledger(Home(cluster.home), "live") if each.status == "refused"]
    assert row.reason == "what had an hour cost?; approval.when = always, watermark.delay = 1h; rejected by admin"


def test_an_approved_run_publishes_what_the_reference_says_with_the_delay_of_the_form(
    cluster: Cluster, approved: str
) -> None:
    wanted = expected(cluster, "live", HISTORY, watermark__delay="1h").values()
    as_defined = expected(cluster, "live", HISTORY).values()
    assert published(cluster, "live") == {place: live for place, (_, live, _) in wanted.items() if live}
    assert wanted != as_defined


def test_the_report_says_what_was_otherwise_and_who_approved(cluster: Cluster, approved: str) -> None:
    (plan,) = plans(cluster, "live")
    report = plan.folder.report.read_text(encoding="utf-8")
    assert "watermark.delay = 1h" in report
    assert "approved by admin" in report


def test_a_published_range_is_one_asset_event_with_its_counts(cluster: Cluster, approved: str) -> None:
    events = cluster.admin.get("/api/v2/assets/events").json()["asset_events"]
    (event,) = [each for each in events if each["source_run_id"] == approved]
    assert event["name"] == "live"
    assert event["extra"] | {"run_id": "", "verdict": ""} == {
        "run_id": "",
        "since": "2024-03-01T00:00Z",
        "until": "2024-03-04T00:00Z",
        "mode": "replay",
        "rows": len(published(cluster, "live")),
        "replaced_rows": 0,
        "verdict": "",
    }


def test_of_two_runs_that_overlap_one_publishes_and_the_other_changes_nothing(
    cluster: Cluster, raced: list[str]
) -> None:
    assert sorted(raced) == ["failed", "success"]
    assert len(run_ids(cluster, days(2, 3))) == 1


def test_late_records_make_exactly_their_day_be_run_again(cluster: Cluster, restated: str) -> None:
    (child,) = [run for run in cluster.runs("reprocess_events") if run["dag_run_id"].startswith("restate__")]
    assert (child["conf"]["since"], child["conf"]["until"]) == ("2024-03-02T00:00:00Z", "2024-03-03T00:00:00Z")
    assert child["conf"]["reason"] == "late data: 1 window, by 1 file"
    wanted = expected(cluster, "events", [*HISTORY, *LATE]).values()
    assert published(cluster, "events") == {place: final for place, (_, _, final) in wanted.items() if final}
    assert not run_ids(cluster, days(1, 2)) & (run_ids(cluster, days(0, 1)) | run_ids(cluster, days(2, 3)))


def test_nothing_of_it_runs_on(cluster: Cluster, restated: str) -> None:
    assert cluster.jobs() == []


def test_no_secret_is_in_a_log_a_plan_or_a_report(cluster: Cluster, restated: str) -> None:
    names = {CATALOG_PASSWORD, ALERT_TOKEN}
    found = [(path, name) for path, text in cluster.texts() for name in names if name in text]
    assert found == []
