"""Check that a source can have events for a range: one rule for the form, the commands and the `plan` task."""

from __future__ import annotations

from dataclasses import dataclass

from backstream.errors import RangeError
from backstream.eventtime.instants import DAY_MS, instant_text
from backstream.eventtime.intervals import Interval

_MAX_AHEAD_MS = DAY_MS
"""Distance that a range may extend beyond the current UTC day, since some time zones are a day ahead."""

_MAX_EMPTY_CHUNKS = 366
"""The number of chunks that a range may extend beyond the days of events. A range of years with some events is
allowed, but not the work for thousands of empty chunks, which a wrong year would cause."""


@dataclass(frozen=True, slots=True)
class SourceSpan:
    """The known time range of a source.

    `allowed` is its `source.event_time_range`. `events` is the interval from the first event to just after the
    last; empty without events, None if unknown. `where` is the definition's file. `notes` are further facts for a
    message. `chunk_ms` is the length of a chunk of a run.
    """

    dataset: str
    where: str
    allowed: Interval
    events: Interval | None = None
    notes: tuple[str, ...] = ()
    chunk_ms: int = DAY_MS

    @property
    def has_events(self) -> bool:
        """Return whether the first and the last event are known."""
        return self.events is not None and self.events.start_ms < self.events.end_ms

    def days(self, now_ms: int) -> Interval:
        """Return the whole UTC days that a range may contain."""
        allowed, ahead_ms = round_to_days(self.allowed), _ceil_to_day_ms(now_ms) + _MAX_AHEAD_MS
        events_end_ms = _ceil_to_day_ms(self.events.end_ms) if self.events and self.has_events else ahead_ms
        return Interval(allowed.start_ms, min(allowed.end_ms, max(ahead_ms, events_end_ms)))


def require_range_in_source(interval: Interval, reads: Interval, span: SourceSpan, now_ms: int) -> None:
    """Check that a range can contain events, and contains some; days without events are allowed.

    Args:
        interval: the backfill range.
        reads: the event times of its windows.
        span: the time range of the source.
        now_ms: the current time.

    Raises:
        RangeError: with the wrong end, the first and the last event, and the possible range.
    """
    days = span.days(now_ms)
    if interval.start_ms < days.start_ms:
        limit, got = instant_text(days.start_ms), instant_text(interval.start_ms)
        msg = f"since must not be before {limit}, got {got} ({span.where}, source.event_time_range)"
        raise RangeError(msg + _facts(span, days), "since")
    if interval.end_ms > days.end_ms:
        limit, got = instant_text(days.end_ms), instant_text(interval.end_ms)
        source = f"{span.where}, source.event_time_range"
        if days.end_ms < round_to_days(span.allowed).end_ms:
            source = f"now is {instant_text(now_ms // 1_000 * 1_000)}"
        msg = f"until must not be after {limit}, got {got} ({source})"
        raise RangeError(msg + _facts(span, days), "until")
    if span.events is not None:
        longest_ms = _MAX_EMPTY_CHUNKS * span.chunk_ms
        context = f"({span.where}, source.path){_facts(span, days)}"
        _require_events(interval, reads, span.events, longest_ms, context)


def _require_events(interval: Interval, reads: Interval, events: Interval, longest_ms: int, context: str) -> None:
    if not reads.overlaps(events):
        msg = f"no event in range {interval} {context}"
        raise RangeError(msg, "until" if interval.start_ms < events.start_ms else "since")
    days = round_to_days(events)
    for end, first_or_last, beyond_ms in (
        ("since", "first", days.start_ms - interval.start_ms),
        ("until", "last", interval.end_ms - days.end_ms),
    ):
        if beyond_ms > longest_ms:
            msg = f"no event in the {first_or_last} {beyond_ms // DAY_MS:,} days of range {interval} {context}"
            raise RangeError(msg, end)


def round_to_days(interval: Interval) -> Interval:
    """Return the UTC days that contain an interval."""
    return Interval(interval.start_ms // DAY_MS * DAY_MS, -(-interval.end_ms // DAY_MS) * DAY_MS)


def _ceil_to_day_ms(value_ms: int) -> int:
    return -(-value_ms // DAY_MS) * DAY_MS


def _facts(span: SourceSpan, days: Interval) -> str:
    if span.events is None:
        return _hint(days)
    if not span.has_events:
        return f"\n  {span.dataset} has no events"
    first, last = instant_text(span.events.start_ms), instant_text(span.events.end_ms - 1)
    lines = [f"{span.dataset} has events from {first} to {last}", *span.notes]
    return "".join(f"\n  {line}" for line in lines) + _hint(round_to_days(span.events))


def _hint(days: Interval) -> str:
    since, until = (instant_text(value_ms)[:10] for value_ms in (days.start_ms, days.end_ms))
    return f"\n\nhint: the possible range is since={since} until={until}; until is excluded"
