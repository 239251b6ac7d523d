"""Start one Airflow API server and one Chromium for all tests of the pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.browser.server import PASSWORD, Server, running
from tests.chromium import started

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

_LOGIN_LIMIT_MS = 60_000


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Start the server, which takes most of the time of these tests."""
    with running(tmp_path_factory.mktemp("airflow")) as found:
        yield found


@pytest.fixture(scope="session")
def clients(server: Server) -> Iterator[dict[str | None, httpx.Client]]:
    """Return logged-in clients by user; None is the anonymous client."""
    found = {user: server.client(user) for user in ("admin", "viewer", "flights", "operator", None)}
    yield found
    for client in found.values():
        client.close()


@pytest.fixture(scope="module")  # while it runs, nothing else in this process may have an event loop
def chromium() -> Iterator[Browser]:
    """Start Chromium in headless mode."""
    with started() as browser:
        yield browser


@pytest.fixture(scope="module")
def state(chromium: Browser, server: Server) -> dict[str, object]:
    """Return the browser state after a login on the page of Airflow."""
    context = chromium.new_context(base_url=server.url)
    page = context.new_page()
    page.set_default_timeout(_LOGIN_LIMIT_MS)
    page.goto("/auth/login/")
    page.fill("input[name=username]", "admin")
    page.fill("input[name=password]", PASSWORD)
    page.click("input[type=submit]")
    page.wait_for_url(lambda url: "login" not in url)
    found = dict(context.storage_state())
    context.close()
    return found


@pytest.fixture
def opened(chromium: Browser, server: Server, state: dict[str, object]) -> Iterator[Callable[..., Page]]:
    """Return a function that opens an address as a logged-in user: `opened(path, width=1600, scheme="dark")`."""
    contexts: list[BrowserContext] = []

    def open_page(path: str, width: int = 1600, scheme: str = "light", **options: object) -> Page:
        view = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme, "storage_state": state}
        context = chromium.new_context(base_url=server.url, **(view | options))  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.goto(path)
        return page

    yield open_page
    for context in contexts:
        context.close()
