"""Summaries of what never changes, such as data files, manifests and plans: each is read once.

A summary can always be made again. It names what it was made from, so that it is never taken for another state;
one that is missing or damaged costs one more reading.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backstream.errors import StorageError
from backstream.runs.home import write_text

log = logging.getLogger(__name__)
_FORMAT = "summary 1 "
"""Rises when summaries hold something else, or mean something else by it."""


def load_summary(path: Path, what: str) -> dict[str, Any] | None:
    """Return what a summary holds; None where there is none, or a damaged one, which is said in the log."""
    try:
        head, _, text = path.read_text(encoding="utf-8").partition("\n")
    except FileNotFoundError:
        log.info("there is no summary of %s yet: it is read once (%s)", what, path)
        return None
    except (OSError, UnicodeDecodeError) as error:
        log.warning("the summary of %s cannot be read: %s is read again (%s, %s)", what, what, error, path)
        return None
    if not head.startswith(_FORMAT):  # another version may mean something else by it
        log.info("the summary of %s is of another version: it is read once (%s)", what, path)
        return None
    if head != _head(text):
        log.warning("the summary of %s is damaged: %s is read again (%s)", what, what, path)
        return None
    content: dict[str, Any] = json.loads(text)
    return content


def write_summary(path: Path, content: Mapping[str, Any]) -> None:
    """Write a summary by atomic rename; where it cannot be written, the next one who asks reads again."""
    text = json.dumps(content, separators=(",", ":"))
    try:
        write_text(path, f"{_head(text)}\n{text}")
    except StorageError as error:
        log.warning("a summary is not kept: %s", error)


def _head(text: str) -> str:
    return f"{_FORMAT}{hashlib.sha256(text.encode()).hexdigest()[:32]}"
