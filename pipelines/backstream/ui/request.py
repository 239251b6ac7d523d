"""Read a request for the pages: its user, its token, its form, and the files of the home."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from fastapi import HTTPException, Request
from fastapi.responses import HTMLResponse, Response

from backstream.orchestration.connections import provide_lake
from backstream.runs.home import Home
from backstream.runs.settings import provide_settings

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod

    from backstream.pages.airflow import Airflow
    from backstream.pages.csv_files import CsvFile
    from backstream.pages.filters import Filter
    from backstream.pages.render import Page
    from backstream.pages.store import PageStore

_NOT_FOUND, _TOO_LARGE = 404, 413
_MAX_VALUE = 200
_MAX_FORM_LENGTH = 20_000


def html(page: Page) -> HTMLResponse:
    """Return the response with a page."""
    return HTMLResponse(page.html, page.status, headers={"Content-Security-Policy": page.policy})


def wants_csv(request: Request) -> bool:
    """Return whether a request is for the CSV file of a list."""
    return request.query_params.get("format") == "csv"


def csv_file(file: CsvFile | None) -> Response:
    """Return the response with a CSV file as a download.

    Raises:
        HTTPException: 404 without a file, for an unknown dataset.
    """
    if file is None:
        raise HTTPException(_NOT_FOUND, "this dataset has no definition and no recorded runs")
    headers = {"Content-Disposition": f'attachment; filename="{file.name}"'}
    return Response(file.text, media_type="text/csv; charset=utf-8", headers=headers)


def list_filter(request: Request) -> Filter:
    """Return the filter in the address of a list; each value is cut to a length that a person enters."""
    from backstream.pages.filters import Filter

    return Filter.from_query({name: value[:_MAX_VALUE] for name, value in request.query_params.items()})


def page_store() -> PageStore:
    """Return a reader of the home for this request."""
    from backstream.pages.store import PageStore

    provide_lake_once()
    return PageStore.from_home(Home.from_environment())


@cache
def provide_lake_once() -> None:
    """Read settings and connections once; a changed one takes effect after a restart of Airflow's API server."""
    provide_settings()
    provide_lake()


def readable_dags(user: Any) -> set[str]:
    """Return the DAGs that the user may read."""
    return get_auth_manager().get_authorized_dag_ids(user=user, method="GET")


def can_run(user: Any, dag_id: str) -> bool:
    """Return whether the user may start runs of a DAG."""
    return is_allowed(user, dag_id, "POST", DagAccessEntity.RUN)


def is_allowed(user: Any, dag_id: str, method: ResourceMethod, entity: DagAccessEntity) -> bool:
    """Return whether the user may use a method on a part of a DAG."""
    details = DagDetails(id=dag_id)
    return get_auth_manager().is_authorized_dag(method=method, access_entity=entity, details=details, user=user)


def airflow(request: Request) -> Airflow:
    """Return a client of Airflow's API with the token of the user."""
    from backstream.pages.airflow import Airflow

    return Airflow(request.scope["backstream.airflow"], _token(request))


async def form_values(request: Request) -> dict[str, str]:
    """Return the values of a form by name.

    Raises:
        HTTPException: 413 when the body is longer than a form can be.
    """
    text = ""
    async for part in request.stream():
        text += part.decode("ascii", "replace")
        if len(text) > _MAX_FORM_LENGTH:
            raise HTTPException(_TOO_LARGE, "the form is too long")
    return dict(parse_qsl(text, keep_blank_values=True))


def _token(request: Request) -> str:
    """Return the token of the user from the header or else the cookie, in the same order as Airflow."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token if kind.lower() == "bearer" else request.cookies.get(COOKIE_NAME_JWT_TOKEN, "")
