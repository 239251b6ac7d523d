"""Define the routes. Airflow authenticates and authorizes each request, and no route changes data.

A route that starts, cancels, or approves a run sends the request of the user to Airflow.

This module has no postponed annotations, because FastAPI cannot resolve those of nested functions. It imports the
pages with the first request, because they import pandas and PyIceberg.
"""

from typing import Annotated

from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag, requires_access_view
from fastapi import Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException as AnyHttpError

from backstream.errors import BackstreamError
from backstream.pages.policy import policy
from backstream.runs.home import Home
from backstream.ui.request import (
    airflow,
    can_run,
    form_values,
    html,
    page_store,
    provide_lake_once,
    readable_dags,
)
from backstream.ui.run_routes import add_run_pages
from backstream.ui.security import add_headers, on_bad_request, on_error, on_refusal, require_own_form

_Dag = Annotated[str, Query(max_length=250)]
_MAX_VALUE = 500
_Day = Annotated[str, Query(max_length=10)]


def application() -> FastAPI:
    """Return the application: all routes require a user of Airflow, and most require access to a DAG."""
    app = FastAPI(
        title="backstream",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        # Not AccessView.PLUGINS, because that is for administrators of Airflow, and all users read reports.
        dependencies=[Depends(requires_access_view(AccessView.WEBSITE))],
    )
    app.middleware("http")(add_headers(policy("")))
    app.exception_handler(AnyHttpError)(on_refusal)
    app.exception_handler(RequestValidationError)(on_bad_request)
    app.exception_handler(BackstreamError)(on_error)
    _add_pages(app)
    _add_form(app)
    add_run_pages(app)
    return app


def _add_pages(app: FastAPI) -> None:
    from backstream.pages import views

    may_read_runs = Depends(requires_access_dag("GET", DagAccessEntity.RUN))

    @app.get("/overview", dependencies=[may_read_runs])
    def overview(user: GetUserDep) -> HTMLResponse:
        return html(views.overview_page(page_store(), readable_dags(user)))

    @app.get("/runs", dependencies=[may_read_runs])
    def runs(user: GetUserDep, dag_id: _Dag | None = None) -> HTMLResponse:
        readable = readable_dags(user) if dag_id is None else {dag_id}
        return html(views.runs_page(page_store(), readable, dag_id))

    @app.get("/dataset", dependencies=[may_read_runs])
    def dataset(user: GetUserDep, dag_id: _Dag) -> HTMLResponse:
        return html(views.windows_page(page_store(), dag_id, may_run=can_run(user, dag_id)))

    @app.get("/day", dependencies=[may_read_runs])
    def day(user: GetUserDep, dag_id: _Dag, day: _Day) -> HTMLResponse:
        return html(views.day_page(page_store(), dag_id, day, may_run=can_run(user, dag_id)))

    @app.get("/watermark", dependencies=[may_read_runs])
    def watermark(dag_id: _Dag, delay: Annotated[str, Query(max_length=40)] = "") -> HTMLResponse:
        return html(views.watermark_page(page_store(), dag_id, delay))

    @app.get("/checks", dependencies=[may_read_runs])
    def checks(dag_id: _Dag) -> HTMLResponse:
        return html(views.checks_page(page_store(), dag_id))


def _add_form(app: FastAPI) -> None:
    from backstream.pages import views

    @app.get("/reprocess", dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.RUN))])
    async def form(request: Request, user: GetUserDep, dag_id: _Dag) -> HTMLResponse:
        if not can_run(user, dag_id):
            return html(views.refuse_run_page(dag_id))
        provide_lake_once()
        typed = {name: value[:_MAX_VALUE] for name, value in request.query_params.items() if name != "dag_id"}
        return html(await views.form(dag_id, airflow(request), typed, Home.from_environment()))

    @app.post(
        "/reprocess",
        dependencies=[Depends(requires_access_dag("POST", DagAccessEntity.RUN)), Depends(require_own_form)],
    )
    async def start(request: Request, dag_id: _Dag) -> HTMLResponse:
        typed = await form_values(request)
        provide_lake_once()
        return html(await views.started_page(dag_id, airflow(request), typed, Home.from_environment()))
