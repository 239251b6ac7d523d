"""Compute what a job of Structured Streaming emits by the plainest algorithm: its watermarks decide.

The rules are those of Spark 3.4 to 4.3. A job writes one watermark per batch to its checkpoint. `W[n]` is that of
batch `n`, and it is 0 before the first batch. For a record of batch `b` and a window with the end `e`:

    e <= W[b-1]      the record is late for the window, and dropped (`WatermarkSupport`)
    e <= W[n]        the window is emitted in the first batch `n` for which this holds (`StateStoreSaveExec`)

Other windows are never emitted, since a job has no end. Times are in microseconds, watermarks in milliseconds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

_US_PER_MS = 1_000


class BatchRecord(NamedTuple):
    """A record with the batch that read it; a record without an event time is in no window."""

    number: int
    key: Hashable
    time_us: int | None
    batch: int


class EmittedWindow(NamedTuple):
    """A window that a batch emitted, with the numbers of its records, ascending."""

    batch: int
    key: Hashable
    start_us: int
    end_us: int
    records: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JobWindows:
    """The windows of a job: all starts are `slide_us` apart, and `offset_us` after 1970."""

    size_us: int
    slide_us: int
    offset_us: int = 0

    def assign(self, time_us: int) -> list[tuple[int, int]]:
        """Return start and end of all windows of an event time."""
        last_us = time_us - (time_us - self.offset_us) % self.slide_us
        starts = range(last_us, time_us - self.size_us, -self.slide_us)
        return [(start_us, start_us + self.size_us) for start_us in starts]


@dataclass(frozen=True, slots=True)
class BatchWatermarks:
    """The watermark of each batch from 0 on, and the batch whose watermark judges late records.

    `is_late_by_own` is the rule of Spark 3.3, and that of `statefulOperator.allowMultiple = false`: a record is
    judged by the watermark of its own batch.
    """

    values_ms: Sequence[int]
    is_late_by_own: bool = False

    def is_late(self, end_us: int, batch: int) -> bool:
        """Return whether a record of a batch is late for a window, or a session, with this end."""
        judging = batch if self.is_late_by_own else batch - 1
        return end_us <= (self.values_ms[judging] * _US_PER_MS if judging >= 0 else 0)

    def find_batch(self, end_us: int) -> int | None:
        """Return the first batch whose watermark has reached an end; None if there is none."""
        return next((n for n, value_ms in enumerate(self.values_ms) if end_us <= value_ms * _US_PER_MS), None)


def emit_windows(
    records: Iterable[BatchRecord], watermarks: BatchWatermarks, windows: JobWindows
) -> list[EmittedWindow]:
    """Return the windows that a job in append mode emitted; windows that are still open are left out."""
    emitted = []
    for (key, start_us, end_us), accepted in _accept(records, watermarks, windows).items():
        if (batch := watermarks.find_batch(end_us)) is not None:
            numbers = tuple(sorted(record.number for record in accepted))
            emitted.append(EmittedWindow(batch, key, start_us, end_us, numbers))
    return emitted


def update_windows(
    records: Iterable[BatchRecord], watermarks: BatchWatermarks, windows: JobWindows
) -> list[EmittedWindow]:
    """Return the windows that a job in update mode emitted: in each batch those that got a record."""
    emitted = []
    for (key, start_us, end_us), accepted in _accept(records, watermarks, windows).items():
        for batch in {record.batch for record in accepted}:
            numbers = tuple(sorted(record.number for record in accepted if record.batch <= batch))
            emitted.append(EmittedWindow(batch, key, start_us, end_us, numbers))
    return emitted


def _accept(
    records: Iterable[BatchRecord], watermarks: BatchWatermarks, windows: JobWindows
) -> dict[tuple[Hashable, int, int], list[BatchRecord]]:
    """Return the records that count in each window, by its key, start, and end."""
    accepted: dict[tuple[Hashable, int, int], list[BatchRecord]] = {}
    for record in records:
        for start_us, end_us in windows.assign(record.time_us) if record.time_us is not None else ():
            if not watermarks.is_late(end_us, record.batch):
                accepted.setdefault((record.key, start_us, end_us), []).append(record)
    return accepted


@dataclass(slots=True)
class _OpenSession:
    start_us: int
    end_us: int
    records: list[int] = field(default_factory=list)


def emit_sessions(
    records: Iterable[BatchRecord], watermarks: BatchWatermarks, gap_us: int
) -> Iterator[EmittedWindow]:
    """Yield the sessions that a job emitted, batch by batch.

    A record is judged alone, even if a session that it touches is open. An emitted session is forgotten, so a
    later record near it begins another one (`SessionWindowStateStoreRestoreExec`).
    """
    read: dict[int, list[BatchRecord]] = {}
    for record in records:
        if record.time_us is not None and not watermarks.is_late(record.time_us + gap_us, record.batch):
            read.setdefault(record.batch, []).append(record)
    sessions: dict[Hashable, list[_OpenSession]] = {}
    for batch, watermark_ms in enumerate(watermarks.values_ms):
        for record in read.get(batch, ()):
            time_us = record.time_us or 0
            single = _OpenSession(time_us, time_us + gap_us, [record.number])
            sessions.setdefault(record.key, []).append(single)
        for key, ones in sessions.items():
            merged = list(_merge_sessions(ones))
            sessions[key] = [one for one in merged if one.end_us > watermark_ms * _US_PER_MS]
            for one in merged:
                if one.end_us <= watermark_ms * _US_PER_MS:
                    yield EmittedWindow(batch, key, one.start_us, one.end_us, tuple(sorted(one.records)))


def _merge_sessions(sessions: Iterable[_OpenSession]) -> Iterator[_OpenSession]:
    """Yield the sessions after merging those that overlap or touch: exactly a gap apart is one session."""
    current = None
    for one in sorted(sessions, key=lambda session: session.start_us):
        if current is None or one.start_us > current.end_us:
            if current:
                yield current
            current = one
        else:
            end_us = max(current.end_us, one.end_us)
            current = _OpenSession(current.start_us, end_us, [*current.records, *one.records])
    if current:
        yield current
