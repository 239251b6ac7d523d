"""Record the request for a run before it is planned, so that a run without a plan is listed with its error."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from backstream.errors import BackstreamError
from backstream.eventtime.instants import SECOND_MS
from backstream.orchestration.params import AS_DEFINED
from backstream.orchestration.run_range import data_interval, resolve_range
from backstream.runs.home import Home
from backstream.runs.plan import Plan
from backstream.runs.requests import RunRequest

log = logging.getLogger(__name__)


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

    def add_plan(self, plan: Plan) -> None:
        """Add the plan that the request led to."""
        self.add(run_id=plan.run_id, mode=plan.mode.value, since_ms=plan.since_ms, until_ms=plan.until_ms)


def trigger_of(context: Mapping[str, Any], request: Mapping[str, Any] | None) -> str:
    """Return the trigger of a run: its Dag run, or the task `plan` of its group, if a group requests the run.

    Runs of other DAGs can have the same run id.
    """
    if request is None:
        return str(context["run_id"])
    group = context["ti"].task_id.rpartition(".")[0]
    return f"{context['ti'].dag_id}.{group}.plan.{context['run_id']}"


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
