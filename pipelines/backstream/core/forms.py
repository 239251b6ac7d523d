"""The forms in which rows and reports are told."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    """An object per line."""
    ARROW = "arrow"
    """Arrow's stream, for programs."""


class Form(StrEnum):
    """How a report is written."""

    HTML = "html"
    """The page, one self-contained file."""
    MD = "md"
    """Markdown for a pull request or a chat."""
    JSON = "json"
