"""The tasks of a run, in order, in the DAG that is being built: the same however a run is started."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import Asset, get_current_context, task

from backstream.definition.model import Definition
from backstream.orchestration import tasks
from backstream.orchestration.approval import ApproveOperator
from backstream.orchestration.notify import BelowPass
from backstream.orchestration.replay import POOL, ReplayOperator
from backstream.orchestration.restate import WAITING, RestateOperator


def published_asset(definition: Definition) -> Asset:
    """What downstream DAGs are scheduled by: one event per published range, with its counts."""
    return Asset(name=definition.name, uri=f"backstream://{definition.name}", group="backstream")


def run_tasks(definition: Definition, definition_path: Path) -> None:
    """Plan, replay each batch of chunks, audit, approve, publish, report."""
    asset = published_asset(definition)

    @task
    def plan() -> list[dict[str, Any]]:
        """Decide what is read, in which chunks, against which state of the lake; write it down as a plan."""
        return tasks.plan(definition_path, get_current_context())

    @task(on_success_callback=BelowPass(), on_failure_callback=BelowPass())
    def audit(plan_path: str) -> str:
        """Check the result; a verdict of fail ends the run here, with its report and without publication."""
        return tasks.audit(plan_path)

    @task(outlets=[asset])
    def publish(plan_path: str) -> int:
        """Replace exactly the range in the published table, in one commit."""
        return tasks.publish(plan_path, get_current_context(), asset)

    @task
    def report(plan_path: str) -> str:
        """Write the run report: verdict, checks, where the events went, what was published."""
        return tasks.report(plan_path)

    planned: Any = plan()
    replayed = ReplayOperator.partial(
        task_id="replay",
        pool=POOL,
        map_index_template="{{ task.name }}",
        doc_md="Replay a batch of chunks as a Spark job: fates, panes and metrics, staged beside the lake.",
    ).expand_kwargs(planned)
    plan_path = planned[tasks.PLAN_KEY]
    approve = ApproveOperator(
        task_id="approve",
        plan_path=plan_path,
        response_timeout=timedelta(milliseconds=definition.approval.timeout),
        doc_md="Ask a person, where the definition or the form says so; without an answer nothing is published.",
    )
    replayed >> audit(plan_path) >> approve >> publish(plan_path) >> report(plan_path)


def restate_before(restate_dag_id: str) -> None:
    """Beside all that: what is stale or missing before the interval of a scheduled run."""
    RestateOperator(
        task_id="restate",
        trigger_dag_id=restate_dag_id,
        doc_md="Of a scheduled run: have what is stale or missing before it redone, and wait for the end of that.",
        **WAITING,
    )


def restate_tasks(definition_path: Path, reprocess_dag_id: str) -> None:
    """Find what is stale or missing, and have each range run as a run of its own, one after another."""

    @task
    def find() -> list[dict[str, Any]]:
        """Compare what is published with the input files there are now, and look for days that no run covers."""
        return tasks.find(definition_path, get_current_context())

    TriggerDagRunOperator.partial(
        task_id="reprocess",
        trigger_dag_id=reprocess_dag_id,
        fail_when_dag_is_paused=True,  # or it would wait until someone wonders
        max_active_tis_per_dagrun=1,
        map_index_template="{{ task.conf['since'] }} to {{ task.conf['until'] }}",
        doc_md="Run one range as a run of the other DAG, and wait for its end.",
        **WAITING,
    ).expand_kwargs(find())
