"""The routes. Each one asks Airflow who the user is and what they may see; none changes anything."""

# No postponed annotations here: FastAPI could not resolve those of functions inside a factory.

from collections.abc import Awaitable, Callable
from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag, requires_access_view
from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.responses import HTMLResponse

from backstream.core.folders import Home
from backstream.ui.pages import note_page, runs_page
from backstream.ui.runs import newest_runs, report_of

# The page lies in a frame of Airflow's own origin: a script in it would act as the user, so none may run.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

_NOT_FOUND = 404
_Text = Annotated[str, Query(max_length=500)]


def application() -> FastAPI:
    """All routes; those that Airflow's users may visit at all, guarded again by the DAG they show."""
    app = FastAPI(
        title="backstream",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        # Not AccessView.PLUGINS: that is for people who administrate Airflow, not for those who read a report.
        dependencies=[Depends(requires_access_view(AccessView.WEBSITE))],
    )
    app.middleware("http")(_with_headers)
    may_read_runs = Depends(requires_access_dag("GET", DagAccessEntity.RUN))

    @app.get("/runs", dependencies=[may_read_runs])
    def runs(user: GetUserDep) -> HTMLResponse:
        readable = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
        return HTMLResponse(runs_page(newest_runs(Home.from_environment(), readable)))

    @app.get("/report", dependencies=[may_read_runs])
    def report(dag_id: _Text, run_id: _Text, plan: _Text | None = None) -> HTMLResponse:
        path = report_of(Home.from_environment(), dag_id, run_id, plan)
        if path is None:
            sentence = (
                f"Run {run_id} of {dag_id} has no report (yet): it is written when the run ends or is refused."
            )
            return HTMLResponse(note_page("No report", sentence), status_code=_NOT_FOUND)
        return HTMLResponse(path.read_text(encoding="utf-8"))

    return app


async def _with_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await call_next(request)
    response.headers.update(_HEADERS)
    return response
