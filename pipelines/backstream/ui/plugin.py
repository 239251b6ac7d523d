"""Register with Airflow: pages, a listener to the ends of runs, and the priority of tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from importlib import import_module
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from backstream.orchestration import priority, run_ends

Message = MutableMapping[str, Any]
_Asgi = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]


class LazyApplication:
    """An ASGI application that builds the real one on its first request: each Airflow process loads plugins."""

    def __init__(self) -> None:
        self._application: _Asgi | None = None

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Pass the request to the real application."""
        if self._application is None:
            self._application = import_module("backstream.ui.app").application()
        # Keep Airflow's application, in which this one is mounted: the real one replaces `app` in the scope.
        scope["backstream.airflow"] = scope.get("app")
        await self._application(scope, receive, send)


class BackstreamPlugin(AirflowPlugin):
    """Links of the pages; the first request imports the application."""

    name = "backstream"
    fastapi_apps = [{"app": LazyApplication(), "url_prefix": "/backstream", "name": "backstream"}]  # noqa: RUF012 - Airflow's interface
    listeners = [run_ends]  # noqa: RUF012 - Airflow's interface
    priority_weight_strategies = [priority.ScheduledFirst]  # noqa: RUF012 - Airflow's interface
    external_views = [  # noqa: RUF012 - Airflow's interface
        {
            "name": "Backfills",
            "href": "backstream/overview",
            "destination": "nav",
            "category": "browse",
            "url_route": "backfills",
        },
        {
            "name": "Windows",
            "href": "backstream/dataset?dag_id={DAG_ID}",
            "destination": "dag",
            "url_route": "backstream_windows",
        },
        {
            "name": "Watermark",
            "href": "backstream/watermark?dag_id={DAG_ID}",
            "destination": "dag",
            "url_route": "backstream_watermark",
        },
        {
            "name": "Report",
            "href": "backstream/run?dag_id={DAG_ID}&run_id={RUN_ID}",
            "destination": "dag_run",
            "url_route": "backstream_report",
        },
    ]
