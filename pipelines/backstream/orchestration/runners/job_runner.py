"""Define the interface of the places where a job runs: submit, poll, cancel, and read the log."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Protocol

from backstream.errors import JobError
from backstream.runs.home import Home
from backstream.text import text_logger, visible_text

_MAX_SILENCE_S = 300.0
"""The time after which a job is lost that its place doesn't know, or whose place doesn't answer."""
_TAIL_LINES = 20

log = text_logger(__name__)


@dataclass(frozen=True, slots=True)
class SparkJob:
    """A job for Spark.

    Attributes:
        name: name for people, e.g., `flights 0000`.
        module: module with the job, e.g., `backstream.jobs.replay`.
        arguments: arguments of the job.
        home: home of the run.
        errors: folder of the home for errors.
        settings: settings of Spark for this job.
    """

    name: str
    module: str
    arguments: tuple[str, ...]
    home: Home
    errors: Path
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """A name for services: the same for each attempt, so that an attempt replaces the one before it."""
        text = "\n".join((self.module, *self.arguments))
        return f"backstream-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


class JobPhase(StrEnum):
    """The phase of a submitted job; UNKNOWN if its place doesn't know it at the moment."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a submitted job.

    Attributes:
        phase: its phase.
        cause: sentence that explains why it failed, as its place tells it; empty if it doesn't.
        status: exit status of the driver; None if it is unknown.
        details: lines about its place and its command.
        tail: last lines of its log.
        is_certain: true if the cause explains the end; an error that the driver wrote is a consequence of it.
    """

    phase: JobPhase
    cause: str = ""
    status: int | None = None
    details: tuple[str, ...] = ()
    tail: tuple[str, ...] = ()
    is_certain: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the state as an event of a trigger contains it."""
        return {**asdict(self), "phase": self.phase.value}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> JobState:
        """Return the state that an event of a trigger contains."""
        lists = {name: tuple(content[name]) for name in ("details", "tail")}
        return cls(**{**content, **lists, "phase": JobPhase(content["phase"])})


class JobRunner(Protocol):
    """A place where jobs run. `settings` has the arguments with which another process makes the same runner."""

    is_detached: ClassVar[bool]
    """True if the driver lives without the process that submits it."""

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of the runner, as JSON."""

    def submit(self, job: SparkJob, error_location: str) -> str:
        """Start a job, after the end of an earlier attempt, and return its id.

        Args:
            job: the job.
            error_location: file or object in which the driver leaves the sentence of its error.

        Raises:
            JobError: when the place doesn't start it.
            SpecError: when the connection or the settings are wrong.
        """

    def poll(self, job_id: str) -> JobState:
        """Return the state of a job.

        Raises:
            JobError: when the place doesn't answer.
        """

    def cancel(self, job_id: str) -> None:
        """End a job, and remove what it has left in its place; a job that has ended stays as it is.

        Raises:
            JobError: when the place doesn't answer.
        """

    def read_log(self, job_id: str, position: str) -> tuple[list[str], str]:
        """Return the lines of the driver's log after a position, and the next position; at first it is empty.

        Raises:
            JobError: when the place doesn't answer.
        """


@dataclass(slots=True)
class JobFollower:
    """A submitted job whose log is printed until its end.

    Attributes:
        runner: place of the job.
        job_id: its id there.
        ends_at_s: limit in seconds since 1970; None for no limit.
        show: prints some lines of the log.
    """

    runner: JobRunner
    job_id: str
    ends_at_s: float | None = None
    show: Callable[[Iterable[str]], None] | None = None
    _position: str = ""
    _silent_since_s: float | None = None
    _warning: str = ""
    _tail: deque[str] = field(default_factory=lambda: deque(maxlen=_TAIL_LINES))

    def look(self) -> JobState | None:
        """Print the new lines of the log; return the state of the job after its end, None while it runs."""
        state = self._load_state()
        if state.phase is not JobPhase.UNKNOWN:
            self._print_log()
        if state.phase is JobPhase.RUNNING and self.ends_at_s is not None and time.time() >= self.ends_at_s:
            cause = "it was ended after the execution timeout of the task"
            state = replace(state, phase=JobPhase.FAILED, cause=cause, is_certain=True)
        if state.phase not in (JobPhase.SUCCEEDED, JobPhase.FAILED):
            return None
        self.cancel()
        return replace(state, tail=tuple(self._tail))

    def cancel(self) -> None:
        """End the job, and remove what it has left."""
        try:
            self.runner.cancel(self.job_id)
        except JobError as error:
            self._warn(error)

    def _warn(self, error: JobError) -> None:
        """Print an error, but not at each look."""
        if str(error) != self._warning:
            log.warning("%s", error)
        self._warning = str(error)

    def _load_state(self) -> JobState:
        """Return the state of the job; after a long silence, a failure."""
        try:
            state = self.runner.poll(self.job_id)
        except JobError as error:
            self._warn(error)
            state = JobState(JobPhase.UNKNOWN, str(error).partition("\n")[0])
        if state.phase is not JobPhase.UNKNOWN:
            self._silent_since_s = None
            return state
        now_s = time.monotonic()
        self._silent_since_s = self._silent_since_s or now_s
        if now_s - self._silent_since_s <= _MAX_SILENCE_S:
            return state
        cause = state.cause or "its place no longer knows it"
        return replace(state, phase=JobPhase.FAILED, cause=f"{cause} (for {_MAX_SILENCE_S:.0f} seconds)")

    def _print_log(self) -> None:
        try:
            lines, self._position = self.runner.read_log(self.job_id, self._position)
        except JobError as error:
            self._warn(error)
            return
        lines = [visible_text(line) for line in lines]
        self._tail.extend(line for line in lines if line.strip())
        if lines and self.show:
            self.show(lines)
