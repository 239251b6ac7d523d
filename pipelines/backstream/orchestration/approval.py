"""Asking a person before a publication, through Airflow's own required actions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator

from backstream.core.decision import Decision
from backstream.core.errors import QualityError
from backstream.core.plan import Plan
from backstream.orchestration.tasks import failing_for_good, steps


class ApproveOperator(ApprovalOperator):
    """Waits for a person when the definition or the form says so, and takes no slot while it does.

    The question has the verdict and what would change. No answer in time is a no; a no fails the run, publishes
    nothing, and leaves what was staged.
    """

    template_fields = (*ApprovalOperator.template_fields, "plan_path")

    def __init__(self, *, plan_path: str, **kwargs: Any) -> None:
        super().__init__(subject="Publish?", defaults=ApprovalOperator.REJECT, **kwargs)
        self.plan_path = plan_path

    def execute(self, context: Any) -> None:
        """Ask, unless nobody has to be."""
        with failing_for_good():
            plan = Plan.read(Path(self.plan_path))
            body = steps().question(plan)
        if body is None:
            self.log.info("%s %s: nobody has to approve", plan.dataset, plan.range)
            return
        self.subject = f"Publish {plan.dataset}, {plan.range}?"
        self.body = body
        self.log.info("%s waits for approval, %s at most", plan.run_id, self.response_timeout)
        super().execute(context)

    def execute_complete(self, context: Any, event: dict[str, Any]) -> None:
        """Keep the answer with the run.

        Raises:
            AirflowFailException: when it was a no, or there was none in time.
        """
        decision = decision_of(event)
        with failing_for_good():
            plan = Plan.read(Path(self.plan_path))
            steps().decided(plan, decision)
            if not decision.is_approved:
                msg = f"{plan.run_id} was {decision}: nothing was published, and what was staged is kept"
                raise QualityError(msg)
        self.log.info("%s was %s", plan.run_id, decision)


def decision_of(event: Mapping[str, Any]) -> Decision:
    """What Airflow says of the answer; whatever is not an approval by someone is a no."""
    by = event.get("responded_by_user") or {}
    is_approved = not event.get("error") and event.get("chosen_options") == [ApprovalOperator.APPROVE]
    name = str(by.get("name") or by.get("id") or "")
    at = event.get("responded_at") or datetime.now(UTC)
    at_text = at if isinstance(at, str) else at.isoformat(timespec="seconds")
    return Decision(is_approved and bool(name), name, at_text)
