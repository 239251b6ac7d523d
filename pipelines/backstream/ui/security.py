"""What every answer and every request of the pages has to keep to, beside Airflow's own access checks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlsplit

from fastapi import HTTPException, Request, Response

FORBIDDEN = 403
_SAME = "same-origin"


def headers(content_security_policy: str) -> dict[str, str]:
    """The headers of every answer."""
    return {
        "Content-Security-Policy": content_security_policy,
        "X-Content-Type-Options": "nosniff",
        # Not `no-referrer`: browsers then hide from us where a form was sent from.
        "Referrer-Policy": _SAME,
        "Cache-Control": "no-store",
    }


def with_headers(
    fallback: str,
) -> Callable[[Request, Callable[[Request], Awaitable[Response]]], Awaitable[Response]]:
    """A middleware that gives every answer its headers; an answer without a policy of its own gets this one."""

    async def middleware(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await call_next(request)
        own = response.headers.get("Content-Security-Policy", fallback)
        response.headers.update(headers(own))
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
