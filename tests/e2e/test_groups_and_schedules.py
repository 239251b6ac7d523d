"""Whole DAGs and groups in a real Airflow: cleared, deleted, started by an asset, and an approval that expires."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from demo.settings import CHECKOUT
from demo.stack import Stack
from tests.e2e.sequences import CLICKED, LATE, LIMIT_S
from tests.e2e.test_marks_and_deletions import ASKS, Site, run_path
from tests.workflow.conftest import LENIENT
from tests.workflow.history import CLICKS, write_clicks, write_definition

from backstream.lake.run_rows import list_runs
from backstream.runs.home import Home
from backstream.workflow.status import list_run_states

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif("PEOPLE_SEQUENCES" not in os.environ, reason="runs for minutes; set PEOPLE_SEQUENCES"),
]
REPROCESS, RESTATE, GROUP = "reprocess_clicks", "restate_clicks", "own"
TASKS = ("plan", "replay", "audit", "approve", "publish", "report")
_REST = """
[quality]
suite = "lenient"

[approval]
when = "always"
timeout = "60s"

[backfill]
runner = "local"
"""
_DAG_FILE = """\
from airflow.sdk import DAG, task

from backstream.airflow import BackfillTaskGroup

with DAG("own", schedule=None, is_paused_upon_creation=False):
    days = {"since": "2024-03-02T00:00:00Z", "until": "2024-03-03T00:00:00Z"}
    BackfillTaskGroup("one", "clicks", run_params={"approval": "never", "reason": "of a group"}, **days)

