"""Visit each page as an administrator, without a server. The tests run this in a separate process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.plugins.large_home import PAGES


@contextmanager
def visitor(folder: Path) -> Iterator[Callable[..., Any]]:
    """Yield a function that gets a page or posts the form; the folder has the home and Airflow's database."""
    os.environ |= {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder / 'airflow.db'}",
        "BACKSTREAM_HOME": str(folder / "home"),
        "BACKSTREAM_DEFINITIONS": str(folder / "definitions"),
    }
    from fastapi.testclient import TestClient

    with TestClient(_airflow(_admin())) as client:

        def visit(page: str, form: dict[str, str] | None = None) -> Any:
            path, own = f"/backstream/{page}", {"sec-fetch-site": "same-origin"}
            return client.get(path) if form is None else client.post(path, data=form, headers=own)

        yield visit


def _admin() -> Any:
    """Return a user with all permissions, after Airflow's database has the DAGs."""
    from airflow import settings
    from airflow.api_fastapi.app import create_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.models import import_all_models
    from airflow.models.base import Base
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel

    load_models: Any = import_all_models
    load_models()
    Base.metadata.create_all(settings.engine)
    new_session: Any = settings.Session
    new_dag: Any = DagModel
    session = new_session()
    session.add(DagBundleModel(name="dags"))
    session.flush()
    session.add_all(new_dag(dag_id=f"{kind}_flights", bundle_name="dags") for kind in ("backfill", "reprocess"))
    session.commit()
    create_auth_manager()
    return SimpleAuthManagerUser(username="admin", role="admin")


def _airflow(user: Any) -> Any:
    """Return an application with the DAG of the form and with the pages; it starts every requested run."""
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi import FastAPI

    from backstream.definition.loader import load_definition
    from backstream.orchestration.form import reprocess_params
    from backstream.ui.app import application

    definition = load_definition(Path(os.environ["BACKSTREAM_DEFINITIONS"]) / "flights.toml")
    params = {name: param.dump() for name, param in reprocess_params(definition).items()}
    pages, airflow = application(), FastAPI()
    pages.dependency_overrides[get_user] = lambda: user

    @airflow.get("/api/v2/dags/{dag_id}/details")
    def details(dag_id: str) -> dict[str, Any]:
        return {"dag_id": dag_id, "params": params}

    @airflow.post("/api/v2/dags/{dag_id}/dagRuns")
    def start(dag_id: str) -> dict[str, Any]:
        return {"dag_run_id": f"a run of {dag_id}"}

    async def in_airflow(scope: Any, receive: Any, send: Any) -> None:
        await pages({**scope, "backstream.airflow": airflow}, receive, send)

    airflow.mount("/backstream", in_airflow)
    return airflow


def main(folder: Path, *ranges: str) -> None:
    """Print status and text of each page, and the response of the form to each range (`2013-02-01/2013-03-01`)."""
    with visitor(folder) as visit:
        pages = {page: visit(page) for page in PAGES}
        asked = {each: dict(zip(("since", "until"), each.split("/"), strict=True)) for each in ranges}
        posted = {
            each: visit("reprocess?dag_id=backfill_flights", form | {"reason": "why"})
            for each, form in asked.items()
        }
    told = {name: [answer.status_code, answer.text] for name, answer in (pages | posted).items()}
    print(json.dumps(told))  # noqa: T201 - the answer


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
