"""Start and end the processes of the stack, and no others."""

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
    """Process of the demo's Airflow that died or did not become ready."""


@dataclass(frozen=True, slots=True)
class Service:
    """Process of the stack, with its log file."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @classmethod
    def started(cls, name: str, command: list[str], folder: Path, env: Mapping[str, str]) -> Service:
        """Start a command in a session of its own, so that Ctrl+C in the terminal reaches only this process."""
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
        """Return whether a process belongs to the session of this service."""
        with suppress(OSError):  # the process has ended
            return os.getsid(process.pid) == self.process.pid
        return False

    def require_alive(self) -> None:
        """Check that the process is alive.

        Raises:
            StackError: with the end of the log, when the process has ended.
        """
        status = self.process.poll()
        if status is not None:
            msg = f"airflow {self.name} ended with status {status}\n{self.tail()}"
            raise StackError(msg)

    def require_success(self, timeout_s: float) -> None:
        """Wait until the process has ended successfully.

        Raises:
            StackError: with the end of the log, when the process failed or takes too long.
        """
        try:
            status: int | None = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            status = None
        if status != 0:
            problem = f"ended with status {status}" if status is not None else f"takes over {timeout_s:.0f} s"
            msg = f"airflow {self.name} {problem}\n{self.tail()}"
            raise StackError(msg)

    def tail(self) -> str:
        """Return the path of the log, and its last lines."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
        return "\n".join([f"  the end of {self.log}:", *(f"  | {line}" for line in lines)])


def remember(service: Service, roster: Path) -> None:
    """Record the service in the state folder, so that a later stack can end its session."""
    created_s = psutil.Process(service.process.pid).create_time()
    with roster.open("a", encoding="utf-8") as file:
        file.write(f"{service.process.pid} {created_s}\n")


def owned(state: Path, roster: Path) -> list[psutil.Process]:
    """Return all processes of the stack with this state folder, with their descendants."""
    sessions = _sessions(roster)
    return [
        process
        for process in psutil.process_iter()
        if process.pid != os.getpid() and _is_owned(process, state, sessions)
    ]


def _is_owned(process: psutil.Process, state: Path, sessions: set[int]) -> bool:
    """Return whether a process belongs to the stack, by its session or its environment.

    Airflow's servers overwrite their environment with a title; other processes can leave their session.
    """
    try:
        if process.status() == psutil.STATUS_ZOMBIE:  # it has ended
            return False
        return os.getsid(process.pid) in sessions or process.environ().get(STATE_VARIABLE) == str(state)
    except (psutil.Error, OSError):  # it has ended, or belongs to another user
        return False


def _sessions(roster: Path) -> set[int]:
    """Return the sessions of all recorded services, without ids that belong to another process now."""
    if not roster.exists():
        return set()
    recorded = [line.split() for line in roster.read_text(encoding="utf-8").splitlines()]
    return {int(pid) for pid, created_s in recorded if not _is_reused(int(pid), float(created_s))}


def _is_reused(pid: int, created_s: float) -> bool:
    # The id of a session with processes is not reused, so the id of an ended leader is still valid.
    try:
        return bool(psutil.Process(pid).create_time() != created_s)
    except psutil.Error:
        return False


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore further Ctrl+C, which would leave processes behind."""
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def end(find_processes: Callable[[], list[psutil.Process]], grace_s: float = 5.0) -> None:
    """Terminate all processes, and kill those that have not ended after `grace_s` seconds."""
    for process in find_processes():
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _wait_until_ended(find_processes, grace_s)
    for process in find_processes():
        with suppress(psutil.NoSuchProcess):
            process.kill()
    _wait_until_ended(find_processes, grace_s)


def _wait_until_ended(find_processes: Callable[[], list[psutil.Process]], limit_s: float) -> None:
    deadline_s = time.monotonic() + limit_s
    while find_processes() and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)


def locked(path: Path) -> IO[str]:
    """Open and lock a file, so that a state folder has one stack; closing the file releases the lock.

    Raises:
        StackError: when another process holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        msg = (
            f"another Airflow uses the state folder {path.parent}: process {file.read().strip()}\n\n"
            "hint: stop it, or set BACKSTREAM_HOME to another folder"
        )
        file.close()
        raise StackError(msg) from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file
