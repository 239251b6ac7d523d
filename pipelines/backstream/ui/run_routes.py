"""Define the routes of one run: its live page, its report, its approval, and its cancellation.

This module has no postponed annotations, because FastAPI cannot resolve those of nested functions.
"""

from typing import Annotated

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import Depends, FastAPI, Query, Request
from fastapi.responses import HTMLResponse

from backstream.runs.home import Home
from backstream.ui.request import airflow, form_values, html, is_allowed, page_store
from backstream.ui.security import require_own_form

_NOT_FOUND = 404
_Text = Annotated[str, Query(max_length=500)]
_MAY_READ = Depends(requires_access_dag("GET", DagAccessEntity.RUN))
_MAY_CANCEL = Depends(requires_access_dag("PUT", DagAccessEntity.RUN))
_MAY_ANSWER = Depends(requires_access_dag("PUT", DagAccessEntity.HITL_DETAIL))


def add_run_pages(app: FastAPI) -> None:
    """Add the routes of one run to an application."""
    _add_run(app)
    _add_approval(app)
    _add_report(app)


def _add_run(app: FastAPI) -> None:
    from backstream.pages import run as pages

    @app.get("/run", dependencies=[_MAY_READ])
    async def run(request: Request, user: GetUserDep, dag_id: _Text, run_id: _Text) -> HTMLResponse:
        shown = await pages.load_run(page_store(), dag_id, run_id, airflow(request))
        if report := pages.final_report(shown):
            return HTMLResponse(report.read_text(encoding="utf-8"))
        may_cancel = is_allowed(user, shown.dag_id, "PUT", DagAccessEntity.RUN)
        return html(pages.run_page(shown, may_cancel=may_cancel))

    @app.post("/cancel", dependencies=[_MAY_CANCEL, Depends(require_own_form)])
    async def cancel(request: Request, dag_id: _Text, run_id: _Text) -> HTMLResponse:
        return html(await pages.cancel_page(page_store(), dag_id, run_id, airflow(request)))


def _add_approval(app: FastAPI) -> None:
    from backstream.pages import approval as pages

    @app.get("/approval", dependencies=[_MAY_READ])
    def approval(user: GetUserDep, dag_id: _Text, run_id: _Text) -> HTMLResponse:
        may_answer = is_allowed(user, dag_id, "PUT", DagAccessEntity.HITL_DETAIL)
        return html(pages.approval_page(page_store(), dag_id, run_id, may_answer=may_answer))

    @app.post("/approval", dependencies=[_MAY_ANSWER, Depends(require_own_form)])
    async def answer(request: Request, dag_id: _Text, run_id: _Text) -> HTMLResponse:
        typed = await form_values(request)
        return html(await pages.answer_page(page_store(), dag_id, run_id, typed, airflow(request)))


def _add_report(app: FastAPI) -> None:
    from backstream.pages.render import note_page
    from backstream.pages.runs import find_report

    @app.get("/report", dependencies=[_MAY_READ])
    def report(dag_id: _Text, run_id: _Text, plan: _Text | None = None) -> HTMLResponse:
        path = find_report(Home.from_environment(), dag_id, run_id, plan)
        if path is None:
            sentence = (
                f"Run {run_id} of {dag_id} has no report yet. It is written when the run ends, is rejected, or "
                "waits for approval."
            )
            return html(note_page("No report", sentence, status=_NOT_FOUND))
        return HTMLResponse(path.read_text(encoding="utf-8"))
