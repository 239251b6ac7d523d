"""Show the request to approve a publication and pass the answer on, and dismiss runs that ended without one."""

from __future__ import annotations

import time
from collections.abc import Mapping

from backstream.eventtime.instants import SECOND_MS
from backstream.pages.airflow import APPROVE, REJECT, Airflow, DagRun, RejectedError
from backstream.pages.render import Page, note_page, page
from backstream.pages.run import load_run, run_page
from backstream.pages.runs import RunAddress, find_folder, list_triggers, page_head
from backstream.pages.store import PageStore
from backstream.runs.home import RunFolder
from backstream.runs.plan_summary import PlanSummary
from backstream.runs.requests import Dismissal
from backstream.runs.results import ApprovalDecision, ApprovalRequest, Audit
from backstream.runs.status import describe_wait, find_pending_request

_BAD_REQUEST, _NOT_FOUND = 400, 404
_ANSWERS = {
    APPROVE: ("Approved", "Airflow stored your answer. The run publishes its result within a few seconds."),
    REJECT: (
        "Rejected",
        "Airflow stored your answer. The run ends, publishes nothing, and keeps its staged files.",
    ),
}
_CONFLICT = 409
_MAX_REASON = 500


def approval_page(
    records: PageStore, address: RunAddress, *, may_answer: bool, problem: str = "", status: int = 200
) -> Page:
    """Return the page of an approval request: the verdict, the changes of the published rows, and both answers."""
    folder = _find_asking_run(records, address)
    request = ApprovalRequest.find_readable(folder.approval_request) if folder else None
    if folder is None or request is None:
        sentence = f"Run {address.run_id} of {address.dag_id} has not requested an approval."
        return note_page("No approval request", sentence, status=_NOT_FOUND, notice=records.notice)
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
        notice=records.notice,
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
        problem = error.describe("accept the answer")
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
        notice=records.notice,
    )


def _find_asking_run(records: PageStore, address: RunAddress) -> RunFolder | None:
    """Return the folder of the run that asks; of several task groups, that of the first one without an answer."""
    triggers = list_triggers(records.home, address)
    folders = [folder for trigger in triggers if (folder := find_folder(records.home, trigger))]
    asking = (folder for folder in folders if find_pending_request(folder))
    return next(asking, folders[0] if folders else None)


def _outcome(folder: RunFolder) -> str:
    decision = ApprovalDecision.find(folder.approval)
    return f"{decision}, {decision.at}" if decision else ""


async def dismiss_page(
    records: PageStore, address: RunAddress, typed: Mapping[str, str], user: str, airflow: Airflow
) -> Page:
    """Record or undo the dismissal of a run by the user, and return its page; no data, day, or count changes."""
    run, reason = await load_run(records, address, airflow), typed.get("reason", "").strip()
    if typed.get("undo") and run.state is not None and run.state.dismissal is not None:
        run.state.dismissal.remove(records.home)
        return run_page(await load_run(records, address, airflow), may_edit=True)
    if run.state is None or not run.state.is_dismissible:
        problem = "The run cannot be dismissed: it has not stopped without a publication, or it is dismissed."
        return run_page(run, may_edit=True, problem=problem, status=_CONFLICT)
    if not reason or len(reason) > _MAX_REASON:
        problem = f"A reason of 1 to {_MAX_REASON} characters is required, got {len(reason)} characters."
        return run_page(run, may_edit=True, problem=problem, status=_BAD_REQUEST)
    now_ms = int(time.time() * SECOND_MS)
    Dismissal(run.state.dataset, run.state.run_id, user, reason, now_ms).write(records.home)
    return run_page(await load_run(records, address, airflow), may_edit=True)
