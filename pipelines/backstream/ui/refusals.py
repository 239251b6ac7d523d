"""Refusals and errors as pages: who is not logged in, may not look, asked for nonsense, or met a broken lake."""

from __future__ import annotations

import logging
from http import HTTPStatus

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

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
    status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.INTERNAL_SERVER_ERROR
    said = str(error.detail) if isinstance(error, HTTPException) else ""
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
