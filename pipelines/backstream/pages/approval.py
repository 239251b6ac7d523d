"""Show the request to approve a publication, and pass the answer of the user to Airflow."""

from __future__ import annotations

from collections.abc import Mapping

from backstream.pages.airflow import APPROVE, REJECT, Airflow, DagRun, RejectedError
from backstream.pages.render import Page, note_page, page
from backstream.pages.runs import RunAddress, find_folder, list_triggers, page_head
from backstream.pages.store import PageStore
from backstream.runs.approval_request import ApprovalRequest
from backstream.runs.home import RunFolder
from backstream.runs.plan_summary import PlanSummary
from backstream.runs.results import ApprovalDecision, Audit
from backstream.runs.status import describe_wait, find_pending_request

_BAD_REQUEST, _NOT_FOUND = 400, 404
_ANSWERS = {
    APPROVE: ("Approved", "Airflow stored your answer. The run publishes its result within a few seconds."),
    REJECT: (
        "Rejected",
        "Airflow stored your answer. The run ends, publishes nothing, and keeps its staged files.",
    ),
}


def approval_page(
    records: PageStore, address: RunAddress, *, may_answer: bool, problem: str = "", status: int = 200
) -> Page:
    """Return the page of an approval request: the verdict, the changes of the published rows, and both answers."""
    folder = _find_asking_run(records, address)
    request = ApprovalRequest.read(folder.approval_request) if folder else None
    if folder is None or request is None:
        sentence = f"Run {address.run_id} of {address.dag_id} has not requested an approval."
        return note_page("No approval request", sentence, status=_NOT_FOUND)
    plan, pending = PlanSummary.read(folder.summary), find_pending_request(folder)
    return page(
        "approval.html",
        status,
        title=f"{plan.dataset}: approval",
        dataset=page_head(plan.dataset, address.dag_id),
        tab="runs",
        plan=plan,
        address=address.query,
        request=request,
        audit=Audit.read(folder.audit_result),
        wait=describe_wait(request),
        outcome="" if pending else _outcome(folder),
        form_address=DagRun(request.dag_id, request.dag_run_id, "").form_address(request.task_id),
        answers=(APPROVE, REJECT),
        may_answer=may_answer,
        problem=problem,
    )


async def answer_page(records: PageStore, address: RunAddress, typed: Mapping[str, str], airflow: Airflow) -> Page:
    """Send the answer of the user to Airflow; on an error, return the request with Airflow's reason."""
    folder, option = _find_asking_run(records, address), typed.get("answer", "")
    request = find_pending_request(folder) if folder else None
    if option not in _ANSWERS:
        problem = f"the answer must be {APPROVE} or {REJECT}, got {option!r}"
        return approval_page(records, address, may_answer=True, problem=problem, status=_BAD_REQUEST)
    if folder is None or request is None:
        return approval_page(records, address, may_answer=True)
    try:
        await airflow.answer(request.dag_id, request.dag_run_id, request.task_id, option)
    except RejectedError as error:
        problem = f"Airflow did not accept the answer: {error}"
        return approval_page(records, address, may_answer=True, problem=problem, status=error.status)
    title, sentence = _ANSWERS[option]
    name = PlanSummary.read(folder.summary).dataset
    return page(
        "answered.html",
        title=title,
        dataset=page_head(name, address.dag_id),
        tab="runs",
        kind="pass" if option == APPROVE else "warn",
        sentence=sentence,
        address=address.query,
    )


def _find_asking_run(records: PageStore, address: RunAddress) -> RunFolder | None:
    """Return the folder of the run that asks; of several task groups, that of the first one without an answer."""
    triggers = list_triggers(records.home, address)
    folders = [folder for trigger in triggers if (folder := find_folder(records.home, trigger))]
    asking = (folder for folder in folders if find_pending_request(folder))
    return next(asking, folders[0] if folders else None)


def _outcome(folder: RunFolder) -> str:
    decision = ApprovalDecision.read(folder.approval)
    return f"{decision}, {decision.at}" if decision else ""
