"""Backfills on a cluster, end to end: killed, approved, racing, late; held to the reference interpreter.

PostgreSQL holds Airflow's state and the lake's catalog, an S3 store the lake's files, a Spark master and two
workers run the chunks. What happens is in `conftest.py`, a chapter after another; minutes together.
"""
# ruff: noqa: ARG001 - a test names the chapter that it is about

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from demo.settings import CHECKOUT
from tests.e2e.cluster import ALERT_TOKEN, CATALOG_PASSWORD, FOLDER, Cluster, compose
from tests.e2e.story import HISTORY, RANGE, Nights, attempts, expected, plans, published, run_ids
from tests.e2e.team import POOL, TABLE, FarRun, rows_of_the_team
from tests.lake import postgres
from tests.lake.store import BUCKET, Store
from tests.spark.histories import days

from backstream.eventtime.instants import instant_ms
from backstream.lake.run_rows import list_runs as ledger
from backstream.orchestration.run_range import with_seconds
from backstream.runs.home import Home
from backstream.runs.manifest import load_manifests, sum_fates

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(postgres.binaries() is None, reason="no PostgreSQL server on this machine"),
]


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ({"since": "2024-03-01"}, "Invalid input for param since: '2024-03-01' is not a 'date-time'"),
        ({"until": "soon"}, "Invalid input for param until: 'soon' is not a 'date-time'"),
        ({"delay": "an hour"}, "Invalid input for param delay: 'an hour' does not match"),
        ({"max_spark_jobs": 0}, "Invalid input for param max_spark_jobs: 0 is less than the minimum of 1"),
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


def test_a_canceled_run_resumes_its_plan_where_it_stopped(
    cluster: Cluster, cancelled: dict[str, str], rejected: str
) -> None:
    assert cancelled.items() <= attempts(cluster, "live").items()
    assert len(attempts(cluster, "live")) == 3
    assert "resuming plan" in cluster.log_of("reprocess_live", rejected, "plan")


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
    triggers = [dag_run_of(plan.triggered_by) for plan in plans(cluster, "events")]
    assert sorted(each for each in triggers if each.startswith("backfill__")) == sorted(
        run["dag_run_id"] for run in backfilled
    )


def dag_run_of(trigger: str) -> str:
    """Return the id of the Dag run in a trigger, which the DAG and the creation follow."""
    return trigger.partition(".")[0]


def test_each_task_of_a_run_marks_its_phase(cluster: Cluster, backfilled: list[dict[str, Any]]) -> None:
    triggers = {run["dag_run_id"] for run in backfilled}
    found = [plan.folder.phases for plan in plans(cluster, "events") if dag_run_of(plan.triggered_by) in triggers]
    wanted = {"start_spark-0000", "replay-0000", "audit", "approve", "publish"}
    assert [wanted - {file.name for file in folder.iterdir()} for folder in found] == [set()] * len(triggers)


def test_a_backfill_publishes_the_reference_values(cluster: Cluster, backfilled: list[dict[str, Any]]) -> None:
    wanted = expected(cluster, "events", HISTORY, days(0, 2)).values()
    assert published(cluster, "events", days(0, 2)) == {
        place: final for place, (_, _, final) in wanted.items() if final
    }


def test_a_backfill_keeps_to_its_range(cluster: Cluster, backfilled: list[dict[str, Any]]) -> None:
    states = {cluster.task("backfill_events", run["dag_run_id"], "restate")["state"] for run in backfilled}
    assert states == {"skipped"}
    assert cluster.runs("restate_events") == []


def test_a_parameter_that_does_not_exist_fails_the_run_at_once(cluster: Cluster, misspelt: str) -> None:
    assert cluster.until_finished("reprocess_events", misspelt) == "failed"
    assert cluster.task("reprocess_events", misspelt, "plan")["try_number"] == 1
    assert "colour is not a parameter of reprocess_events, got 'red'" in cluster.log_of(
        "reprocess_events", misspelt, "plan"
    )


def test_an_alert_reports_a_failed_run(cluster: Cluster, misspelt: str) -> None:
    told = cluster.until(
        "someone is told", lambda: [each for each in cluster.received.alerts if misspelt in each[1]]
    )
    assert told == [(f"/hook/{ALERT_TOKEN}", f"reprocess_events: run {misspelt} failed (task_failure)")]


