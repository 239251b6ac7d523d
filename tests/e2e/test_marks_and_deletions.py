"""People mark, clear, and delete in a real Airflow; nothing gets around an approval."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from demo.airflow_api import FINISHED, AirflowApi
from demo.settings import USER
from demo.stack import Stack
from tests.e2e.questions import can_answer
from tests.workflow.conftest import LENIENT
from tests.workflow.history import CLICKS, at, write_clicks, write_definition

from backstream.lake.ledger import RunRow
from backstream.lake.run_rows import list_runs
from backstream.runs.home import Home

pytestmark = pytest.mark.e2e
LIMIT_S = 300
ASKS = "awaiting_input"
DAGS = ("reprocess_clicks", "backfill_clicks")
CLICKED = [(at(f"{day} 05:00"), at(f"{day} 05:01"), "A", day, "home") for day in range(1, 6)]
LATE = [(at("4 06:00"), at("9 06:00"), "A", 9, "late"), (at("4 07:00"), at("9 07:00"), "A", 10, "late")]


class Site:
    """An Airflow that serves one dataset, whose runs need an approval, and a client of it."""

    def __init__(self, folder: Path, stack: Stack, api: AirflowApi) -> None:
        self.folder, self.stack, self.api = folder, stack, api
        login = {"username": USER, "password": stack.password}
        self.http = httpx.Client(base_url=stack.place.url, trust_env=False, timeout=90)
        token = self.http.post("/auth/token", json=login).json()["access_token"]
        self.http.headers.update({"Authorization": f"Bearer {token}", "sec-fetch-site": "same-origin"})

    def call(self, method: str, path: str, **options: Any) -> Any:
        """Return the answer of Airflow's API, or of a page; a person asks again when SQLite was busy."""
        for wait_s in (1, 2, 4, 8, 0):
            answer = self.http.request(method, path, **options)
            if answer.status_code != 500 or "Database error" not in answer.text:
                break
            time.sleep(wait_s)
        assert answer.is_success, answer.text
        is_json = answer.content and "json" in answer.headers.get("content-type", "")
        return answer.json() if is_json else answer.text

    def start(self, dag_id: str, run_id: str, day: int, **conf: Any) -> None:
        """Create a Dag run for a day of March; the range of a scheduled DAG is its data interval."""
        ends = {"since": f"2024-03-{day:02}T00:00:00Z", "until": f"2024-03-{day + 1:02}T00:00:00Z"}
        is_reprocess = dag_id.startswith("reprocess_")
        body = {
            "dag_run_id": run_id,
            "logical_date": None if is_reprocess else ends["until"],
            "conf": (ends if is_reprocess else {}) | {"reason": run_id} | conf,
        }
        self.call("POST", f"/api/v2/dags/{dag_id}/dagRuns", json=body)

    def task(self, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
        """Return the newest state of a task."""
        found = [each for each in self.api.task_instances(dag_id, run_id) if each["task_id"] == task_id]
        return found[0] if found else {"state": None}

    def until(self, dag_id: str, run_id: str, task_id: str, *states: str) -> dict[str, Any]:
        """Wait until a task has one of some states, and can be answered if it asks; return it."""

        def has_state() -> bool:
            task = self.task(dag_id, run_id, task_id)
            return task["state"] in states and (task["state"] != ASKS or can_answer(self.stack, task))

        self.stack.wait_until(f"{task_id} of {run_id} of {dag_id} is {' or '.join(states)}", has_state, LIMIT_S)
        return self.task(dag_id, run_id, task_id)

    def until_ended(self, dag_id: str, run_id: str) -> str:
        """Wait for the end of a Dag run, and return its state."""
        what = f"{run_id} of {dag_id} has ended"
        self.stack.wait_until(what, lambda: self.api.run_state(dag_id, run_id) in FINISHED, LIMIT_S)
        return self.api.run_state(dag_id, run_id)

    def has_ended_without_question(self, dag_id: str, run_id: str) -> bool:
        """Wait until a Dag run has ended, or asks its approver, and return whether it has ended."""

        def has_ended() -> bool:
            return self.api.run_state(dag_id, run_id) in FINISHED

        what = f"{run_id} of {dag_id} has ended or asks"
        self.stack.wait_until(
            what, lambda: has_ended() or self.task(dag_id, run_id, "approve")["state"] == ASKS, LIMIT_S
        )
        return has_ended()

    def mark(self, dag_id: str, run_id: str, task_id: str) -> None:
        """Mark a task as success."""
        path = f"{run_path(dag_id, run_id)}/taskInstances/{task_id}"
        self.call("PATCH", path, json={"new_state": "success"})

    def clear(self, dag_id: str, run_id: str, task_id: str) -> None:
        """Clear one task, without those after it."""
        body = {"dag_run_id": run_id, "dry_run": False, "only_failed": False, "task_ids": [task_id]}
        self.call("POST", f"/api/v2/dags/{dag_id}/clearTaskInstances", json=body)

    def page(self, name: str, dag_id: str, run_id: str) -> str:
        """Return a page of a run."""
        return str(self.call("GET", f"/backstream/{name}", params={"dag_id": dag_id, "run_id": run_id}))

    def answer(self, dag_id: str, run_id: str) -> None:
        """Approve a run on its page."""
        params = {"dag_id": dag_id, "run_id": run_id}
        self.call("POST", "/backstream/approval", params=params, data={"answer": "Approve"})

    def log_of(self, dag_id: str, run_id: str, task_id: str) -> str:
        """Return the log of the newest attempt of a task."""
        return "\n".join(map(str, self.api.log(self.task(dag_id, run_id, task_id))))

    def rows(self, reason: str) -> list[RunRow]:
        """Return the ledger of the runs with a reason, oldest first."""
        found = reversed(list_runs(Home(self.stack.place.home), "clicks"))
        return [row for row in found if reason in row.reason]

    def count_events(self) -> int:
        """Return the number of events of the asset of the dataset and of its days."""
        return int(self.call("GET", "/api/v2/assets/events", params={"limit": 1})["total_entries"])


def run_path(dag_id: str, run_id: str) -> str:
    """Return the path of a Dag run in Airflow's API."""
    return f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Serve the clicks of five days."""
    folder = tmp_path_factory.mktemp("people")
    write_clicks(folder / "data/a.parquet", CLICKED)
    definition = write_definition(
        folder, CLICKS + '\n[quality]\nsuite = "lenient"\n\n[approval]\nwhen = "always"\n'
    )
    (folder / "definitions").mkdir()
    definition.rename(folder / "definitions/clicks.toml")
    (folder / "lenient.json").write_text(json.dumps(LENIENT))
    settings = {
        "BACKSTREAM_DEFINITIONS": str(folder / "definitions"),
        "BACKSTREAM_EXPECTATIONS": str(folder),
    }
    with Stack(folder / "home", settings=settings) as stack:
        api = stack.start()
        long_ago = datetime(2000, 1, 1, tzinfo=UTC)
        stack.wait_until("knows the DAGs", lambda: all(api.has_dag(name, long_ago) for name in DAGS), LIMIT_S)
        api.unpause(DAGS[1])
        served = Site(folder, stack, api)
        yield served
        served.http.close()


def test_approve_marked_as_success_publishes_nothing(site: Site) -> None:
    site.start(DAGS[0], "marked", 1)
    site.until(DAGS[0], "marked", "approve", ASKS)
    site.mark(DAGS[0], "marked", "approve")

    assert site.until_ended(DAGS[0], "marked") == "failed"

    publish = site.task(DAGS[0], "marked", "publish")
    assert (publish["state"], publish["try_number"]) == ("failed", 1)
    sentence = "approval.when = always requires an approval, and the approval request has no answer"
    assert sentence in site.log_of(DAGS[0], "marked", "publish")
    (row,) = site.rows("marked")
    assert (row.status, row.rows) == ("failed", None)
    assert sentence in str(row.error)
    assert sentence in site.page("run", DAGS[0], "marked")


@pytest.mark.parametrize(("marked", "fails"), [("replay", "audit"), ("audit", "approve")])
def test_a_task_after_one_that_was_marked_fails_at_once(site: Site, marked: str, fails: str) -> None:
    for attempt in range(5):
        run_id = f"{marked}-was-marked-{attempt}"
        site.start(DAGS[0], run_id, 5)
        site.until(DAGS[0], run_id, "plan", "success")
        site.mark(DAGS[0], run_id, marked)
        if site.has_ended_without_question(DAGS[0], run_id):
            break  # else the task had ended before it was marked

    assert site.until_ended(DAGS[0], run_id) == "failed"

    task = site.task(DAGS[0], run_id, fails)
    assert (task["state"], task["try_number"]) == ("failed", 1)
    assert [row.status for row in site.rows(run_id)][:1] == ["failed"]
    assert "hint: clear the task" in site.log_of(DAGS[0], run_id, fails)


@pytest.mark.long
def test_publish_marked_too_early_leaves_no_report_that_is_wrong(site: Site) -> None:
    site.start(DAGS[0], "early", 5, approval="never")
    site.until(DAGS[0], "early", "plan", "success")
    site.mark(DAGS[0], "early", "publish")

    site.until_ended(DAGS[0], "early")

    report = site.page("report", DAGS[0], "early")
    assert "did not finish" not in report
    assert "not published yet" in report
    assert "Interrupted" in site.page("run", DAGS[0], "early")


@pytest.mark.long
def test_two_dags_with_one_run_id_have_two_runs(site: Site) -> None:
    for dag_id, day in zip(DAGS, (2, 3), strict=True):
        site.start(dag_id, "same", day)
    for dag_id in DAGS:
        site.until(dag_id, "same", "approve", ASKS)
    days = [("2 Mar 2024", "3 Mar 2024"), ("3 Mar 2024", "2 Mar 2024")]
    for dag_id, (own, other) in zip(DAGS, days, strict=True):
        page = site.page("approval", dag_id, "same")
        assert own in page
        assert other not in page

    site.answer(DAGS[0], "same")

    assert site.until_ended(DAGS[0], "same") == "success"
    assert site.task(DAGS[1], "same", "approve")["state"] == ASKS
    site.answer(DAGS[1], "same")
    assert site.until_ended(DAGS[1], "same") == "success"
    assert [row.status for row in site.rows("same")] == ["published", "published"]


@pytest.mark.long
def test_a_run_that_was_deleted_and_created_again_reads_all_files_and_a_cleared_one_keeps_its_plan(
    site: Site,
) -> None:
    site.start(DAGS[0], "again", 4, reason="first")
    site.until(DAGS[0], "again", "replay", "success")
    site.call("PATCH", run_path(DAGS[0], "again"), json={"state": "failed"})
    site.call("DELETE", run_path(DAGS[0], "again"))
    write_clicks(site.folder / "data/late.parquet", LATE)
    site.start(DAGS[0], "again", 4, reason="second", approval="never")

    assert site.until_ended(DAGS[0], "again") == "success"

    assert "resuming" not in site.log_of(DAGS[0], "again", "plan")
    (row,) = site.rows("second")
    assert (row.status, row.rows, row.events_read, site.rows("first")) == ("published", 3, 3, [])
    events = site.count_events()
    for task_id in ("plan", "audit", "approve", "publish", "report"):
        site.clear(DAGS[0], "again", task_id)
        assert site.until_ended(DAGS[0], "again") == "success"
        if task_id != "report":
            assert ("there is nothing to do" in site.log_of(DAGS[0], "again", task_id)) is (task_id != "approve")
    assert site.count_events() == events
    assert site.rows("second") == [row]
