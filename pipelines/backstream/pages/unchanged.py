"""Files that are read for every page, and seldom change: what was read is kept until the file is another."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from pathlib import Path
from typing import TypeVar

_KEPT = 4_096
_ABSENT = 0

_Content = TypeVar("_Content")


def while_unchanged(read: Callable[[Path], _Content]) -> Callable[[Path], _Content]:
    """The same function, which reads a file again only when its time of change is another."""

    @lru_cache(maxsize=_KEPT)
    def known(path: Path, modified_ns: int) -> _Content:
        del modified_ns  # it is there to be compared
        return read(path)

    @wraps(read)
    def reading(path: Path) -> _Content:
        return known(path, _modified_ns(path))

    return reading


def _modified_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return _ABSENT