def test_an_alert_reports_a_run_that_exceeds_its_deadline_since_queued(cluster: Cluster, rejected: str) -> None:
    said = f"reprocess_live: run {rejected} has not ended 15s after it was queued"
    cluster.until("someone is told", lambda: said in [text for _, text in cluster.received.alerts])


def test_the_ledger_records_who_rejected_a_run(cluster: Cluster, rejected: str) -> None:
    (row,) = [each for each in ledger(Home(cluster.home), "live") if each.status == "refused"]
    assert row.reason == "what had an hour cost?; approval.when = always, watermark.delay = 1h; rejected by admin"


# The checks of the other services differ only in the type of the job, and each one imports all of Airflow.
@pytest.mark.parametrize("service", ["api-server", "triggerer"])
def test_the_health_check_of_a_service_in_the_compose_file_succeeds(
    cluster: Cluster, unanswered: str, service: str
) -> None:
    check = cluster.stack.command(compose(service)[1])
    subprocess.run(check, env=dict(cluster.stack.environment), check=True, timeout=120, capture_output=True)


def test_a_run_without_an_approval_in_time_is_rejected(cluster: Cluster, timed_out: str) -> None:
    (row,) = ledger(Home(cluster.home), "hasty")
    assert (timed_out, row.status) == ("failed", "refused")
    assert row.reason.endswith("rejected, no approver answered in time")
    assert published(cluster, "hasty") == {}


def test_an_approved_run_publishes_the_reference_values_for_the_delay_of_the_form(
    cluster: Cluster, approved: str
) -> None:
    wanted = expected(cluster, "live", HISTORY, watermark__delay="1h").values()
    as_defined = expected(cluster, "live", HISTORY).values()
    assert published(cluster, "live") == {place: live for place, (_, live, _) in wanted.items() if live}
    assert wanted != as_defined


def test_the_report_shows_overrides_and_the_approver(cluster: Cluster, approved: str) -> None:
    (plan,) = plans(cluster, "live")
    report = plan.folder.report.read_text(encoding="utf-8")
    assert "watermark.delay = 1h" in report
    assert "approved by admin" in report


def test_a_published_range_is_one_asset_event_with_its_counts_and_one_per_day(
    cluster: Cluster, approved: str
) -> None:
    answer = cluster.admin.get("/api/v2/assets/events", params={"source_run_id": approved, "limit": 100})
    events = sorted(answer.json()["asset_events"], key=lambda each: str(each["name"]))
    assert [each["name"] for each in events] == ["live", "live.days", "live.days", "live.days"]
    event = events[0]
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
    assert len(run_ids(cluster, "events", days(2, 3))) == 1


def test_another_backfill_of_the_same_days_repeats_only_the_selected_runs(
    cluster: Cluster, backfilled: list[dict[str, Any]], second_day: str, redone: dict[str, set[str]]
) -> None:
    # Backfill     first day    second
    # none         -            -         both have ended
    # failed       -            again     it was marked as failed
    # completed                 again     it has succeeded since
    # Nothing has changed, so a run that is published has nothing to do.
    assert redone == {"none": set(), "failed": {second_day}, "completed": {second_day}}
    published_by = Counter(
        dag_run_of(row.triggered_by) for row in ledger(Home(cluster.home), "events") if row.status == "published"
    )
    assert [published_by[run["dag_run_id"]] for run in backfilled] == [1, 1]
    wanted = expected(cluster, "events", HISTORY, days(0, 2)).values()
    assert published(cluster, "events", days(0, 2)) == {
        place: final for place, (_, _, final) in wanted.items() if final
    }


def test_a_day_whose_run_is_in_the_queue_of_a_backfill_is_left_to_it(nights: Nights, left: str) -> None:
    assert f"{nights.days(1, 2)}: skipped, its run of backfill_nightly has not ended" in left
    assert "1 missing" in left
    assert "missing: no run covers it" not in left


