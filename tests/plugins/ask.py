"""Load the plugin like Airflow, and visit it without a login. The tests run this in a separate process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

VISITED = (
    "/overview",
    "/runs",
    "/dataset?dag_id=backfill_flights",
    "/day?dag_id=backfill_flights&day=2013-02-08",
    "/watermark?dag_id=backfill_flights",
    "/checks?dag_id=backfill_flights",
    "/reprocess?dag_id=backfill_flights",
    "/report?dag_id=backfill_flights&run_id=x",
    "/run?dag_id=backfill_flights&run_id=x",
    "/approval?dag_id=backfill_flights&run_id=x",
    "/explain?dag_id=backfill_flights&window=2013-02-08T10:00Z",
    "/docs",
    "/openapi.json",
    "/redoc",
    "/../../etc/passwd",
)


def loaded() -> dict[str, Any]:
    """Return the loaded plugins, and whether loading built the application."""
    from airflow import plugins_manager

    apps, _ = plugins_manager.get_fastapi_plugins()
    views, _ = plugins_manager._get_ui_plugins()  # noqa: SLF001 - what the UI is told
    errors = plugins_manager.get_import_errors()
    return {
        "errors": errors,
        "prefixes": {app["url_prefix"]: type(app["app"]).__name__ for app in apps if app["name"] == "backstream"},
        "views": [view for view in views if "backstream" in view["href"]],
        "is_built": "backstream.ui.app" in sys.modules,
    }


def visited() -> dict[str, Any]:
    """Return the responses to an anonymous user, and the access checks of each route."""
    from backstream.ui.app import application
    from backstream.ui.plugin import LazyApplication

    return {
        "anonymous": asyncio.run(_anonymous(LazyApplication())),
        "checks": {route.path: len(route.dependant.dependencies) for route in _routes(application())},
        "methods": _paths_by_method(application()),
        "posted": asyncio.run(_posted(LazyApplication())),
    }


def lake() -> str:
    """Return the notice of the pages when the catalog server of the connection is not reachable."""
    from backstream.runs.home import Home
    from backstream.ui.request import page_store

    closed = {"conn_type": "postgres", "host": "127.0.0.1", "port": 9, "login": "me", "password": "se/cret"}
    os.environ["AIRFLOW_CONN_BACKSTREAM_CATALOG"] = json.dumps(closed | {"schema": "lake"})
    Home.from_environment().warehouse.mkdir(parents=True)  # something was published
    return page_store().notice


def _routes(app: Any) -> list[Any]:
    return list(app.routes)


def _paths_by_method(app: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for route in _routes(app):
        for method in route.methods:
            found.setdefault(method, []).append(route.path)
    return found


async def _posted(app: Any) -> int:
    import httpx

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://airflow") as client:
        answer = await client.post("/reprocess?dag_id=backfill_flights", data={"since": "2013-02-01"})
    return answer.status_code


async def _anonymous(app: Any) -> dict[str, Any]:
    import httpx

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://airflow") as client:
        answers = {path: await client.get(path) for path in VISITED}
    return {path: [answer.status_code, dict(answer.headers)] for path, answer in answers.items()}


if __name__ == "__main__":
    print(json.dumps({"loaded": loaded(), "visited": visited(), "lake": lake()}))  # noqa: T201 - the answer
