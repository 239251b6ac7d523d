"""Starting and ending the stack's own processes, and only those."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from backstream.errors import BackstreamError
from demo.settings import STATE_VARIABLE

_POLL_S = 0.1
_TAIL_LINES = 15


class StackError(BackstreamError):
    """A part of the demo's Airflow died or did not become ready."""


@dataclass(frozen=True, slots=True)
class Service:
    """One process of the stack, and the file with what it prints."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @classmethod
    def started(cls, name: str, command: list[str], folder: Path, env: Mapping[str, str]) -> Service:
        """Start a command in a session of its own, so that a Ctrl-C in the terminal reaches only us."""
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                env=dict(env),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return cls(name, process, log)

    def has(self, process: psutil.Process) -> bool:
        """Whether the process is of this service."""
        with suppress(OSError):  # it has ended meanwhile
            return os.getsid(process.pid) == self.process.pid
        return False

    def require_alive(self) -> None:
        """Check that it runs.

        Raises:
            StackError: with the end of its log when it does not.
        """
        status = self.process.poll()
        if status is not None:
            msg = f"airflow {self.name} ended with status {status}\n{self.tail()}"
            raise StackError(msg)

    def require_success(self, timeout_s: float) -> None:
        """Wait until it has ended well.

        Raises:
            StackError: with the end of its log when it failed or takes longer.
        """
        try:
            status: int | None = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            status = None
        if status != 0:
            ended = f"ended with status {status}" if status is not None else f"takes over {timeout_s:.0f} s"
            msg = f"airflow {self.name} {ended}\n{self.tail()}"
            raise StackError(msg)

    def tail(self) -> str:
        """Where its log is, and its last lines."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
        return "\n".join([f"  the end of {self.log}:", *(f"  | {line}" for line in lines)])


def remember(service: Service, roster: Path) -> None:
    """Note the service in the state folder, so that its session can be ended even after we were killed."""
    began = psutil.Process(service.process.pid).create_time()
    with roster.open("a", encoding="utf-8") as file:
        file.write(f"{service.process.pid} {began}\n")


def owned(state: Path, roster: Path) -> list[psutil.Process]:
    """Every process that the stack with this state folder has started, at whatever remove."""
    sessions = _sessions(roster)
    return [each for each in psutil.process_iter() if each.pid != os.getpid() and _is_owned(each, state, sessions)]


def _is_owned(process: psutil.Process, state: Path, sessions: set[int]) -> bool:
    """By its session; one that left it, by its environment, which Airflow's servers overwrite with a title."""
    try:
        if process.status() == psutil.STATUS_ZOMBIE:  # has ended, and only waits for its parent to notice
            return False
        return os.getsid(process.pid) in sessions or process.environ().get(STATE_VARIABLE) == str(state)
    except (psutil.Error, OSError):  # ended meanwhile, or another user's
        return False


def _sessions(roster: Path) -> set[int]:
    """The sessions of all services noted, but for those whose number has passed to another process since."""
    if not roster.exists():
        return set()
    noted = [line.split() for line in roster.read_text(encoding="utf-8").splitlines()]
    return {int(pid) for pid, began in noted if not _is_another(int(pid), float(began))}


def _is_another(pid: int, began: float) -> bool:
    # While anyone is in a session its number is given to nobody else, so a leader that is gone is no doubt.
    try:
        return bool(psutil.Process(pid).create_time() != began)
    except psutil.Error:
        return False


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let a second Ctrl-C pass: whoever is impatient would be left with processes that run on."""
    before = {asked: signal.signal(asked, signal.SIG_IGN) for asked in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for asked, handler in before.items():
            signal.signal(asked, handler)


def end(those: Callable[[], list[psutil.Process]], grace_s: float = 5.0) -> None:
    """End processes, all at once; what is deaf to being asked is killed."""
    for process in those():
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _wait_until_gone(those, grace_s)
    for process in those():
        with suppress(psutil.NoSuchProcess):
            process.kill()
    _wait_until_gone(those, grace_s)


def _wait_until_gone(those: Callable[[], list[psutil.Process]], limit_s: float) -> None:
    until = time.monotonic() + limit_s
    while those() and time.monotonic() < until:
        time.sleep(_POLL_S)


def locked(path: Path) -> IO[str]:
    """The file, locked for as long as it stays open: one stack per state folder.

    Raises:
        StackError: when another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        msg = (
            f"another Airflow uses the state folder {path.parent}: process {file.read().strip()}\n\n"
            "hint: stop it, or name another folder by BACKSTREAM_HOME"
        )
        file.close()
        raise StackError(msg) from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file
