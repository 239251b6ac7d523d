"""Show one run while it goes on: its state, phase, chunks, rate, and remaining time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from backstream.pages.airflow import Airflow, DagRun, RejectedError
from backstream.pages.render import Page, page, time_left_text
from backstream.pages.runs import RunAddress, find_run, list_triggers, page_head
from backstream.pages.store import PageStore
from backstream.runs.status import RunStatus
from backstream.workflow.run_state import DELETED, RunState, with_end

_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class ShownRun:
    """One run: its state from its files (None before its request), and from Airflow (None if not visible there).

    `address` is that of Airflow, if the run has one. `report` is its report, which exists when the run waits for
    approval or has ended. `others` are the runs of the other task groups of its Dag run. `notice` is a sentence
    about the systems that do not respond.
    """

    address: RunAddress
    dataset: str
    state: RunState | None
    dag_run: DagRun | None
    report: Path | None
    others: tuple[RunState, ...] = ()
    notice: str = ""

    @property
    def is_unfinished(self) -> bool:
        """Return whether the run goes on."""
        if self.state is None:
            return self.dag_run is not None and not self.dag_run.has_ended
        return self.state.is_unfinished


async def load_run(records: PageStore, address: RunAddress, airflow: Airflow) -> ShownRun:
    """Return a run; if Airflow has ended it, its state is not that of an unfinished run.

    If the address is a Dag run with several task groups, this is the first run that is not finished.
    """
    found = [
        state
        for trigger in list_triggers(records.home, address)
        if (state := find_run(records.home, trigger, records.runs(trigger.dataset)))
    ]
    state = next((run for run in found if run.is_unfinished), found[0] if found else None)
    if state and state.dag_id:
        address = RunAddress.from_state(state)
    notices = [records.notice] if records.notice else []
    try:
        dag_run = await airflow.dag_run(address.dag_id, address.run_id, address.group)
    except RejectedError as error:
        if error.is_unanswered:
            notices.append(f"{error}. The state of the Dag run is missing.")
        dag_run = None
        if state and state.dag_run_id and error.status == _NOT_FOUND:
            state = with_end(state, DELETED)
    others = tuple(run for run in found if run is not state)
    if state and dag_run and dag_run.has_ended:
        state = with_end(state)
    report = records.home.run(state.dataset, state.run_id).report if state else None
    names = [trigger.dataset for trigger in list_triggers(records.home, address)]
    name = state.dataset if state else names[0] if names else ""
    found_report = report if report and report.is_file() else None
    return ShownRun(address, name, state, dag_run, found_report, others, " ".join(notices))


def final_report(run: ShownRun) -> Path | None:
    """Return the report of a run that has ended with a result; None as long as its page is live.

    A run that waited for approval has a report from before its publication, so Airflow must have ended the run. A
    Dag run with several runs has a page with all of them.
    """
    is_over = run.dag_run is None or run.dag_run.has_ended
    has_result = run.state is not None and run.state.state in (RunStatus.PUBLISHED, RunStatus.REFUSED)
    return run.report if is_over and has_result and not run.others else None


def run_page(run: ShownRun, *, may_edit: bool, problem: str = "", status: int | None = None) -> Page:
    """Return the live page of a run.

    Args:
        run: the run.
        may_edit: whether the user may cancel and dismiss it.
        problem: error of the last action of the user.
        status: HTTP status; by default that of a run that is found or not.
    """
    is_known = run.state is not None or run.dag_run is not None
    return page(
        "run.html",
        status or (200 if is_known else _NOT_FOUND),
        title=f"{run.dataset}: run",
        dataset=page_head(run.dataset, run.address.dag_id) if run.dataset else None,
        tab="runs",
        shown=run,
        run=run.state,
        dag_run=run.dag_run,
        waits=run.state is not None and run.state.state is RunStatus.AWAITING_APPROVAL,
        may_cancel=may_edit and run.is_unfinished,
        may_edit=may_edit,
        may_dismiss=may_edit and run.state is not None and run.state.is_dismissible,
        left=time_left_text,
        problem=problem,
        notice=run.notice,
        reload=run.is_unfinished or (run.dag_run is not None and not run.dag_run.has_ended),
    )


async def cancel_page(records: PageStore, address: RunAddress, airflow: Airflow) -> Page:
    """Cancel a run, and return its page."""
    run, problem = await load_run(records, address, airflow), ""
    try:
        await airflow.cancel(run.address.dag_id, run.address.run_id)
    except RejectedError as error:
        problem = error.describe("cancel the run")
    run = await load_run(records, address, airflow)
    return run_page(run, may_edit=True, problem=problem)
