"""Secure the pages beyond Airflow's access checks: response headers, the origin of forms, and error pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from urllib.parse import urlsplit

from airflow import settings
from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from sqlalchemy import inspect
from starlette.exceptions import HTTPException as StarletteHTTPException

from backstream.errors import CatalogError
from backstream.pages.time_limits import LimitedCalls, NoResponseError
from backstream.text import text_logger

_FORBIDDEN = 403
_DATABASE = LimitedCalls("Airflow's database")
_NO_DATABASE = "{}, so Airflow cannot check what you may see. The command `backstream status` shows the runs"
_SAME = "same-origin"


def _security_headers(content_security_policy: str) -> dict[str, str]:
    """Return the headers of every response."""
    return {
        "Content-Security-Policy": content_security_policy,
        "X-Content-Type-Options": "nosniff",
        # Not `no-referrer`, because browsers would then omit the origin of a form.
        "Referrer-Policy": _SAME,
        "Cache-Control": "no-store",
    }


def add_headers(
    fallback: str,
) -> Callable[[Request, Callable[[Request], Awaitable[Response]]], Awaitable[Response]]:
    """Return a middleware that adds the headers to every response; `fallback` is the default policy."""

    async def middleware(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await call_next(request)
        content_security_policy = response.headers.get("Content-Security-Policy", fallback)
        response.headers.update(_security_headers(content_security_policy))
        return response

    return middleware


def require_database() -> None:
    """Check that Airflow's database responds, before the access checks wait for it.

    Raises:
        HTTPException: 503 when it does not.
    """
    try:
        _DATABASE.call("any table", lambda: inspect(settings.engine).has_table("dag"))
    except NoResponseError as error:
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, _NO_DATABASE.format(error)) from None


async def on_database_error(request: Request, error: Exception) -> Response:
    """Return the page for an error of Airflow's database, whose text can have a password."""
    log.warning("Failed to render %s: %s", request.url.path, type(error).__name__)
    sentence = _NO_DATABASE.format("Airflow's database cannot be read")
    return _error_page(HTTPStatus.SERVICE_UNAVAILABLE, "Page not available", sentence, kind="error")


def require_own_form(request: Request) -> None:
    """Check that a page of this server sent the form, and not another site.

    The cookie of Airflow is `SameSite=Lax`, so browsers omit it in such requests; this check is a second barrier.

    Raises:
        HTTPException: 403 when another site sent the form, or the origin is unknown.
    """
    if not _is_same_origin(request.headers, request.url.netloc):
        raise HTTPException(_FORBIDDEN, "a page of another site sent this form, so no run was started")


def _is_same_origin(headers: Mapping[str, str], host: str) -> bool:
    if site := headers.get("sec-fetch-site"):
        return site == _SAME
    origin = urlsplit(headers.get("origin") or headers.get("referer") or "")
    return bool(origin.netloc) and origin.netloc == host


log = text_logger(__name__)

_TEXTS = {
    HTTPStatus.UNAUTHORIZED: ("Not logged in", "Log in to Airflow, and open this page again."),
    HTTPStatus.FORBIDDEN: (
        "Not allowed",
        "Your role in Airflow does not allow this. Ask your Airflow administrator for access.",
    ),
}


async def on_refusal(_: Request, error: Exception) -> Response:
    """Return the page for a request that an access check rejected, with the status of the check."""
    status = error.status_code if isinstance(error, StarletteHTTPException) else HTTPStatus.INTERNAL_SERVER_ERROR
    detail = str(error.detail) if isinstance(error, StarletteHTTPException) else ""
    title, sentence = _TEXTS.get(HTTPStatus(status), (HTTPStatus(status).phrase, detail))
    hint = detail if detail not in ("Forbidden", "Not authenticated", sentence) else ""
    return _error_page(status, title, sentence, hint)


async def on_bad_request(_: Request, error: Exception) -> Response:
    """Return the page for a request with a missing or too long parameter."""
    problems = error.errors() if isinstance(error, RequestValidationError) else []
    names = ", ".join(str(problem["loc"][-1]) for problem in problems)
    sentence = f"The address of this page is invalid. Check {names or 'its parameters'}."
    return _error_page(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid address", sentence)


async def on_error(request: Request, error: Exception) -> Response:
    """Return the page for an error of backstream, whose message is readable and has no secret."""
    log.warning("Failed to render %s: %s", request.url.path, error)
    first_line, _, rest = str(error).partition("\n")
    is_outage = isinstance(error, CatalogError)
    status = HTTPStatus.SERVICE_UNAVAILABLE if is_outage else HTTPStatus.INTERNAL_SERVER_ERROR
    return _error_page(status, "Page not available", first_line, rest.strip(), "error")


def _error_page(status: int, title: str, sentence: str, hint: str = "", kind: str = "none") -> HTMLResponse:
    from backstream.pages.render import note_page

    page = note_page(title, sentence, hint, kind, status)
    return HTMLResponse(page.html, page.status, headers={"Content-Security-Policy": page.policy})
