"""The request of a run informs only: a run goes on without it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backstream.orchestration.requests import RecordedRequest, trigger_of
from backstream.runs.home import Home
from backstream.runs.requests import RunRequest, load_requests


def test_a_request_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    home = Home(tmp_path)
    folder = home.requests("clicks")
    folder.parent.mkdir(parents=True)
    folder.write_text("a file in place of the folder")
    recorded = RecordedRequest(home, RunRequest("clicks", "reprocess_clicks", "one", "one", 0))
    recorded.add(error="no plan")
    assert recorded.request.error == "no plan"
    assert "cannot write the request of this run" in caplog.text


def trigger(start: str, clear_number: int = 0, **context: Any) -> str:
    """Return the trigger of a Dag run, in an Airflow that keeps no state of tasks unless the context has it."""
    dag = SimpleNamespace(dag_id="reprocess_clicks", has_task=lambda _: False)
    run = SimpleNamespace(start_date=start, clear_number=clear_number)
    return trigger_of(
        {"run_id": "one", "dag": dag, "dag_run": run, "ti": SimpleNamespace(task_id="plan")} | context
    )


def test_a_dag_run_that_was_created_again_has_another_trigger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKSTREAM_HOME", str(tmp_path))
    first = trigger("10:00")
    assert trigger("10:00") == first
    RunRequest("clicks", "reprocess_clicks", "one", first, 0).write(Home(tmp_path))
    assert trigger("11:00", clear_number=1) == first
    again = trigger("12:00")
    assert again != first
    RunRequest("clicks", "reprocess_clicks", "one", again, 1).write(Home(tmp_path))
    assert trigger("13:00", clear_number=1) == again


def test_the_task_prepare_hands_the_creation_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTREAM_HOME", str(tmp_path))
    pushed: dict[str, str] = {}
    dag = SimpleNamespace(dag_id="reprocess_clicks", has_task=lambda name: name == "prepare")
    push = SimpleNamespace(task_id="prepare", xcom_push=lambda key, value: pushed.update({key: value}))
    pull = SimpleNamespace(task_id="plan", xcom_pull=lambda key, **_: pushed[key])
    assert trigger("", ti=push, dag=dag) == trigger("", ti=pull, dag=dag)


def test_a_run_with_the_id_of_a_deleted_one_ends_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    first = RunRequest("clicks", "reprocess_clicks", "one", "one.a", 0)
    other = RunRequest("clicks", "backfill_clicks", "one", "one.b", 0)
    for request in (first, other):
        request.write(home)
    RecordedRequest(home, RunRequest("clicks", "reprocess_clicks", "one", "one.c", 7)).end_deleted()
    assert {each.triggered_by: each.ended_at_ms for each in load_requests(home, "clicks")} == {
        "one.a": 7,
        "one.b": None,
    }
