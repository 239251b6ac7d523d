"""Define the operators that audit and publish the result of a run, and report its lineage to OpenLineage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator

from backstream.orchestration import tasks
from backstream.runs.plan import Plan
from backstream.runs.results import Audit


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
        workflow = tasks.load_workflow(Path(self.definition_path))
        plan = Plan.load(self.plan_path)
        audit = Audit.read(plan.folder.audit_result) if plan.folder.audit_result.exists() else None
        return workflow.describe_lineage(plan), audit


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
        return tasks.execute_publish(Path(self.definition_path), self.plan_path, context, self.asset, self.days)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Return inputs, tables, and columns as OpenLineage's `OperatorLineage`."""
        from backstream.orchestration.openlineage import publication_lineage

        return publication_lineage(*self._load_lineage())

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> None:
        """Return nothing: a publication that failed has written nothing."""
