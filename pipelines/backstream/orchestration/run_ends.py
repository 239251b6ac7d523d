"""Listen to Airflow: record when a Dag run ends, so that no page or command shows it as running.

Tasks that were killed cannot record their end, nor those of a run that a user marked as failed. A Dag run can also
succeed without a result of its run, if a user marked its tasks as success. A task learns only here that Airflow
has accepted its success, and so its asset events.
"""

from __future__ import annotations

import time
from typing import Any

from airflow.listeners import hookimpl

from backstream.errors import BackstreamError
from backstream.eventtime.instants import SECOND_MS
from backstream.runs.home import Home
from backstream.runs.requests import record_end
from backstream.runs.settings import project_environment
from backstream.text import text_logger
from backstream.variables import HOME_VARIABLE

log = text_logger(__name__)


@hookimpl
def on_dag_run_running(dag_run: Any) -> None:
    """Remove the end of a run that a user cleared."""
    _record(dag_run, None)


@hookimpl
def on_dag_run_failed(dag_run: Any) -> None:
    """Record the end of a run."""
    _record(dag_run, int(time.time() * SECOND_MS))


@hookimpl
def on_dag_run_success(dag_run: Any) -> None:
    """Record the end of a run; one that was published has its result already."""
    _record(dag_run, int(time.time() * SECOND_MS))


@hookimpl
def on_task_instance_success(task_instance: Any) -> None:
    """Let a task of this process record that Airflow has accepted its success; a mark by a user is none."""
    record = getattr(getattr(task_instance, "task", None), "record_success", None)
    if record is None:
        return
    try:
        record()
    except (BackstreamError, OSError) as error:
        log.warning("cannot record the success of %s: %s", task_instance.task_id, error)


def _record(dag_run: Any, ended_at_ms: int | None) -> None:
    """Record the end in the request of a run; an error is a warning, because Airflow must go on."""
    try:
        home = Home.from_location(project_environment().get(HOME_VARIABLE) or ".backstream")
        home.fetch()
        record_end(home, dag_run.dag_id, dag_run.run_id, ended_at_ms)
    except (BackstreamError, OSError) as error:
        log.warning("cannot record the end of %s of %s: %s", dag_run.run_id, dag_run.dag_id, error)