def test_a_scheduled_run_does_its_interval_and_what_is_stale_or_missing_before_it(
    cluster: Cluster, nights: Nights, ticked: dict[str, Any]
) -> None:
    # days        first      second     yesterday
    # published   yes        no         no
    # late data   yes
    assert (ticked["run_type"], ticked["state"]) == ("scheduled", "success")
    own = with_seconds(instant_ms(ticked["data_interval_start"], "start"))
    first, second = (with_seconds(nights.days(number, 3).start_ms) for number in (0, 1))
    runs = cluster.runs("reprocess_nightly", run_type="operator_triggered")
    found = [
        (run["conf"]["since"], run["conf"]["until"], run["conf"]["reason"].partition("; added: ")[0])
        for run in runs
    ]
    assert sorted(found) == [
        (first, second, f"found by {ticked['dag_run_id']}; late data: 1 window"),
        (second, own, f"found by {ticked['dag_run_id']}; missing: no run covers it"),
    ]
    one, other = sorted(runs, key=lambda run: str(run["start_date"]))
    assert one["end_date"] < other["start_date"]
    wanted = expected(cluster, "nightly", [*nights.history, *nights.late], nights.days(0, 3)).values()
    assert published(cluster, "nightly", nights.days(0, 3)) == {
        place: final for place, (_, _, final) in wanted.items() if final
    }
    assert len(run_ids(cluster, "nightly", nights.days(0, 3))) == 3


def test_the_run_that_looks_is_named_by_the_scheduled_one_which_links_to_it(
    cluster: Cluster, ticked: dict[str, Any]
) -> None:
    (looked,) = cluster.runs("restate_nightly", run_type="operator_triggered")
    assert looked["dag_run_id"] == f"before__{ticked['dag_run_id']}"
    run = f"/api/v2/dags/backfill_nightly/dagRuns/{quote(ticked['dag_run_id'])}"
    (link,) = cluster.admin.get(f"{run}/taskInstances/restate/links").json()["extra_links"].values()
    assert link.endswith(f"/dags/restate_nightly/runs/{looked['dag_run_id']}")


def test_a_scheduled_run_ends_as_its_look_ends_and_can_be_cleared(
    cluster: Cluster, ticked: dict[str, Any], looked_again: list[str]
) -> None:
    assert looked_again == ["failed", "success"]
    counts = [
        len(cluster.runs(f"{kind}_nightly", run_type="operator_triggered")) for kind in ("restate", "reprocess")
    ]
    assert counts == [1, 2]


def test_a_scheduled_run_has_priority_over_a_backfill_that_waits_longer(
    cluster: Cluster, team_runs: dict[str, tuple[str, str]]
) -> None:
    scheduled, backfill = _replay(cluster, team_runs["scheduled"]), _replay(cluster, team_runs["Backfill"])
    # Airflow orders tasks of one weight by the logical date, and that of the scheduled run is a month later.
    assert (scheduled["priority_weight"], backfill["priority_weight"]) == (6 * 3 + 1, 3 - 1)
    assert scheduled["end_date"] <= backfill["start_date"]


def test_tasks_of_a_team_have_its_pool_queue_executor_owner_and_tags(
    cluster: Cluster, team_runs: dict[str, tuple[str, str]]
) -> None:
    for dag_id, run_id in team_runs.values():
        task = _replay(cluster, (dag_id, run_id))
        assert {name: task[name] for name in ("pool", "queue", "executor", "state")} == {
            "pool": POOL,
            "queue": "big",
            "executor": "LocalExecutor",
            "state": "success",
        }
        dag = cluster.admin.get(f"/api/v2/dags/{dag_id}").json()
        assert dag["owners"] == ["sales"]
        assert "sales" in {tag["name"] for tag in dag["tags"]}
        others = {
            each["pool"] for each in cluster.api.task_instances(dag_id, run_id) if "replay" not in each["task_id"]
        }
        assert others == {"default_pool"}


def _replay(cluster: Cluster, run: tuple[str, str]) -> dict[str, Any]:
    (found,) = (each for each in cluster.api.task_instances(*run) if each["task_id"].endswith("replay"))
    return found


def test_a_table_of_the_team_gets_the_rows_of_both_runs(
    cluster: Cluster, team_runs: dict[str, tuple[str, str]]
) -> None:
    wanted = expected(cluster, "events", HISTORY, days(0, 2)).values()
    sales = {
        (row["product"], int(row["hour"].timestamp() * 1000)): row["sales"] for row in rows_of_the_team(cluster)
    }
    assert sales == {(key, start): final[0] for (key, start, _), (_, _, final) in wanted.items() if final}
    assert {row["loaded_by"] for row in rows_of_the_team(cluster)} == run_ids(cluster, "sold", days(0, 2))


