"""The ranges that a source can be asked for: one rule for the form, the commands and the task `plan`."""

from __future__ import annotations

from dataclasses import dataclass

from backstream.errors import RangeError
from backstream.eventtime.instants import DAY_MS, instant_text
from backstream.eventtime.intervals import Interval

AHEAD_MS = DAY_MS
"""How far beyond the day that it is now in UTC a range may go: somewhere it is tomorrow already."""


BEYOND_MS = 366 * DAY_MS
"""How far beyond the days of events a range may reach: any month or year fits of which some days have events."""


@dataclass(frozen=True, slots=True)
class SourceSpan:
    """What a source holds, as far as somebody knows.

    `allowed` is its `source.event_time_range`. `events` go from the first to just after the last, empty when there
    are none; None: nobody knows. `where` is the definition's file.
    """

    dataset: str
    where: str
    allowed: Interval
    events: Interval | None = None

    @property
    def has_events(self) -> bool:
        """Whether the first and the last are known."""
        return self.events is not None and self.events.start_ms < self.events.end_ms

    def days(self, now_ms: int) -> Interval:
        """The whole UTC days that may be asked for at all."""
        allowed, ahead_ms = round_to_days(self.allowed), _day_after(now_ms) + AHEAD_MS
        events_end_ms = _day_after(self.events.end_ms) if self.events and self.has_events else ahead_ms
        return Interval(allowed.start_ms, min(allowed.end_ms, max(ahead_ms, events_end_ms)))


def require_range_in_source(interval: Interval, reads: Interval, held: SourceSpan, now_ms: int) -> None:
    """Check that a range can have events, and has some; days without any may lie between and beside them.

    Args:
        interval: the backfill range.
        reads: the event times that its windows hold.
        held: what the source holds.
        now_ms: what time it is.

    Raises:
        RangeError: naming the end that is wrong, the first and the last event, and the range that is possible.
    """
    days = held.days(now_ms)
    if interval.start_ms < days.start_ms:
        limit, got = instant_text(days.start_ms), instant_text(interval.start_ms)
        msg = f"since must not be before {limit}, got {got} ({held.where}, source.event_time_range)"
        raise RangeError(msg + _facts(held, days), "since")
    if interval.end_ms > days.end_ms:
        limit, got = instant_text(days.end_ms), instant_text(interval.end_ms)
        why = f"{held.where}, source.event_time_range"
        if days.end_ms < round_to_days(held.allowed).end_ms:
            why = f"now is {instant_text(now_ms // 1_000 * 1_000)}"
        msg = f"until must not be after {limit}, got {got} ({why})"
        raise RangeError(msg + _facts(held, days), "until")
    if held.events is not None:
        _require_events(interval, reads, held.events, f"({held.where}, source.path){_facts(held, days)}")


def _require_events(interval: Interval, reads: Interval, events: Interval, said: str) -> None:
    if not reads.overlaps(events):
        msg = f"no event in range {interval} {said}"
        raise RangeError(msg, "until" if interval.start_ms < events.start_ms else "since")
    days = round_to_days(events)
    for end, which, beyond_ms in (
        ("since", "first", days.start_ms - interval.start_ms),
        ("until", "last", interval.end_ms - days.end_ms),
    ):
        if beyond_ms > BEYOND_MS:
            msg = f"no event in the {which} {beyond_ms // DAY_MS:,} days of range {interval} {said}"
            raise RangeError(msg, end)


def round_to_days(interval: Interval) -> Interval:
    """The UTC days that hold an interval."""
    return Interval(interval.start_ms // DAY_MS * DAY_MS, -(-interval.end_ms // DAY_MS) * DAY_MS)


def _day_after(value_ms: int) -> int:
    return -(-value_ms // DAY_MS) * DAY_MS


def _facts(held: SourceSpan, days: Interval) -> str:
    if held.events is None:
        return _hint(days)
    if not held.has_events:
        return f"\n  {held.dataset} has no event at all"
    first, last = instant_text(held.events.start_ms), instant_text(held.events.end_ms - 1)
    return f"\n  {held.dataset} has events from {first} to {last}{_hint(round_to_days(held.events))}"


def _hint(days: Interval) -> str:
    since, until = (instant_text(value_ms)[:10] for value_ms in (days.start_ms, days.end_ms))
    return f"\n\nhint: the possible range is since={since} until={until}; until is excluded"
