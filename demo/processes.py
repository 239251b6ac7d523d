"""Starting and ending the stack's own processes, and only those."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from backstream.core.errors import BackstreamError
from demo.settings import STATE_VARIABLE

_GRACE_S = 12.0
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


def end(state: Path, roster: Path) -> None:
    """End the stack's processes, running tasks and their Spark included; what does not go is killed."""
    # All at once: a scheduler that is asked alone waits until its running tasks have finished.
    started = owned(state, roster)
    for process in started:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    psutil.wait_procs(started, timeout=_GRACE_S)
    left = owned(state, roster)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=_GRACE_S)
    roster.unlink(missing_ok=True)


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
