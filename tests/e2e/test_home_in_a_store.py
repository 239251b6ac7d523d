"""The services and tasks of a real Airflow share no folder with a home: it is in an object store."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from demo.airflow_api import FINISHED, AirflowApi
from demo.settings import USER, Spark, airflow_command
from demo.stack import API_SERVER, Stack
from tests.chain.stored import HISTORY, home_address, settings, write_json_lines
from tests.e2e.cluster import limit_spark
from tests.e2e.standalone import cluster_in, require_mount_namespaces
from tests.lake.store import BUCKET, Store
from tests.spark.histories import Expected, days
from tests.spark.runs import in_ms

from backstream.definition.loader import load_definition
from backstream.lake.reader import load_rows
from backstream.runs.home import Home
from backstream.variables import CACHE_VARIABLE, WAREHOUSE_VARIABLE

pytestmark = pytest.mark.e2e
PLACE = "airflow"
DAG_ID = "reprocess_events"
RANGE = {"since": "2024-03-01T00:00:00Z", "until": "2024-03-05T00:00:00Z", "reason": "test"}
LIMIT_S = 400
DAG_FILE = """\
import shutil

from backstream.airflow import backfill_dags


def leave_machine(context):
    shutil.rmtree("{cache}")


options = {{"on_success_callback": leave_machine}}
globals().update(backfill_dags("{folder}", kinds=["backfill", "reprocess"], default_args=options))
"""


@pytest.fixture
def stack(tmp_path: Path, s3: Store) -> Iterator[Stack]:
    """Return an Airflow on a Spark cluster whose two workers see nothing of its folder.

    Its tasks find an empty cache, as on new machines, and the keys of the store only in an Airflow connection. The
    API server has a cache of its own, and the keys in its environment.
    """
    require_mount_namespaces()
    private = tmp_path / "private"
    (private / "dags").mkdir(parents=True)
    definition = write_json_lines(private / "dags", s3, PLACE)
    text = DAG_FILE.format(cache=private / "tasks", folder=definition.parent)
    (private / "dags" / "backfills.py").write_text(text)
    variables = settings(private, s3, PLACE)
    keys = [f"{name}={variables.pop(name)}" for name in list(variables) if name.startswith("AWS_")]
    command = airflow_command(API_SERVER, python=sys.executable)
    server = ["env", f"{CACHE_VARIABLE}={private / 'server'}", *keys, *command]
    airflow = {
        "AIRFLOW__CORE__DAGS_FOLDER": str(private / "dags"),
        "AIRFLOW_CONN_BACKSTREAM_WAREHOUSE": warehouse_connection(s3, variables.pop(WAREHOUSE_VARIABLE)),
        CACHE_VARIABLE: str(private / "tasks"),
    }
    with cluster_in(tmp_path / "cluster", os.environ) as cluster:
        for number in (1, 2):
            cluster.add_worker(number, hidden=private)
        spark = Spark(cluster.master, 1)
        with Stack(private / "state", spark, variables | airflow, {API_SERVER: server}) as started:
            limit_spark(started)
            yield started


def warehouse_connection(s3: Store, address: str) -> str:
    """Return the Airflow connection of the warehouse, with the keys of the store."""
    extra = {"endpoint_url": s3.endpoint}
    return json.dumps(
        {"conn_type": "aws", "host": address, "login": s3.key_id, "password": s3.secret, "extra": extra}
    )


def states(api: AirflowApi, run_id: str) -> dict[str, str]:
    """Return the states of the tasks of a run."""
    return {task["task_id"]: task["state"] for task in api.task_instances(DAG_ID, run_id)}


@pytest.mark.long
def test_tasks_and_pages_need_no_common_disk(
    tmp_path: Path, s3: Store, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "private"
    api = stack.start()
    stack.wait_until("knows the DAG", lambda: api.has_dag(DAG_ID, datetime(2000, 1, 1, tzinfo=UTC)), LIMIT_S)

    run_id = api.trigger(DAG_ID, RANGE)
    stack.wait_until("replays", lambda: states(api, run_id).get("replay") == "running", LIMIT_S)
    stack.crash(API_SERVER)
    stack.wait_until("has its API server again", lambda: bool(api.health()), LIMIT_S)
    stack.wait_until("has run it", lambda: api.run_state(DAG_ID, run_id) in FINISHED, LIMIT_S)

    tasks = states(api, run_id)
    failed = [task for task in api.task_instances(DAG_ID, run_id) if task["state"] == "failed"]
    assert not failed, "\n".join(map(str, api.log(failed[0])))
    assert tasks["publish"] == tasks["report"] == "success"
    assert api.xcom(DAG_ID, run_id, "plan", "plan").startswith(f"{home_address(PLACE)}/runs/events/")
    # Only the process that records the end of the Dag run opens the home there.
    assert [path.name for path in (private / "tasks").rglob("*") if path.is_file()] in ([], ["lock"])
    assert not (private / "state" / "runs").exists()
    for name, value in (settings(private, s3, PLACE) | {CACHE_VARIABLE: str(private / "test")}).items():
        monkeypatch.setenv(name, value)
    home, definition = Home.from_environment(), load_definition(private / "dags" / "events.toml")
    rows = load_rows(home, "events").to_pylist()
    expected = Expected(HISTORY, definition, days(0, 4)).published()
    assert {in_ms(row): (row["events"], row["total"]) for row in rows} == expected
    with httpx.Client(base_url=stack.place.url, trust_env=False, timeout=60) as pages:
        login = {"username": USER, "password": stack.password}
        token = pages.post("/auth/token", json=login).json()["access_token"]
        pages.headers["Authorization"] = f"Bearer {token}"
        overview = pages.get("/backstream/overview").text
        report = pages.get("/backstream/report", params={"dag_id": DAG_ID, "run_id": run_id})
    assert "Published" in overview
    assert report.status_code == 200, report.text
    assert "Record accounting" in report.text
    assert any(key.endswith("/report.html") for key in s3.keys(f"{BUCKET}/{PLACE}/home"))
