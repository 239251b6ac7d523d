"""Check that a run has all that its plan demands before it publishes: the audit of its results, and the approval.

What is missing never counts as yes: a task that was marked as success in Airflow has left nothing.
"""

from __future__ import annotations

from backstream.errors import QualityError, StepError
from backstream.lake.catalog import open_catalog_for_reading
from backstream.lake.diff import ADDED
from backstream.lake.published_runs import find_rollback_of
from backstream.lake.published_windows import load_published_windows
from backstream.lake.snapshots import find_commit_of_run
from backstream.lake.tables import find_table
from backstream.runs.manifest import hash_results, load_manifests
from backstream.runs.plan import Plan
from backstream.runs.results import ApprovalDecision, ApprovalRequest, Audit, Publication, Verdict
from backstream.runs.table_schemas import WINDOWS
from backstream.workflow.history import RunDifference, diff_run

_NEXT = "hint: clear the task {task} of the run with all tasks after it"


def require_audit(plan: Plan) -> Audit:
    """Return the audit of exactly the staged results of a run.

    Raises:
        StepError: when there is none.
    """
    if not plan.folder.audit_result.exists():
        msg = f"run {plan.run_id} was not audited\n\n{_NEXT.format(task='audit')}"
        raise StepError(msg)
    audit = Audit.read(plan.folder.audit_result)
    if audit.results != hash_results(load_manifests(plan)):
        fact = f"run {plan.run_id} staged results after its audit, which does not count for them"
        msg = f"{fact}\n\n{_NEXT.format(task='audit')}"
        raise StepError(msg)
    return audit


def require_publishable(plan: Plan) -> Audit:
    """Return the audit of a run that may be published: checked, and approved if its plan demands a person.

    Raises:
        StepError: when the audit or the answer of an approver is missing.
        QualityError: when the quality gate or an approver rejected the run.
    """
    refusal = f"refusing to publish {plan.dataset} {plan.range}"
    audit, decision = require_audit(plan), ApprovalDecision.find(plan.folder.approval)
    if decision and not decision.is_approved:
        msg = f"{refusal}: {decision}"
        raise QualityError(msg)
    if not audit.may_publish:
        msg = f"{refusal}: the verdict is {audit.verdict}"
        raise QualityError(msg)
    if reason := _reason_without_approval(plan, audit, decision):
        msg = f"{refusal}: {reason}\n\n{_NEXT.format(task='approve')}"
        raise StepError(msg)
    return audit


def _reason_without_approval(plan: Plan, audit: Audit, decision: ApprovalDecision | None) -> str:
    """Return the reason why the approval of a run is missing; empty if it has one or needs none."""
    request = ApprovalRequest.find_readable(plan.folder.approval_request)
    if request and decision and decision.asked_at_ms == request.asked_at_ms and request.audit_id == audit.audit_id:
        return ""
    if not may_need_person(plan, audit) or not needs_person(plan, diff_run(plan.home, plan.run_id, 0)):
        return ""
    when = f"approval.when = {_policy_of(plan)}"
    if request is None:
        return f"{when} requires an approval, and no approver was asked"
    if request.audit_id != audit.audit_id:
        return f"{when} requires an approval, and the approver was asked about an earlier audit"
    return f"{when} requires an approval, and the approval request has no answer"


def _policy_of(plan: Plan) -> str:
    """Return the value of `approval.when` for a run, which may override that of its definition."""
    return str(plan.definition.get("approval", {}).get("when", "never"))


def may_need_person(plan: Plan, audit: Audit) -> bool:
    """Return whether a run needs an approval, as far as its policy and its audit show; see `needs_person`.

    The person who runs the command line or the Python API decides alone. A result that the gate has refused is not
    published whatever a person answers.
    """
    when = _policy_of(plan)
    is_free = when == "never" or (when == "warn" and audit.verdict is Verdict.PASS)
    return audit.may_publish and not plan.is_direct and not is_free


def needs_person(plan: Plan, difference: RunDifference) -> bool:
    """Return whether a run that may need an approval needs one for these changes of the published rows."""
    is_restated = any(count for change, count in difference.changes.windows.items() if change != ADDED)
    return _policy_of(plan) != "restatement" or is_restated


def is_committed(plan: Plan) -> bool:
    """Return whether a run has been published, even if it was killed before it recorded this. It is final then."""
    if plan.folder.publication.exists():
        return True
    with open_catalog_for_reading(plan.home) as catalog:
        table = find_table(catalog, plan.tables[WINDOWS].name)
        return table is not None and find_commit_of_run(table, plan.run_id) is not None


def describe_final(plan: Plan) -> str:
    """Return the sentence for a task that is repeated after the publication of its run; empty before it."""
    if not is_committed(plan):
        return ""
    with open_catalog_for_reading(plan.home) as catalog:
        table = find_table(catalog, plan.tables[WINDOWS].name)
        undo_id = find_rollback_of(plan.home, table, plan.run_id) if table else None
    if undo_id:
        return f"run {plan.run_id} was published, and undone by {undo_id}: there is nothing to do"
    verdict = Audit.read(plan.folder.audit_result).verdict
    return f"run {plan.run_id} is published with the verdict {verdict}: there is nothing to do"


def has_published_rows(plan: Plan, publication: Publication) -> bool:
    """Return whether rows of a publication are still there; an empty one has none to lose."""
    runs = load_published_windows(plan.home, plan.dataset).runs_by_day().values()
    return not publication.rows or any(plan.run_id in run_ids for run_ids in runs)