with DAG("arrivals", schedule=None, is_paused_upon_creation=False):

    @task(outlets=[Asset("raw_clicks")])
    def copy_files():
        pass

    copy_files()
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Serve the clicks of three days, and a DAG with a task group."""
    folder = tmp_path_factory.mktemp("groups")
    write_clicks(folder / "data/a.parquet", CLICKED)
    text = CLICKS.replace("partition =", 'asset = "raw_clicks"\npartition =') + _REST
    (folder / "definitions").mkdir()
    write_definition(folder, text).rename(folder / "definitions/clicks.toml")
    shutil.copytree(CHECKOUT / "dags", folder / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "dags/own.py").write_text(_DAG_FILE.replace("import DAG", "import DAG, Asset"))
    (folder / "lenient.json").write_text(json.dumps(LENIENT))
    settings = {
        "BACKSTREAM_EXPECTATIONS": str(folder),
        "BACKSTREAM_DEFINITIONS": str(folder / "definitions"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
    }
    with Stack(folder / "home", settings=settings) as stack:
        api, long_ago = stack.start(), datetime(2000, 1, 1, tzinfo=UTC)
        names = (REPROCESS, RESTATE, GROUP, "arrivals")
        stack.wait_until("knows the DAGs", lambda: all(api.has_dag(name, long_ago) for name in names), 300)
        for name in names:
            api.unpause(name)
        found = Site(folder, stack, api)
        yield found
        found.http.close()


def statuses(site: Site) -> list[tuple[str, str]]:
    """Return reason and status of the rows in the ledger, oldest first."""
    found = reversed(list_runs(Home(site.stack.place.home), "clicks"))
    return [(row.reason.partition(";")[0], row.status.value) for row in found]


def create(site: Site, dag_id: str, **body: Any) -> None:
    """Create a run with the id `same`."""
    site.call("POST", f"/api/v2/dags/{dag_id}/dagRuns", json={"dag_run_id": "same", "logical_date": None, **body})


def test_an_approval_that_expires_publishes_nothing_and_can_be_asked_again(site: Site) -> None:
    site.start(REPROCESS, "expired", 1)
    assert site.until_ended(REPROCESS, "expired") == "failed"

    (state,) = list_run_states(Home(site.stack.place.home), "clicks")
    assert state.state.value == "refused", state
    assert [status for _, status in statuses(site)] == ["refused"]
    assert "no approver answered in time" in site.page("run", REPROCESS, "expired").lower()
    events = site.count_events()
    body = {"dag_run_id": "expired", "dry_run": False, "only_failed": False, "include_downstream": True}
    site.call("POST", f"/api/v2/dags/{REPROCESS}/clearTaskInstances", json=body | {"task_ids": ["approve"]})
    site.until(REPROCESS, "expired", "approve", ASKS)
    site.answer(REPROCESS, "expired")
    assert site.until_ended(REPROCESS, "expired") == "success"
    assert [status for _, status in statuses(site)] == ["refused", "published"]
    assert site.count_events() > events


def test_a_task_group_that_is_cleared_after_its_publication_changes_nothing(site: Site) -> None:
    create(site, GROUP)
    assert site.until_ended(GROUP, "same") == "success"
    before, events = statuses(site), site.count_events()
    assert before[-1] == ("of a group", "published")
    ids = [f"one.{task}" for task in TASKS]
    body = {"dag_run_id": "same", "dry_run": False, "only_failed": False, "task_ids": ids}
    site.call("POST", f"/api/v2/dags/{GROUP}/clearTaskInstances", json=body)

    assert site.until_ended(GROUP, "same") == "success"

    assert (statuses(site), site.count_events()) == (before, events)
    assert "there is nothing to do" in site.log_of(GROUP, "same", "one.publish")


def test_a_run_of_a_dag_that_was_deleted_and_is_back_is_another_run(site: Site) -> None:
    site.start(REPROCESS, "same", 3, reason="before", approval="never")
    assert site.until_ended(REPROCESS, "same") == "success"
    write_clicks(site.folder / "data/late.parquet", LATE)

    site.call("DELETE", f"/api/v2/dags/{REPROCESS}")
    deleted_at = datetime.now(UTC)
    page = site.call("GET", "/backstream/dataset", params={"dag_id": RESTATE})
    assert "clicks" in page
    site.stack.wait_until("has the DAG again", lambda: site.api.has_dag(REPROCESS, deleted_at), LIMIT_S)
    site.api.unpause(REPROCESS)
    site.start(REPROCESS, "same", 3, reason="after", approval="never")

    assert site.until_ended(REPROCESS, "same") == "success"
    assert "resuming" not in site.log_of(REPROCESS, "same", "plan")
    assert statuses(site)[-2:] == [("before", "published"), ("after", "published")]
    assert "after" in site.page("run", REPROCESS, "same")


def test_an_update_of_the_asset_of_the_input_reprocesses_the_stale_days(site: Site) -> None:
    write_clicks(site.folder / "data/late.parquet", LATE)
    before = len(statuses(site))
    create(site, "arrivals")
    assert site.until_ended("arrivals", "same") == "success"

    def list_restatements() -> list[dict[str, Any]]:
        runs = site.call("GET", f"/api/v2/dags/{RESTATE}/dagRuns", params={"limit": 10})["dag_runs"]
        return [run for run in runs if run["run_type"] == "asset_triggered"]

    site.stack.wait_until("the asset has triggered a run", lambda: bool(list_restatements()), LIMIT_S)
    run_id = list_restatements()[0]["dag_run_id"]

    def asks() -> list[str]:
        runs = site.call("GET", f"/api/v2/dags/{REPROCESS}/dagRuns", params={"limit": 50})["dag_runs"]
        ids = [run["dag_run_id"] for run in runs if run["state"] == "running"]
        return [each for each in ids if site.task(REPROCESS, each, "approve")["state"] == ASKS]

    def has_ended() -> bool:
        for each in asks():
            site.answer(REPROCESS, each)
        return site.api.run_state(RESTATE, run_id) in {"success", "failed"}

    site.stack.wait_until("the stale days are published", has_ended, LIMIT_S)
    assert site.api.run_state(RESTATE, run_id) == "success", run_path(RESTATE, run_id)
    assert len(statuses(site)) > before
    assert {status for _, status in statuses(site)[before:]} == {"published"}
