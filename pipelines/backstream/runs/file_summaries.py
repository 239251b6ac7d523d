"""Cache summaries of immutable files, such as data files, manifests and plans, so that each file is read once.

A summary can always be rebuilt. It contains a digest of its content and a format version. If it is missing or
damaged, the files are read again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backstream.errors import StorageError
from backstream.storage.files import write_text
from backstream.text import text_logger

log = text_logger(__name__)
_FORMAT = "summary 3 "
"""Format version; increase it when the content or meaning of summaries changes."""


def load_summary(path: Path, what: str) -> dict[str, Any] | None:
    """Return the content of a summary; None, with a log line, if it is missing or damaged."""
    try:
        head, _, text = path.read_text(encoding="utf-8").partition("\n")
    except FileNotFoundError:
        log.info("there is no summary of %s yet: reading it once (%s)", what, path)
        return None
    except (OSError, UnicodeDecodeError) as error:
        log.warning("the summary of %s cannot be read: reading %s again (%s, %s)", what, what, error, path)
        return None
    if not head.startswith(_FORMAT):  # another version may give its fields another meaning
        log.info("the summary of %s has another version: reading it once (%s)", what, path)
        return None
    if head != _head(text):
        log.warning("the summary of %s is damaged: reading %s again (%s)", what, what, path)
        return None
    content: dict[str, Any] = json.loads(text)
    return content


def write_summary(path: Path, content: Mapping[str, Any]) -> None:
    """Write a summary by atomic rename; if that fails, log it: the files are read again next time."""
    text = json.dumps(content, separators=(",", ":"))
    try:
        write_text(path, f"{_head(text)}\n{text}")
    except StorageError as error:
        log.warning("cannot keep a summary: %s", error)


def _head(text: str) -> str:
    return f"{_FORMAT}{hashlib.sha256(text.encode()).hexdigest()[:32]}"
