"""The application, built when it is first asked: every Airflow process loads plugins, every task included."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from importlib import import_module
from typing import Any

Message = MutableMapping[str, Any]
Asgi = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]


class LazyApplication:
    """An ASGI application that imports and builds the real one with its first request."""

    def __init__(self) -> None:
        self._application: Asgi | None = None

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Hand the request on."""
        if self._application is None:
            self._application = import_module("backstream.ui.app").application()
        # Airflow's own application, in which this one is mounted: the real one puts itself in its place.
        scope["backstream.airflow"] = scope.get("app")
        await self._application(scope, receive, send)
