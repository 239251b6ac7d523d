"""Build the application on the first request, because every Airflow process loads all plugins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from importlib import import_module
from typing import Any

Message = MutableMapping[str, Any]
_Asgi = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]


class LazyApplication:
    """An ASGI application that imports and builds the real one on its first request."""

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
