"""Define the route that explains a published row.

This module has no postponed annotations, because FastAPI cannot resolve those of nested functions.
"""

from typing import Annotated

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import Depends, FastAPI, Query
from fastapi.responses import HTMLResponse

from backstream.ui.request import html, page_store

_Text = Annotated[str, Query(max_length=500)]
_Keys = Annotated[list[Annotated[str, Query(max_length=500)]], Query(max_length=20)]


def add_explanation(app: FastAPI) -> None:
    """Add the route to an application."""
    from backstream.pages.explanation import explanation_page

    @app.get("/explain", dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.RUN))])
    def explain(dag_id: _Text, window: _Text, key: _Keys = []) -> HTMLResponse:  # noqa: B006 - FastAPI copies it
        return html(explanation_page(page_store(), dag_id, window, key))
