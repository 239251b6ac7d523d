"""Mark the phase of a run, report its progress, and estimate its remaining time from the timings of its chunks."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from statistics import quantiles

from backstream.errors import StorageError
from backstream.eventtime.instants import MINUTE_MS, SECOND_MS, epoch_ms
from backstream.runs.home import RunFolder
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Plan
from backstream.storage.files import remove_file, write_text
from backstream.storage.heartbeat import heartbeat

_QUIET_MS = 10 * MINUTE_MS
"""Time without a new file after which a run counts as dead, unless its chunks take longer."""
_HEARTBEAT_S = 10.0


@dataclass(frozen=True, slots=True)
class ChunkTiming:
    """Expected events, duration and end of a finished chunk, or of several that ran as one."""

    expected_events: int
    seconds: float
    finished_ms: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The number of finished chunks of a run, and the lower and upper estimate of the remaining seconds."""

    done: int
    chunks: int
    seconds_left: tuple[float, float] | None

    def __str__(self) -> str:
        """Return a text such as `12 of 400 chunks are done, 5 to 8 min left`."""
        done = f"{self.done:,} of {self.chunks:,} chunks are done"
        if self.done == self.chunks or self.seconds_left is None:
            return done
        low, high = (_minutes(seconds) for seconds in self.seconds_left)
        return f"{done}, {low if low == high else f'{low} to {high}'} min left"


def load_progress(plan: Plan) -> Progress:
    """Return the progress of a plan, from the manifests that exist."""
    done, left = [], []
    for chunk in plan.chunks:
        file = plan.folder.manifest(chunk.chunk_id)
        if file.exists():
            done.append(Manifest.read(file))
        else:
            left.append(chunk.expected_events)
    return Progress(
        len(done), len(plan.chunks), estimate_seconds_left(load_timings(_expected_events(plan), done), left)
    )


def load_timings(expected: Mapping[str, int], manifests: Iterable[Manifest]) -> list[ChunkTiming]:
    """Return the timing of each finished chunk; chunks that ran as one count as one.

    Args:
        expected: number of expected events by chunk.
        manifests: of the finished chunks.
    """
    jobs: dict[tuple[str, str], list[Manifest]] = {}
    for manifest in manifests:
        jobs.setdefault((manifest.attempt, manifest.finished_at), []).append(manifest)
    return [
        ChunkTiming(
            sum(expected[manifest.chunk_id] for manifest in job),
            sum(seconds for manifest in job for seconds in manifest.timings_s.values()),
            epoch_ms(datetime.fromisoformat(finished_at)) if finished_at else 0,
        )
        for (_, finished_at), job in jobs.items()
    ]


def _expected_events(plan: Plan) -> dict[str, int]:
    return {chunk.chunk_id: chunk.expected_events for chunk in plan.chunks}


def _minutes(seconds: float) -> int:
    return math.ceil(seconds * SECOND_MS / MINUTE_MS)


def estimate_seconds_left(done: Sequence[ChunkTiming], left: Sequence[int]) -> tuple[float, float] | None:
    """Return a lower and an upper estimate of the remaining seconds; None until a chunk with events is finished.

    The bounds are the quartiles of seconds per expected event over the finished chunks. They are multiplied by the
    remaining events, and divided by the number of chunks that ran at the same time.

    Args:
        done: the finished chunks.
        left: expected events of each unfinished chunk.
    """
    rates = [chunk.seconds / chunk.expected_events for chunk in done if chunk.expected_events]
    if not left:
        return 0.0, 0.0
    if not rates:
        return None
    low, high = (rates[0], rates[0]) if len(rates) == 1 else _quartiles(rates)
    parallelism = min(_mean_parallelism(done), len(left))
    return low * sum(left) / parallelism, high * sum(left) / parallelism


def events_per_second(done: Sequence[ChunkTiming]) -> float | None:
    """Return the expected events per second of the finished chunks; None until a chunk with events is finished."""
    seconds = sum(chunk.seconds for chunk in done)
    events = sum(chunk.expected_events for chunk in done)
    return events / seconds * _mean_parallelism(done) if seconds and events else None


def is_alive(now_ms: int, last_sign_ms: int, done: Sequence[ChunkTiming]) -> bool:
    """Return whether an unfinished run wrote a file so recently that it is probably still running."""
    longest_ms = max((chunk.seconds for chunk in done), default=0.0) * SECOND_MS
    return now_ms - last_sign_ms <= max(_QUIET_MS, 2 * longest_ms)


def _quartiles(rates: Sequence[float]) -> tuple[float, float]:
    low, _, high = quantiles(rates, n=4, method="inclusive")
    return low, high


def _mean_parallelism(done: Sequence[ChunkTiming]) -> float:
    """Return the mean number of chunks that ran at the same time, from the first start to the last end."""
    start_ms = min(chunk.finished_ms - chunk.seconds * SECOND_MS for chunk in done)
    span_ms = max(chunk.finished_ms for chunk in done) - start_ms
    total_ms = sum(chunk.seconds for chunk in done) * SECOND_MS
    return max(1.0, total_ms / span_ms) if span_ms > 0 else 1.0


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
