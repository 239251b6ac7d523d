"""Show one run while it goes on: its state, phase, chunks, rate, and remaining time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from backstream.pages.airflow import Airflow, DagRun, RejectedError
from backstream.pages.render import Page, page, time_left_text
from backstream.pages.runs import dataset_of_dag, find_run
from backstream.pages.store import PageStore
from backstream.runs.status import RunStatus
from backstream.workflow.status import RunState, with_end

NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class ShownRun:
    """One run: its state from its files (None before its request), and from Airflow (None if not visible there).

    `report` is its report, which exists when the run waits for approval or has ended.
    """

    dag_id: str
    run_id: str
    dataset: str
    state: RunState | None
    dag_run: DagRun | None
    report: Path | None

    @property
    def is_unfinished(self) -> bool:
        """Return whether the run goes on."""
        if self.state is None:
            return self.dag_run is not None and not self.dag_run.has_ended
        return self.state.is_unfinished


async def load_run(records: PageStore, dag_id: str, run_id: str, airflow: Airflow) -> ShownRun:
    """Return a run; if Airflow has ended it, its state is not that of an unfinished run."""
    name = dataset_of_dag(dag_id) or ""
    state = find_run(records.home, dag_id, run_id, records.runs(name))
    if state and state.dag_id:
        dag_id = state.dag_id
    try:
        dag_run = await airflow.dag_run(dag_id, run_id)
    except RejectedError:
        dag_run = None
    if state and dag_run and dag_run.has_ended:
        state = with_end(state)
    report = records.folder(name, state.run_id).report if state else None
    return ShownRun(dag_id, run_id, name, state, dag_run, report if report and report.is_file() else None)


def final_report(run: ShownRun) -> Path | None:
    """Return the report of a run that has ended with a result; None as long as its page is live.

    A run that waited for approval has a report from before its publication, so Airflow must have ended the run.
    """
    is_over = run.dag_run is None or run.dag_run.has_ended
    has_result = run.state is not None and run.state.state in (RunStatus.PUBLISHED, RunStatus.REFUSED)
    return run.report if is_over and has_result else None


def run_page(run: ShownRun, *, may_cancel: bool, problem: str = "") -> Page:
    """Return the live page of a run."""
    is_known = run.state is not None or run.dag_run is not None
    return page(
        "run.html",
        200 if is_known else NOT_FOUND,
        title=f"{run.dataset}: run",
        dataset={"name": run.dataset, "dag_id": run.dag_id} if run.dataset else None,
        tab="runs",
        shown=run,
        run=run.state,
        dag_run=run.dag_run,
        waits=run.state is not None and run.state.state is RunStatus.AWAITING_APPROVAL,
        may_cancel=may_cancel and run.is_unfinished,
        left=time_left_text,
        problem=problem,
        reload=run.is_unfinished,
    )


async def cancel_page(records: PageStore, dag_id: str, run_id: str, airflow: Airflow) -> Page:
    """Cancel a run, and return its page."""
    run, problem = await load_run(records, dag_id, run_id, airflow), ""
    try:
        await airflow.cancel(run.dag_id, run_id)
    except RejectedError as error:
        problem = f"Airflow did not cancel the run: {error}"
    run = await load_run(records, dag_id, run_id, airflow)
    return run_page(run, may_cancel=bool(problem), problem=problem)
