"""Replace, remove, and read files of the home as a whole: readers see either the old or the new one.

A file of a home in an object store is written there, too.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from backstream.errors import LedgerError, storage_error
from backstream.storage.home_copy import HomeCopy

_DRAFT = re.compile(r"\..+\.[0-9a-f]{32}")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON by atomic rename: readers see either the old or the new file."""
    write_text(path, json.dumps(content, indent=1, sort_keys=True) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write text by atomic rename: readers see either the old or the new file.

    Raises:
        StorageError: when it cannot be written, for example on a full disk.
    """
    with replace_file(path) as draft:
        draft.write_text(text, encoding="utf-8")


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a draft that replaces a file when the block ends: readers see either the old or the new file.

    Raises:
        StorageError: when it cannot be written, for example on a full disk.
    """
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        if copy := HomeCopy.find(path):
            copy.send(draft, path)
        else:
            draft.replace(path)
    except OSError as error:
        action = f"cannot write {path.name}"
        raise storage_error(action, path.parent, error) from error
    finally:
        with suppress(OSError):  # its folder may not exist
            draft.unlink(missing_ok=True)


def remove_file(path: Path) -> None:
    """Remove a file, if it exists.

    Raises:
        OSError, StorageError: when it cannot be removed.
    """
    if copy := HomeCopy.find(path):
        copy.remove(path)
    else:
        path.unlink(missing_ok=True)


def list_drafts(folder: Path) -> Iterator[Path]:
    """Return the drafts under a folder: those of killed writers, and those that are being written."""
    return (path for path in folder.rglob(".*") if _DRAFT.fullmatch(path.name))


def load_json(path: Path, what: str) -> dict[str, Any]:
    """Read a JSON object from a file; `what` is its name for messages.

    Raises:
        LedgerError: when there is no such file, or it contains no JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        msg = f"no {what} at {path}"
        raise LedgerError(msg) from None
    except ValueError as error:
        msg = f"{what} at {path} is not JSON: {error}"
        raise LedgerError(msg) from error
    if not isinstance(content, dict):
        msg = f"{what} at {path} must be a JSON object, got {type(content).__name__}"
        raise LedgerError(msg)
    return content


_QUOTED_IN_URI = re.compile(r"""[\x00-\x20\x7f-\xa0\s"#%<>?\[\\\]^`{|}]""")


def file_uri(path: str) -> str:
    """Return the URI by which Spark names a file with an absolute path.

    Java's `URI` leaves more characters unescaped than Python's functions do.
    """
    escaped = _QUOTED_IN_URI.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), path)
    return f"file:{escaped}"
