"""Hold the watermarks and status changes that a source sends, and the watermark at the arrival of each record."""

from __future__ import annotations

from dataclasses import dataclass, field

from backstream.errors import SpecError
from backstream.eventtime.instants import MIN_MS, wrap_int64
from backstream.eventtime.records import SourceClock

MAX_WATERMARK_EVENTS = 1_000_000
"""Limit of watermarks that are listed one by one while they only follow the clock."""


def too_many_watermarks_error(count: int) -> SpecError:
    """Return the error for a watermark that follows the clock through too many ticks."""
    return SpecError(
        f"a time lag moves the watermark at every tick: {count:,} watermarks are too many to list, "
        f"the limit is {MAX_WATERMARK_EVENTS:,}\n\nhint: use a longer interval, or an earlier end of the clock"
    )


@dataclass(frozen=True, slots=True)
class WatermarkEvent:
    """A new watermark after the record with the number `after` (-1: before the first record)."""

    watermark_ms: int
    after: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class StatusEvent:
    """A change of the stream to idle, or back to active."""

    is_idle: bool
    after: int
    at_ms: int


@dataclass(slots=True)
class Watermarks:
    """The output of a source: strictly rising watermarks, status changes, and `in_force_ms` per record.

    `in_force_ms[i]` is the watermark at the arrival of record i. After a cut, these are the watermarks of the rest
    of the stream: record i has the number `records_before + i`, and event i the number `events_before + i`.
    """

    events: list[WatermarkEvent] = field(default_factory=list)
    statuses: list[StatusEvent] = field(default_factory=list)
    in_force_ms: list[int] = field(default_factory=list)
    is_final: bool = False
    """True if +inf arrived at the end."""
    before_end: int | None = None
    """The number of events in the list before the end of input, which no record sees; None: it has not ended."""
    records_before: int = 0
    events_before: int = 0
    initial_ms: int = MIN_MS
    """The watermark before the first event."""
    is_initially_idle: bool = False
    _after: int = -1
    _at_ms: int = 0

    @property
    def current_ms(self) -> int:
        """The current watermark."""
        return self.events[-1].watermark_ms if self.events else self.initial_ms

    @property
    def is_idle(self) -> bool:
        """Return whether the stream is idle."""
        return self.statuses[-1].is_idle if self.statuses else self.is_initially_idle

    def at(self, after: int, at_ms: int) -> None:
        """Set the position of the next events: after this record, at this time."""
        self._after, self._at_ms = after, at_ms

    def emit(self, watermark_ms: int) -> None:
        """Add a watermark that rises, which also ends idleness; ignore any other."""
        if watermark_ms <= self.current_ms:
            return
        if self.is_idle:
            self.statuses.append(StatusEvent(is_idle=False, after=self._after, at_ms=self._at_ms))
        self.events.append(WatermarkEvent(watermark_ms, self._after, self._at_ms))

    def climb(self, ticks: range, clock: SourceClock, delay_ms: int) -> None:
        """Add a watermark at each of these ticks: the clock minus the delay.

        Raises:
            SpecError: when the list would be too long.
        """
        if len(self.events) + len(ticks) > MAX_WATERMARK_EVENTS:
            raise too_many_watermarks_error(len(self.events) + len(ticks))
        for tick in ticks:
            self._at_ms = clock.tick_ms(tick)
            self.emit(wrap_int64(self._at_ms - delay_ms))

    def mark_idle(self) -> None:
        """Add a change to idle unless the stream is idle."""
        if not self.is_idle:
            self.statuses.append(StatusEvent(is_idle=True, after=self._after, at_ms=self._at_ms))
