"""Define the routes. Airflow authenticates and authorizes each request. One route starts a run, none changes data.

This module has no postponed annotations, because FastAPI cannot resolve those of nested functions. It imports the
pages with the first request, because they import pandas and PyIceberg.
"""

from functools import cache
from typing import TYPE_CHECKING, Annotated
from urllib.parse import parse_qsl

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag, requires_access_view
from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException as AnyHttpError

from backstream.errors import BackstreamError
from backstream.orchestration.connections import provide_lake
from backstream.pages.policy import policy
from backstream.runs.home import Home
from backstream.runs.settings import provide_settings
from backstream.ui.security import add_headers, on_bad_request, on_error, on_refusal, require_own_form

if TYPE_CHECKING:
    from backstream.pages.render import Page
    from backstream.pages.reprocess import Airflow
    from backstream.pages.store import PageStore

_NOT_FOUND, _TOO_LARGE = 404, 413
_MAX_FORM_LENGTH = 20_000

_Text = Annotated[str, Query(max_length=500)]
_Dag = Annotated[str, Query(max_length=250)]
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
    _add_report(app)
    return app


def _add_pages(app: FastAPI) -> None:
    from backstream.pages import views

    may_read_runs = Depends(requires_access_dag("GET", DagAccessEntity.RUN))

    @app.get("/overview", dependencies=[may_read_runs])
    def overview(user: GetUserDep) -> HTMLResponse:
        return _html(views.overview_page(_page_store(), _readable_dags(user)))

    @app.get("/runs", dependencies=[may_read_runs])
    def runs(user: GetUserDep, dag_id: _Dag | None = None) -> HTMLResponse:
        readable = _readable_dags(user) if dag_id is None else {dag_id}
        return _html(views.runs_page(_page_store(), readable, dag_id))

    @app.get("/dataset", dependencies=[may_read_runs])
    def dataset(user: GetUserDep, dag_id: _Dag) -> HTMLResponse:
        return _html(views.windows_page(_page_store(), dag_id, may_run=_can_run(user, dag_id)))

    @app.get("/day", dependencies=[may_read_runs])
    def day(user: GetUserDep, dag_id: _Dag, day: _Day) -> HTMLResponse:
        return _html(views.day_page(_page_store(), dag_id, day, may_run=_can_run(user, dag_id)))

    @app.get("/watermark", dependencies=[may_read_runs])
    def watermark(dag_id: _Dag, delay: Annotated[str, Query(max_length=40)] = "") -> HTMLResponse:
        return _html(views.watermark_page(_page_store(), dag_id, delay))

    @app.get("/checks", dependencies=[may_read_runs])
    def checks(dag_id: _Dag) -> HTMLResponse:
        return _html(views.checks_page(_page_store(), dag_id))


def _add_form(app: FastAPI) -> None:
    from backstream.pages import views

    @app.get("/reprocess", dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.RUN))])
    async def form(
        request: Request, user: GetUserDep, dag_id: _Dag, since: _Day = "", until: _Day = ""
    ) -> HTMLResponse:
        if not _can_run(user, dag_id):
            return _html(views.refuse_run_page(dag_id))
        typed = {"since": since, "until": until}
        return _html(await views.form(dag_id, _airflow(request), typed))

    @app.post(
        "/reprocess",
        dependencies=[Depends(requires_access_dag("POST", DagAccessEntity.RUN)), Depends(require_own_form)],
    )
    async def start(request: Request, dag_id: _Dag) -> HTMLResponse:
        typed = dict(parse_qsl(await _body(request), keep_blank_values=True))
        _provide_lake()
        return _html(await views.started_page(dag_id, _airflow(request), typed, Home.from_environment()))


def _add_report(app: FastAPI) -> None:
    from backstream.pages.render import note_page
    from backstream.pages.runs import find_report

    @app.get("/report", dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.RUN))])
    def report(dag_id: _Text, run_id: _Text, plan: _Text | None = None) -> HTMLResponse:
        path = find_report(Home.from_environment(), dag_id, run_id, plan)
        if path is None:
            sentence = (
                f"Run {run_id} of {dag_id} has no report yet. It is written when the run ends or is rejected."
            )
            return _html(note_page("No report", sentence, status=_NOT_FOUND))
        return HTMLResponse(path.read_text(encoding="utf-8"))


def _html(page: "Page") -> HTMLResponse:
    return HTMLResponse(page.html, page.status, headers={"Content-Security-Policy": page.policy})


def _page_store() -> "PageStore":
    from backstream.pages.store import PageStore

    _provide_lake()
    return PageStore.from_home(Home.from_environment())


@cache
def _provide_lake() -> None:
    """Read the connection once; a changed connection takes effect after a restart of Airflow's API server."""
    provide_settings()
    provide_lake()


def _readable_dags(user: GetUserDep) -> set[str]:
    return get_auth_manager().get_authorized_dag_ids(user=user, method="GET")


def _can_run(user: GetUserDep, dag_id: str) -> bool:
    details = DagDetails(id=dag_id)
    manager = get_auth_manager()
    return manager.is_authorized_dag(method="POST", access_entity=DagAccessEntity.RUN, details=details, user=user)


def _airflow(request: Request) -> "Airflow":
    from backstream.pages.reprocess import Airflow

    return Airflow(request.scope["backstream.airflow"], _token(request))


async def _body(request: Request) -> str:
    """Return the body of the request.

    Raises:
        HTTPException: 413 when it is longer than a form can be.
    """
    text = ""
    async for part in request.stream():
        text += part.decode("ascii", "replace")
        if len(text) > _MAX_FORM_LENGTH:
            raise HTTPException(_TOO_LARGE, "the form is too long")
    return text


def _token(request: Request) -> str:
    """Return the token of the user from the header or else the cookie, in the same order as Airflow."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token if kind.lower() == "bearer" else request.cookies.get(COOKIE_NAME_JWT_TOKEN, "")
