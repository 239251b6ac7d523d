"""Event-time timers of a keyed process function, slow and obvious: which fire, when, and what they see.

A timer is known by its key and timestamp. Registering one that is pending changes nothing. It fires at the first
watermark after its registration that reaches it, so one in the past waits for the next watermark of any value;
what `on_timer` registers within reach of that watermark fires with it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from backstream.eventtime.instants import wrap_int64
from backstream.eventtime.records import Record
from backstream.eventtime.watermarks import Watermarks


@dataclass(frozen=True, slots=True)
class TimerFiring:
    """A timer that fired: `by` numbers the watermark, `after` the last record before it."""

    key: Hashable
    timestamp_ms: int
    watermark_ms: int
    by: int
    after: int


@dataclass(slots=True)
class KeyTimers:
    """The pending timers of one key, as a process function may change them."""

    pending: set[int] = field(default_factory=set)

    def register(self, timestamp_ms: int) -> None:
        """Set a timer; one that is pending stays as it is."""
        self.pending.add(timestamp_ms)

    def delete(self, timestamp_ms: int) -> None:
        """Take a timer back; one that is not pending is no error."""
        self.pending.discard(timestamp_ms)


class ProcessFunction(Protocol):
    """What a user writes: called per record, and per timer that fires.

    Each key has a function of its own, so whatever it remembers is state of that key.
    """

    def on_record(self, record: Record, timers: KeyTimers) -> None:
        """A record of the key arrived."""

    def on_timer(self, key: Hashable, timestamp_ms: int, timers: KeyTimers) -> None:
        """A timer of the key fired."""


def timer_firings(
    records: Sequence[Record], heard: Watermarks, new_function: Callable[[], ProcessFunction]
) -> list[TimerFiring]:
    """Play records and watermarks through a process function per key.

    Returns:
        Firings in order: by watermark, then by timestamp. The order of equal timestamps of several keys is open.
    """
    functions: dict[Hashable, ProcessFunction] = defaultdict(new_function)
    timers: dict[Hashable, KeyTimers] = defaultdict(KeyTimers)
    fired: list[TimerFiring] = []
    events = deque(enumerate(heard.events))
    for number in range(-1, len(records)):
        if number >= 0:
            record = records[number]
            functions[record.key].on_record(record, timers[record.key])
        while events and events[0][1].after == number:
            by, event = events.popleft()
            while due := _next_due(timers, event.watermark_ms):
                timestamp_ms, key = due
                timers[key].delete(timestamp_ms)
                fired.append(TimerFiring(key, timestamp_ms, event.watermark_ms, by, number))
                functions[key].on_timer(key, timestamp_ms, timers[key])
    return fired


def _next_due(timers: dict[Hashable, KeyTimers], watermark_ms: int) -> tuple[int, Hashable] | None:
    """The earliest pending timer that the watermark reaches."""
    due = [
        (min(of_key.pending), key)
        for key, of_key in timers.items()
        if of_key.pending and min(of_key.pending) <= watermark_ms
    ]
    return min(due, key=lambda each: each[0], default=None)


@dataclass(slots=True)
class Repeating:
    """The process function of the recordings: timers at fixed delays, set again a few times per key."""

    delays_ms: Sequence[int]
    period_ms: int = 0
    most_repeats: int = 0
    _repeats: int = field(default=0, init=False)

    def on_record(self, record: Record, timers: KeyTimers) -> None:
        """Set a timer at each delay after the event; take back those that the record names."""
        for delay_ms in self.delays_ms:
            timers.register(wrap_int64(record.event_time_ms + delay_ms))
        for timestamp_ms in record.delete_timers_ms:
            timers.delete(timestamp_ms)

    def on_timer(self, key: Hashable, timestamp_ms: int, timers: KeyTimers) -> None:
        """Set the timer again one period later, as often as allowed."""
        if self.period_ms and self._repeats < self.most_repeats:
            self._repeats += 1
            timers.register(wrap_int64(timestamp_ms + self.period_ms))
