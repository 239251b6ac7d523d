"""Build Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

_NOTICE = "<!-- Generated from the code by docs/generate.py. Do not edit. -->"
_LITERAL = re.compile(r"(`[^`]*`)")


def document(title: str, *blocks: str) -> str:
    """Return a page with a title, a notice that the page is generated, and blocks of Markdown."""
    return "\n\n".join(["# " + title, _NOTICE, *(block.strip("\n") for block in blocks if block.strip())]) + "\n"


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown cells; an empty text without rows."""
    lines = ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]
    if not lines:
        return ""
    return "\n".join(["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers), *lines])


def code(text: object) -> str:
    """Return text as a literal."""
    return f"`{text}`"


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-")


def prose(text: str | None) -> str:
    """Return a docstring or help text as Markdown, without its indentation; `<` is not the begin of a tag."""
    parts = _LITERAL.split(inspect.cleandoc(text or ""))
    return "".join(part if at % 2 else part.replace("<", "&lt;") for at, part in enumerate(parts))


def sentence(text: str | None) -> str:
    """Return a docstring as one line."""
    return " ".join(prose(text).split())


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
