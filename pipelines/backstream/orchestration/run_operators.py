"""Define the operators around the jobs of a run: audit, publish, report, wait for approval, and restate."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import BaseOperator

from backstream.errors import QualityError
from backstream.orchestration import tasks
from backstream.orchestration.airflow_versions import (
    HAS_PAUSED_STATE,
    AirflowSkipException,
)
from backstream.orchestration.connections import provide_environment
from backstream.orchestration.notifications import report_link
from backstream.orchestration.run_range import data_interval, resolve_range, with_seconds
from backstream.orchestration.tasks import begin_task, fail_without_retry
from backstream.runs.home import RunFolder
from backstream.runs.plan import Plan
from backstream.runs.progress import Phase
from backstream.runs.results import ApprovalDecision, Audit
from backstream.storage.files import write_text
from backstream.text import text_logger

log = text_logger(__name__)


class ApproveOperator(ApprovalOperator):
    """Operator that waits for an approver, without a slot, if the definition or the form requires approval.

    The approver sees the verdict and the changes. A timeout counts as a rejection. After a rejection the run fails
    without publication, and the staged files are kept.
    """

    template_fields = (*ApprovalOperator.template_fields, "plan_path")

    def __init__(self, *, plan_path: str, definition_path: str, **kwargs: Any) -> None:
        # Airflow's form highlights a default. Without one, the event of a timeout has an error: a rejection too.
        super().__init__(subject="Publish?", **kwargs)
        self.plan_path = plan_path
        self.definition_path = definition_path

    def execute(self, context: Any) -> None:
        """Request the approval if the run requires one."""
        with fail_without_retry():
            begin_task(Path(self.definition_path), self.plan_path, Phase.APPROVE)
            plan, ti = Plan.load(self.plan_path), context["ti"]
            from backstream.workflow.approval import request_approval

            request = request_approval(plan, ti.dag_id, ti.run_id, ti.task_id)
        if request is None:
            log.info("%s %s: no approval required", plan.dataset, plan.range)
            return
        self.subject = f"Publish {plan.dataset}, {plan.range}?"
        link = report_link(ti)
        self.body = f"{request.text}\n\n[Report of the run, with the changed rows]({link})"
        log.info("%s waits for approval, %s at most", plan.run_id, self.response_timeout)
        super().execute(context)

    def execute_complete(self, context: Any, event: dict[str, Any]) -> None:
        """Record the decision with the run.

        Raises:
            AirflowFailException: when the run was rejected, or the approval timed out.
        """
        decision = parse_decision(event)
        with fail_without_retry():
            provide_environment(Path(self.definition_path))
            plan = Plan.load(self.plan_path)
            from backstream.workflow.approval import record_approval

            record_approval(plan, decision)
            if not decision.is_approved:
                msg = f"{plan.run_id} was {decision}: nothing was published, and its staged files are kept"
                raise QualityError(msg)
        log.info("%s was %s", plan.run_id, decision)


def parse_decision(event: Mapping[str, Any]) -> ApprovalDecision:
    """Return the decision in Airflow's event; anything but an approval by a user is a rejection."""
    user = event.get("responded_by_user") or {}
    is_approved = not event.get("error") and event.get("chosen_options") == [ApprovalOperator.APPROVE]
    name = str(user.get("name") or user.get("id") or "")
    answered_at = event.get("responded_at") or datetime.now(UTC)
    at_text = answered_at if isinstance(answered_at, str) else answered_at.isoformat(timespec="seconds")
    return ApprovalDecision(is_approved and bool(name), name, at_text)


_SCHEDULED = "scheduled"
"""Airflow's type of a run that the schedule started."""

WAITING: dict[str, Any] = {
    "logical_date": None,
    "wait_for_completion": True,
    "poke_interval": 5,
    # Clearing the task reruns the other run. A retry would do the same after each failure, so there are none.
    "reset_dag_run": True,
    "retries": 0,
}
"""Arguments of an operator that triggers a run of another DAG and ends with the state of that run."""


class RestateOperator(TriggerDagRunOperator):
    """Operator that triggers `restate_<name>` for the time before the data interval of a scheduled run.

    The task is skipped in a manual run and in a run of a Backfill, because these are for their own range only. It
    is also skipped while the other DAG is paused.
    """

    def execute(self, context: Any) -> None:
        """Trigger the run of the other DAG.

        Raises:
            AirflowSkipException: when this run is not a scheduled one, or the other DAG is paused.
        """
        run_id, run_type = context["run_id"], context["dag_run"].run_type
        if run_type != _SCHEDULED:
            msg = f"only a scheduled run restates earlier days, and this run has the type {run_type.value}"
            raise AirflowSkipException(msg)
        if HAS_PAUSED_STATE and context["ti"].get_dag(self.trigger_dag_id).is_paused:
            msg = f"{self.trigger_dag_id} is paused: stale and missing days are not reprocessed"
            raise AirflowSkipException(msg)
        with fail_without_retry():
            interval = resolve_range({}, data_interval(context))
        self.trigger_run_id = f"before__{run_id}"
        self.conf = {"until": with_seconds(interval.start_ms), "reason": f"found by {run_id}"}
        super().execute(context)


class _ResultOperator(BaseOperator):
    """Operator for the result of a run. The provider of OpenLineage calls its hooks when the task ends.

    Without the provider, nothing calls them. An error in them is a warning in the log of the task.
    """

    template_fields = ("plan_path",)

    def __init__(self, *, plan_path: str, definition_path: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan_path = plan_path
        self.definition_path = definition_path

    def _load_lineage(self) -> tuple[Any, Audit | None]:
        """Return the lineage of the run, and its audit if there is one."""
        from backstream.workflow.lineage import describe_lineage

        provide_environment(Path(self.definition_path))
        plan = Plan.load(self.plan_path)
        audit = Audit.find(plan.folder.audit_result)
        return describe_lineage(plan), audit


class AuditOperator(_ResultOperator):
    """Operator that checks the result. If the verdict is fail, the run ends without publication."""

    def execute(self, context: Any) -> str:
        """Return the verdict.

        Raises:
            AirflowFailException: when the verdict forbids publication.
        """
        return tasks.execute_audit(Path(self.definition_path), self.plan_path)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Return the audited table and the checks as OpenLineage's `OperatorLineage`; after a failure, too."""
        from backstream.orchestration.openlineage import audit_lineage

        return audit_lineage(*self._load_lineage())


class PublishOperator(_ResultOperator):
    """Operator that replaces exactly the range in the published table, in one commit."""

    def __init__(self, *, asset: Any, days: Any, **kwargs: Any) -> None:
        """Set the assets of the dataset and of its days; `days` is None without assets that have partitions."""
        super().__init__(outlets=[asset, days] if days else [asset], **kwargs)
        self.asset = asset
        self.days = days

    def execute(self, context: Any) -> int:
        """Return the number of published rows."""
        arguments = (Path(self.definition_path), self.plan_path, context, self.asset, self.days)
        rows, is_new = tasks.execute_publish(*arguments)
        if not is_new:
            self.outlets = []  # Airflow sends an event for each outlet of a task that succeeds
        return rows

    def record_success(self) -> None:
        """Record that Airflow has accepted the events; a task that was killed before this sends them again."""
        if self.outlets:
            write_text(RunFolder.from_plan(self.plan_path).events_sent, "")

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Return inputs, tables, and columns as OpenLineage's `OperatorLineage`."""
        from backstream.orchestration.openlineage import publication_lineage

        return publication_lineage(*self._load_lineage())

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> None:
        """Return nothing: a publication that failed has written nothing."""
