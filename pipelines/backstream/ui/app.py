"""Define the routes. Airflow authenticates and authorizes each request, and no route changes data.

A route that starts, cancels, or approves a run sends the request of the user to Airflow.

This module has no postponed annotations, because FastAPI cannot resolve those of nested functions. It imports the
pages with the first request, because they import pandas and PyIceberg.
"""

from typing import Annotated

from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag, requires_access_view
from fastapi import Depends, FastAPI, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException as AnyHttpError

from backstream.errors import BackstreamError
from backstream.pages.policy import policy
from backstream.runs.home import Home
from backstream.ui.request import (
    airflow,
    can_run,
    csv_file,
    form_values,
    html,
    list_filter,
    page_store,
    provide_lake_once,
    readable_dags,
    wants_csv,
)
from backstream.ui.run_routes import add_run_pages
from backstream.ui.security import (
    add_headers,
    on_bad_request,
    on_database_error,
    on_error,
    on_refusal,
    require_database,
    require_own_form,
)

_Dag = Annotated[str, Query(max_length=250)]
_MAX_VALUE = 500
_MAY_READ_RUNS = Depends(requires_access_dag("GET", DagAccessEntity.RUN))
_Day = Annotated[str, Query(max_length=10)]


def application() -> FastAPI:
    """Return the application: all routes require a user of Airflow, and most require access to a DAG."""
    app = FastAPI(
        title="backstream",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        # Not AccessView.PLUGINS, because that is for administrators of Airflow, and all users read reports.
        dependencies=[Depends(require_database), Depends(requires_access_view(AccessView.WEBSITE))],
    )
    app.middleware("http")(add_headers(policy("")))
    app.exception_handler(AnyHttpError)(on_refusal)
    app.exception_handler(RequestValidationError)(on_bad_request)
    app.exception_handler(BackstreamError)(on_error)
    app.exception_handler(SQLAlchemyError)(on_database_error)
    _add_lists(app)
    _add_pages(app)
    _add_form(app)
    add_run_pages(app)
    return app


def _add_lists(app: FastAPI) -> None:
    """Add the pages of lists; each is also a CSV file of the selected rows."""
    from backstream.pages import lists, views

    @app.get("/overview", dependencies=[_MAY_READ_RUNS])
    def overview(request: Request, user: GetUserDep) -> Response:
        chosen, dag_ids = list_filter(request), readable_dags(user)
        if wants_csv(request):
            return csv_file(lists.datasets_csv(page_store(), dag_ids, chosen))
        return html(lists.overview_page(page_store(), dag_ids, chosen))

    @app.get("/runs", dependencies=[_MAY_READ_RUNS])
    def runs(request: Request, user: GetUserDep, dag_id: _Dag | None = None) -> Response:
        chosen, readable = list_filter(request), readable_dags(user) if dag_id is None else {dag_id}
        if wants_csv(request):
            return csv_file(lists.runs_csv(page_store(), readable, dag_id, chosen))
        return html(lists.runs_page(page_store(), readable, dag_id, chosen))

    @app.get("/dataset", dependencies=[_MAY_READ_RUNS])
    def dataset(request: Request, user: GetUserDep, dag_id: _Dag) -> Response:
        chosen = list_filter(request)
        if wants_csv(request):
            return csv_file(lists.days_csv(page_store(), dag_id, chosen))
        return html(views.windows_page(page_store(), dag_id, chosen, may_run=can_run(user, dag_id)))

    @app.get("/checks", dependencies=[_MAY_READ_RUNS])
    def checks(request: Request, dag_id: _Dag) -> Response:
        if wants_csv(request):
            return csv_file(lists.checks_csv(page_store(), dag_id))
        return html(lists.checks_page(page_store(), dag_id))


def _add_pages(app: FastAPI) -> None:
    from backstream.pages import views

    @app.get("/day", dependencies=[_MAY_READ_RUNS])
    def day(user: GetUserDep, dag_id: _Dag, day: _Day) -> HTMLResponse:
        return html(views.day_page(page_store(), dag_id, day, may_run=can_run(user, dag_id)))

    @app.get("/watermark", dependencies=[_MAY_READ_RUNS])
    def watermark(dag_id: _Dag, delay: Annotated[str, Query(max_length=40)] = "") -> HTMLResponse:
        return html(views.watermark_page(page_store(), dag_id, delay))


def _add_form(app: FastAPI) -> None:
    from backstream.pages import views

    @app.get("/reprocess", dependencies=[_MAY_READ_RUNS])
    async def form(request: Request, user: GetUserDep, dag_id: _Dag) -> HTMLResponse:
        if not can_run(user, dag_id):
            return html(views.refuse_run_page(dag_id))
        provide_lake_once()
        typed = {name: value[:_MAX_VALUE] for name, value in request.query_params.items() if name != "dag_id"}
        return html(
            await views.form(dag_id, airflow(request), typed, await run_in_threadpool(Home.from_environment))
        )

    @app.post(
        "/reprocess",
        dependencies=[Depends(requires_access_dag("POST", DagAccessEntity.RUN)), Depends(require_own_form)],
    )
    async def start(request: Request, dag_id: _Dag) -> HTMLResponse:
        typed = await form_values(request)
        provide_lake_once()
        return html(
            await views.started_page(
                dag_id, airflow(request), typed, await run_in_threadpool(Home.from_environment)
            )
        )
