"""Define the routes of one run: its page, report, approval, cancellation, and dismissal, and its explained rows.

This module has no postponed annotations, because FastAPI cannot resolve those of nested functions.
"""

from typing import TYPE_CHECKING, Annotated

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import Depends, FastAPI, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse

from backstream.runs.home import Home
from backstream.ui.request import airflow, form_values, html, is_allowed, page_store
from backstream.ui.security import require_own_form

if TYPE_CHECKING:
    from backstream.pages.runs import RunAddress

_Text = Annotated[str, Query(max_length=500)]
_Keys = Annotated[list[_Text], Query(max_length=20)]
_NOT_FOUND = 404
_MAY_READ = Depends(requires_access_dag("GET", DagAccessEntity.RUN))
_MAY_EDIT = Depends(requires_access_dag("PUT", DagAccessEntity.RUN))
_MAY_ANSWER = Depends(requires_access_dag("PUT", DagAccessEntity.HITL_DETAIL))
_OWN_FORM = Depends(require_own_form)


def _find_address(dag_id: _Text, run_id: _Text, group: _Text = "") -> "RunAddress":
    from backstream.pages.runs import RunAddress

    return RunAddress(dag_id, run_id, group)


_Address = Annotated["RunAddress", Depends(_find_address)]


def add_run_pages(app: FastAPI) -> None:
    """Add the routes of one run to an application."""
    _add_run(app)
    _add_approval(app)
    _add_report(app)
    _add_explanation(app)


def _add_run(app: FastAPI) -> None:
    from backstream.pages import run as pages
    from backstream.pages.decisions import dismiss_page

    @app.get("/run", dependencies=[_MAY_READ])
    async def run(request: Request, user: GetUserDep, address: _Address, state: bool = False) -> HTMLResponse:
        records = await run_in_threadpool(page_store)
        shown = await pages.load_run(records, address, airflow(request))
        if not state and (report := pages.final_report(shown)):
            return HTMLResponse(report.read_text(encoding="utf-8"))
        may_edit = is_allowed(user, shown.address.dag_id, "PUT", DagAccessEntity.RUN)
        return html(pages.run_page(shown, may_edit=may_edit))

    @app.post("/cancel", dependencies=[_MAY_EDIT, _OWN_FORM])
    async def cancel(request: Request, address: _Address) -> HTMLResponse:
        return html(await pages.cancel_page(await run_in_threadpool(page_store), address, airflow(request)))

    @app.post("/dismiss", dependencies=[_MAY_EDIT, _OWN_FORM])
    async def dismiss(request: Request, user: GetUserDep, address: _Address) -> HTMLResponse:
        typed, records = await form_values(request), await run_in_threadpool(page_store)
        return html(await dismiss_page(records, address, typed, user.get_name(), airflow(request)))


def _add_approval(app: FastAPI) -> None:
    from backstream.pages import decisions as pages

    @app.get("/approval", dependencies=[_MAY_READ])
    def approval(user: GetUserDep, address: _Address) -> HTMLResponse:
        may_answer = is_allowed(user, address.dag_id, "PUT", DagAccessEntity.HITL_DETAIL)
        return html(pages.approval_page(page_store(), address, may_answer=may_answer))

    @app.post("/approval", dependencies=[_MAY_ANSWER, _OWN_FORM])
    async def answer(request: Request, address: _Address) -> HTMLResponse:
        typed, records = await form_values(request), await run_in_threadpool(page_store)
        return html(await pages.answer_page(records, address, typed, airflow(request)))


def _add_report(app: FastAPI) -> None:
    from backstream.pages.render import note_page
    from backstream.pages.runs import find_report

    @app.get("/report", dependencies=[_MAY_READ])
    def report(address: _Address, plan: _Text | None = None) -> HTMLResponse:
        path = find_report(Home.from_environment(), address, plan)
        if path is None:
            sentence = (
                f"Run {address.run_id} of {address.dag_id} has no report yet. It is written when the run ends, is "
                "rejected, or waits for approval."
            )
            return html(note_page("No report", sentence, status=_NOT_FOUND))
        return HTMLResponse(path.read_text(encoding="utf-8"))


def _add_explanation(app: FastAPI) -> None:
    from backstream.pages.explanation import explanation_page

    @app.get("/explain", dependencies=[_MAY_READ])
    def explain(dag_id: _Text, window: _Text, key: _Keys = []) -> HTMLResponse:  # noqa: B006 - FastAPI copies it
        return html(explanation_page(page_store(), dag_id, window, key))