def test_a_dag_with_partitions_runs_for_exactly_the_days_that_were_published(
    cluster: Cluster, team_runs: dict[str, tuple[str, str]]
) -> None:
    runs = cluster.until(
        "both days have a run", lambda: found if len(found := cluster.runs("rebuild")) > 1 else None
    )
    assert sorted(run["partition_key"] for run in runs) == ["2024-03-01T00:00:00", "2024-03-02T00:00:00"]


def test_an_update_of_the_asset_of_the_source_triggers_the_restatement(
    cluster: Cluster, team_runs: dict[str, tuple[str, str]]
) -> None:
    (asset,) = cluster.admin.get("/api/v2/assets", params={"name_pattern": "raw_sales"}).json()["assets"]
    assert cluster.admin.post("/api/v2/assets/events", json={"asset_id": asset["id"]}).status_code == 200
    (run,) = cluster.until("the asset has triggered a run", lambda: cluster.runs("restate_sold"))
    assert run["run_type"] == "asset_triggered"


def test_a_catalog_of_lineage_learns_the_tables_their_columns_and_the_checks_of_a_run(
    cluster: Cluster, team_runs: dict[str, tuple[str, str]], s3: Store
) -> None:
    ends_of = cluster.received.ends_of
    audited, *_ = cluster.until("the audit is reported", lambda: ends_of("sales.sold.audit"))
    ended, *_ = cluster.until("the publication is reported", lambda: ends_of("sales.sold.publish"))
    (checked,) = audited["inputs"]
    own, target = ended["outputs"]
    assert {(each["namespace"], each["name"]) for each in (checked, own)} == {
        (f"s3://{BUCKET}", f"{FOLDER}/backstream/sold")
    }
    assert [each["facets"]["symlinks"]["identifiers"][0]["name"] for each in (own, target)] == [
        "backstream.sold",
        TABLE,
    ]
    (check,) = checked["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert (check["name"], check["success"]) == ("every record read has one fate", True)
    (read,) = ended["inputs"]
    assert (read["namespace"], read["name"]) == ("file", str(cluster.home / "data/sold"))
    fields = target["facets"]["columnLineage"]["fields"]
    origins = {
        name: [(each["field"], each["transformations"][0]["subtype"]) for each in field["inputFields"]]
        for name, field in fields.items()
    }
    assert origins == {
        "hour": [("happened_at", "TRANSFORMATION")],
        "window_end": [("happened_at", "TRANSFORMATION")],
        "product": [("key", "IDENTITY")],
        "total": [("value", "AGGREGATION")],
    }
    facet = ended["run"]["facets"]["backstream"]
    assert (facet["since"], facet["until"]) == ("2024-03-02T00:00Z", "2024-03-03T00:00Z")
    rows = len(published(cluster, "sold", days(1, 2)))
    assert own["outputFacets"]["outputStatistics"]["rowCount"] == rows > 0
    assert {each["facets"]["parent"]["job"]["name"] for each in (audited["run"], ended["run"])} == {"sales"}
    received = json.dumps(cluster.received.lineage)
    assert [secret for secret in (CATALOG_PASSWORD, s3.secret, ALERT_TOKEN) if secret in received] == []


def test_airflow_sends_every_metric_in_the_operations_guide(cluster: Cluster, looked_again: list[str]) -> None:
    table = (
        (CHECKOUT / "docs" / "operations.md").read_text().partition("**Metrics**")[2].partition("**lineage**")[0]
    )
    documented = re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
    names = [name for cell in documented for name in re.findall(r"`(airflow\.[^`]+)`", cell)]
    sent = {name: re.compile(re.sub("<[a-z]+>", "[^.]+", re.escape(name))) for name in names}
    received = {name for name, *_ in cluster.received.metrics}

    assert len(names) == 13
    assert [name for name in names if not any(map(sent[name].fullmatch, received))] == []


def test_the_metrics_of_a_run_are_its_numbers(cluster: Cluster, team_runs: dict[str, tuple[str, str]]) -> None:
    own = {"dataset": "sold", "mode": "recompute"}
    manifests = [manifest for plan in plans(cluster, "sold") for manifest in load_manifests(plan)]
    fates = Counter[str]()
    for counts in sum_fates(manifests).values():
        fates.update(counts)
    rows = len(published(cluster, "sold", days(0, 2)))
    received = cluster.received
    cluster.until(
        "the rows are counted", lambda: received.total("airflow.backstream.published_rows", **own) == rows
    )

    assert fates["on_time"] > 0
    assert {fate: received.total("airflow.backstream.records", **own, fate=fate) for fate in fates} == fates
    assert received.total("airflow.backstream.records.sold.on_time") == fates["on_time"]
    assert received.total("airflow.backstream.audits", **own, verdict="pass") == 2
    assert received.total("airflow.backstream.replaced_rows", **own) == 0
    seconds = sum(sum(manifest.timings_s.values()) for manifest in manifests)
    assert received.total("airflow.backstream.stage_duration", **own) == pytest.approx(seconds * 1000, abs=1)
    assert received.tags_of("airflow.backstream.stage_duration") == {"dataset", "mode", "stage"}


def test_a_driver_on_the_cluster_holds_no_slot_of_airflow(cluster: Cluster, far: FarRun) -> None:
    assert any("org.apache.spark.deploy.worker.Worker" in parent for parent in far.parents)
    assert not any("airflow" in parent.split()[0] or " airflow " in parent for parent in far.parents)
    assert (far.pool["running_slots"], far.pool["deferred_slots"]) == (0, 1)


def test_a_run_resumes_after_its_driver_was_stopped_and_publishes_the_reference_values(
    cluster: Cluster, far: FarRun
) -> None:
    # The chapter waits until the driver of the cancelled run has ended.
    assert far.state == "success", cluster.log_of("reprocess_far", far.run_id, "replay")
    wanted = expected(cluster, "events", HISTORY, days(2, 3)).values()
    assert published(cluster, "far", days(2, 3)) == {
        place: final for place, (_, _, final) in wanted.items() if final
    }


def test_a_driver_on_the_cluster_gets_no_secret_of_the_lake(cluster: Cluster, far: FarRun, s3: Store) -> None:
    assert far.environment["BACKSTREAM_HOME"] == str(cluster.home)
    found = {
        name
        for name, value in far.environment.items()
        for secret in (CATALOG_PASSWORD, s3.secret)
        if secret in value
    }
    assert found == set()


def test_doctor_checks_the_catalog_and_the_store_of_the_connections(cluster: Cluster, s3: Store) -> None:
    command = [str(Path(sys.executable).parent / "backstream"), "doctor"]
    ended = subprocess.run(
        command, env=dict(cluster.stack.environment), capture_output=True, text=True, check=False
    )
    found = {line[:17].split()[0] + " " + line[6:17].strip(): line[19:] for line in ended.stdout.splitlines()}

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert found["ok catalog"].startswith("postgresql+psycopg2://postgres:***@/")
    assert found["ok warehouse"] == f"s3://{BUCKET}/{FOLDER}"
    assert found["ok pool"] == "spark: 2 slots"
    assert found["ok triggerer"] == "is running"
    assert "backstream_warehouse: generic, s3://" in ended.stdout
    assert "clock" not in ended.stdout
    assert [secret for secret in (CATALOG_PASSWORD, s3.secret) if secret in ended.stdout] == []


def test_nothing_of_it_runs_on(cluster: Cluster, looked_again: list[str]) -> None:
    assert cluster.jobs() == []


def test_the_files_of_the_lake_are_in_the_store_and_nowhere_else(
    cluster: Cluster, looked_again: list[str], s3: Store
) -> None:
    names = {key.rpartition(".")[2] for key in s3.keys(f"{BUCKET}/{FOLDER}") if "/events/" in key}
    # The mark of a publication keeps vacuum from the staged files of its run.
    assert names == {"parquet", "avro", "json", "publication"}
    assert not (cluster.home / "warehouse").exists()


def test_no_secret_is_in_a_log_a_plan_or_a_report(cluster: Cluster, looked_again: list[str], s3: Store) -> None:
    names = {CATALOG_PASSWORD, ALERT_TOKEN, s3.secret}
    found = [(path, name) for path, text in cluster.texts() for name in names if name in text]
    assert found == []
