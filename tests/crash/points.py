"""Observe the moments at which a run can be killed, without changes to the code under test.

A moment is the opening, creation, renaming or removal of a file: Python's audit events, and hooks for the files of
PyIceberg and PyArrow, which have no such events. Other moments are before and after a statement of the catalog's
database, before a commit, and the return of a connection.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.pool import Pool

_AUDITED = ("os.rename", "os.remove", "os.mkdir", "shutil.copyfile")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass
class _Steps:
    """A counter of moments that runs an action at one of them."""

    strike_at: int | list[str] | None
    file: Path
    strike: Callable[[], None]
    seen: list[str] = field(default_factory=list)

    def __call__(self, name: str) -> None:
        self.seen.append(name)
        if isinstance(self.strike_at, list) and re.search(self.strike_at[0], name):
            self.strike_at = self.strike_at[1:] or len(self.seen)
        if self.strike_at == len(self.seen):
            self.strike_at = None
            self.file.write_text(name)
            self.strike()


def die() -> None:
    """Kill this process as `kill -9` does, without cleanup."""
    os.kill(os.getpid(), signal.SIGKILL)


def fill(file: Path) -> None:
    """Write until the disk is full."""
    with suppress(OSError), file.open("wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(4096))


@contextmanager
def armed(strike_at: int | list[str] | None, file: Path, strike: Callable[[], None] = die) -> Iterator[None]:
    """Run an action at the moment with a number, counted from one, or at the moment that matches the last pattern.

    Patterns are matched one after the other. The file gets the moment of the action; at the end of the process,
    it gets all moments.
    """
    steps = _Steps(strike_at, file, strike)
    _watch_python(steps)
    _watch_pyiceberg(steps)
    _watch_parquet(steps)
    _watch_database(steps)
    yield
    moments = list(steps.seen)
    file.write_text("\n".join(moments))


def _watch_python(step: Callable[[str], None]) -> None:
    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        if name in _AUDITED:
            step(f"{name} {arguments[1] if name == 'os.rename' else arguments[0]}")
        elif name == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES:
            step(f"open {arguments[0]}")

    sys.addaudithook(hook)


def _watch_pyiceberg(step: Callable[[str], None]) -> None:
    create = PyArrowFile.create

    def watched(self: PyArrowFile, overwrite: bool = False) -> OutputStream:
        step(f"create {self.location}")
        stream = create(self, overwrite)
        step(f"empty {self.location}")
        return stream

    PyArrowFile.create = watched  # type: ignore[method-assign]


def _watch_parquet(step: Callable[[str], None]) -> None:
    write: Any = pq.ParquetWriter.write_table

    def watched(writer: Any, *arguments: Any, **named: Any) -> Any:
        step("a Parquet file is begun")
        result = write(writer, *arguments, **named)
        step("a Parquet file is half written")
        return result

    pq.ParquetWriter.write_table = watched


def _watch_database(step: Callable[[str], None]) -> None:
    def words(arguments: tuple[Any, ...]) -> str:
        return " ".join(str(arguments[2]).split()[:2])

    event.listen(Engine, "before_cursor_execute", lambda *arguments: step(f"before {words(arguments)}"))
    event.listen(Engine, "after_cursor_execute", lambda *arguments: step(f"after {words(arguments)}"))
    event.listen(Engine, "commit", lambda *_: step("commit"))
    event.listen(Pool, "checkin", lambda *_: step("connection given back"))
