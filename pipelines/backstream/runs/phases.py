"""Mark the phase of a run in its folder, so that lists show the work before it has a result.

A phase has an empty file in the folder `phases`, and its modification time is the heartbeat of the run. The file
that changed last has the current phase. A phase only informs, so a run goes on if the file cannot be written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import partial
from pathlib import Path

from backstream.errors import StorageError
from backstream.runs.home import RunFolder
from backstream.storage.files import remove_file, write_text
from backstream.storage.heartbeat import heartbeat

_HEARTBEAT_S = 10.0


class Phase(StrEnum):
    """A phase of a planned run, in the order of the run."""

    START_SPARK = "start_spark"
    """A job was submitted, and its Spark session has not started yet."""
    REPLAY = "replay"
    AUDIT = "audit"
    APPROVE = "approve"
    """A task checks whether the publication needs an approval, and requests it."""
    PUBLISH = "publish"


_ORDER = list(Phase)


def begin_phase(folder: RunFolder, phase: Phase, job: str = "") -> None:
    """Mark that a phase begins.

    Args:
        folder: folder of the run.
        phase: the new phase.
        job: first chunk of a Spark job, because several jobs of a run can be in different phases.
    """
    if folder.path.is_dir():
        _mark(_file_of(folder, phase, job))


def withdraw_phase(folder: RunFolder, phase: Phase, job: str = "") -> None:
    """Remove the mark of a phase that has ended without a result."""
    with suppress(OSError, StorageError):
        remove_file(_file_of(folder, phase, job))


@contextmanager
def keep_phase(folder: RunFolder, phase: Phase, job: str = "") -> Iterator[None]:
    """Mark a phase for the time of a block, with a heartbeat every 10 seconds; see `begin_phase`."""
    begin_phase(folder, phase, job)
    with heartbeat(partial(_mark, _file_of(folder, phase, job)), _HEARTBEAT_S):
        yield


def find_phase(folder: RunFolder) -> Phase | None:
    """Return the phase whose mark changed last; None before the first one."""
    try:
        with os.scandir(folder.phases) as entries:
            changed_ns = {entry.name: entry.stat().st_mtime_ns for entry in entries}
    except OSError:
        return None
    phases = {name: Phase(name.partition("-")[0]) for name in changed_ns}
    newest = max(phases, key=lambda name: (changed_ns[name], _ORDER.index(phases[name])), default=None)
    return phases[newest] if newest else None


def _file_of(folder: RunFolder, phase: Phase, job: str) -> Path:
    return folder.phases / (f"{phase}-{job}" if job else phase.value)


def _mark(file: Path) -> None:
    with suppress(StorageError):
        write_text(file, "")
