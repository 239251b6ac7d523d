"""What every answer and every request of the pages has to keep to, beside Airflow's own access checks."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from urllib.parse import urlsplit

from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

FORBIDDEN = 403
_SAME = "same-origin"


def security_headers(content_security_policy: str) -> dict[str, str]:
    """The headers of every answer."""
    return {
        "Content-Security-Policy": content_security_policy,
        "X-Content-Type-Options": "nosniff",
        # Not `no-referrer`: browsers then hide from us where a form was sent from.
        "Referrer-Policy": _SAME,
        "Cache-Control": "no-store",
    }


def add_headers(
    fallback: str,
) -> Callable[[Request, Callable[[Request], Awaitable[Response]]], Awaitable[Response]]:
    """A middleware that gives every answer its headers; an answer without a policy of its own gets this one."""

    async def middleware(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await call_next(request)
        own = response.headers.get("Content-Security-Policy", fallback)
        response.headers.update(security_headers(own))
        return response

    return middleware


def require_own_form(request: Request) -> None:
    """Check that a request that acts was sent by a page of this very server, and not by another site's form.

    Airflow's session cookie is already kept from such requests (`SameSite=Lax`); this does not rest on it.

    Raises:
        HTTPException: 403 when it was not, or the browser does not say.
    """
    if not _is_own(request.headers, request.url.netloc):
        raise HTTPException(
            FORBIDDEN, "this form was not sent from a page of this Airflow, so nothing was started"
        )


def _is_own(said: Mapping[str, str], host: str) -> bool:
    if site := said.get("sec-fetch-site"):
        return site == _SAME
    origin = urlsplit(said.get("origin") or said.get("referer") or "")
    return bool(origin.netloc) and origin.netloc == host


log = logging.getLogger(__name__)

_WORDS = {
    HTTPStatus.UNAUTHORIZED: ("Not logged in", "Log in to Airflow, then open this page again."),
    HTTPStatus.FORBIDDEN: (
        "Not allowed",
        "Your role in Airflow does not let you do this. Whoever administrates Airflow can give you access.",
    ),
}


async def on_refusal(_: Request, error: Exception) -> Response:
    """What Airflow's access checks refuse, with the status they gave."""
    status = error.status_code if isinstance(error, StarletteHTTPException) else HTTPStatus.INTERNAL_SERVER_ERROR
    said = str(error.detail) if isinstance(error, StarletteHTTPException) else ""
    title, sentence = _WORDS.get(HTTPStatus(status), (HTTPStatus(status).phrase, said))
    hint = said if said not in ("Forbidden", "Not authenticated", sentence) else ""
    return _answer(status, title, sentence, hint)


async def on_bad_request(_: Request, error: Exception) -> Response:
    """A parameter of the address that is missing or too long."""
    names = [str(each["loc"][-1]) for each in error.errors()] if isinstance(error, RequestValidationError) else []
    sentence = f"The address of this page is not complete: check {', '.join(names) or 'it'}."
    return _answer(HTTPStatus.UNPROCESSABLE_ENTITY, "No such page", sentence)


async def on_error(request: Request, error: Exception) -> Response:
    """What backstream itself could not do: its message is for people, and holds no secret."""
    log.warning("%s could not be shown: %s", request.url.path, error)
    first, _, rest = str(error).partition("\n")
    return _answer(HTTPStatus.INTERNAL_SERVER_ERROR, "This page cannot be shown now", first, rest.strip(), "error")


def _answer(status: int, title: str, sentence: str, hint: str = "", kind: str = "none") -> HTMLResponse:
    from backstream.pages.render import note_page

    page = note_page(title, sentence, hint, kind, status)
    return HTMLResponse(page.html, page.status, headers={"Content-Security-Policy": page.policy})
