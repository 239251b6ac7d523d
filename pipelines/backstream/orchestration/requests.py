"""Record the request for a run before it is planned, so that a run without a plan is listed with its error."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any
from uuid import uuid4

from backstream.errors import BackstreamError
from backstream.eventtime.instants import SECOND_MS
from backstream.orchestration.params import AS_DEFINED
from backstream.orchestration.run_range import data_interval, resolve_range
from backstream.runs.home import Home
from backstream.runs.plan import Plan
from backstream.runs.requests import RunRequest, find_all_requests
from backstream.text import text_logger

_CREATION = "creation"
"""Key of the state of a task, and of the XCom, with the id of a Dag run's creation."""
_CREATION_LENGTH = 8

log = text_logger(__name__)


@dataclass(slots=True)
class RecordedRequest:
    """The request of the current run, which is written again with each new fact.

    A request only informs. If it cannot be written, e.g., on a full disk, the run goes on with a warning.
    """

    home: Home
    request: RunRequest

    def add(self, **facts: Any) -> None:
        """Add facts to the request, and write it."""
        self.request = replace(self.request, **facts)
        try:
            self.request.write(self.home)
        except (BackstreamError, OSError) as error:
            log.warning("cannot write the request of this run, so its list entry is incomplete: %s", error)

    def end_deleted(self) -> None:
        """Record the end of the Dag runs that had the id of this one: Airflow has deleted them."""
        own = self.request
        for other in find_all_requests(self.home, own.dag_id, own.dag_run_id):
            is_deleted = other.task_group == own.task_group and other.triggered_by != own.triggered_by
            if is_deleted and other.ended_at_ms is None:
                with suppress(BackstreamError, OSError):
                    replace(other, ended_at_ms=own.requested_at_ms).write(self.home)

    def add_plan(self, plan: Plan) -> None:
        """Add the plan that the request led to."""
        planned_at_ms = int(time.time() * SECOND_MS)
        facts = {"mode": plan.mode.value, "since_ms": plan.since_ms, "until_ms": plan.until_ms}
        self.add(run_id=plan.run_id, planned_at_ms=planned_at_ms, **facts)


def trigger_of(context: Mapping[str, Any]) -> str:
    """Return the trigger of a run: its Dag run, its DAG, the task group if a group requests it, and its creation.

    Runs of other DAGs can have the same run id, and so can a Dag run that Airflow creates after a deleted one.
    """
    ti, creation = context["ti"], _load_creation(context)
    group = ti.task_id.rpartition(".")[0]
    return ".".join(part for part in (context["run_id"], context["dag"].dag_id, group, creation) if part)


def _load_creation(context: Mapping[str, Any]) -> str:
    """Return an id of Airflow's creation of a Dag run, which retries and cleared tasks keep.

    Airflow stores it with the Dag run and deletes it with the Dag run. A task `prepare` hands it on to `plan`.
    """
    ti = context["ti"]
    group, dot, task_id = ti.task_id.rpartition(".")
    prepare = f"{group}{dot}prepare"
    is_prepared = task_id != "prepare" and context["dag"].has_task(prepare)
    if is_prepared and (known := ti.xcom_pull(task_ids=prepare, key=_CREATION)):
        return str(known)
    store = context.get("task_state_store")
    creation = _find_creation(context) if store is None else store.get(_CREATION)
    if creation is None:
        creation = uuid4().hex[:_CREATION_LENGTH]
    if store is not None:
        from backstream.orchestration.airflow_versions import load_never_expire

        store.set(_CREATION, creation, retention=load_never_expire())
    if task_id == "prepare":
        ti.xcom_push(key=_CREATION, value=creation)
    return str(creation)


def _find_creation(context: Mapping[str, Any]) -> str | None:
    """Return the id of a creation for an Airflow below 3.3, which keeps no state of tasks.

    A Dag run keeps its start until it is cleared. A cleared one is the newest one with its id.
    """
    run, dag_id = context["dag_run"], context["dag"].dag_id
    if getattr(run, "clear_number", 0):
        known = find_all_requests(Home.from_environment(), dag_id, context["run_id"])
        return known[0].triggered_by.rpartition(".")[2] if known else None
    start = getattr(run, "start_date", None)
    return sha256(str(start).encode()).hexdigest()[:_CREATION_LENGTH] if start else None


@contextmanager
def record_request(
    context: Mapping[str, Any], dataset: str, params: Mapping[str, Any], trigger: str
) -> Iterator[RecordedRequest]:
    """Write the request of a run, and its error in one sentence if the block fails.

    Args:
        context: context of the task `prepare` or `plan`.
        dataset: name of the dataset.
        params: parameters of the run.
        trigger: id of the DAG run, or of the task group in it.
    """
    recorded = RecordedRequest(Home.from_environment(), _request_of(context, dataset, params, trigger))
    recorded.add()
    recorded.end_deleted()
    try:
        yield recorded
    except Exception as error:
        recorded.add(error=str(error).partition("\n")[0] or type(error).__name__)
        raise


def _request_of(context: Mapping[str, Any], dataset: str, params: Mapping[str, Any], trigger: str) -> RunRequest:
    run = context.get("dag_run")
    request = RunRequest(
        dataset=dataset,
        dag_id=context["dag"].dag_id,
        dag_run_id=context["run_id"],
        task_group=context["ti"].task_id.rpartition(".")[0],
        task=context["ti"].task_id.rpartition(".")[2],
        triggered_by=trigger,
        requested_at_ms=int(time.time() * SECOND_MS),
        by=str(getattr(run, "triggering_user_name", None) or ""),
        reason=str(params.get("reason") or "").strip(),
        mode="" if params.get("mode") in (None, AS_DEFINED) else str(params["mode"]),
        is_dry_run=bool(params.get("dry_run")),
    )
    with suppress(BackstreamError, ValueError):  # the task `plan` reports an invalid range
        interval = resolve_range(params, data_interval(context))
        return replace(request, since_ms=interval.start_ms, until_ms=interval.end_ms)
    return request
