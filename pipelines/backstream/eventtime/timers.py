"""Run a keyed process function with event-time timers, by the plainest algorithm: find the timers that fire.

A timer is identified by its key and timestamp. Registering a pending timer again has no effect. A timer fires at
the first watermark after its registration that reaches it. So a timer in the past fires at the next watermark,
whatever its value. Timers that `on_timer` registers within reach of the current watermark fire with it.
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
    """A firing of a timer; `by` is the number of the watermark, `after` that of the last record before it."""

    key: Hashable
    timestamp_ms: int
    watermark_ms: int
    by: int
    after: int


@dataclass(slots=True)
class KeyTimers:
    """The pending timers of one key; a process function may change them."""

    pending: set[int] = field(default_factory=set)

    def register(self, timestamp_ms: int) -> None:
        """Register a timer; a pending one is unchanged."""
        self.pending.add(timestamp_ms)

    def delete(self, timestamp_ms: int) -> None:
        """Delete a timer if it is pending."""
        self.pending.discard(timestamp_ms)


class ProcessFunction(Protocol):
    """A user-defined function that is called per record and per firing timer.

    Each key has its own instance, so its attributes are state of that key.
    """

    def on_record(self, record: Record, timers: KeyTimers) -> None:
        """Process a record of the key."""

    def on_timer(self, key: Hashable, timestamp_ms: int, timers: KeyTimers) -> None:
        """Process a firing timer of the key."""


def fire_timers(
    records: Sequence[Record], watermarks: Watermarks, new_function: Callable[[], ProcessFunction]
) -> list[TimerFiring]:
    """Run records and watermarks through one process function per key.

    Returns:
        Firings in order of watermark, then timestamp. The order of equal timestamps of different keys is
        undefined.
    """
    functions: dict[Hashable, ProcessFunction] = defaultdict(new_function)
    timers: dict[Hashable, KeyTimers] = defaultdict(KeyTimers)
    firings: list[TimerFiring] = []
    events = deque(enumerate(watermarks.events))
    for number in range(-1, len(records)):
        if number >= 0:
            record = records[number]
            functions[record.key].on_record(record, timers[record.key])
        while events and events[0][1].after == number:
            by, event = events.popleft()
            while due := _next_due(timers, event.watermark_ms):
                timestamp_ms, key = due
                timers[key].delete(timestamp_ms)
                firings.append(TimerFiring(key, timestamp_ms, event.watermark_ms, by, number))
                functions[key].on_timer(key, timestamp_ms, timers[key])
    return firings


def _next_due(timers: dict[Hashable, KeyTimers], watermark_ms: int) -> tuple[int, Hashable] | None:
    """Return the earliest pending timer that the watermark reaches."""
    due = [
        (min(key_timers.pending), key)
        for key, key_timers in timers.items()
        if key_timers.pending and min(key_timers.pending) <= watermark_ms
    ]
    return min(due, key=lambda timer: timer[0], default=None)


@dataclass(slots=True)
class Repeating:
    """The process function of the recorded cases: timers at fixed delays, repeated a few times per key."""

    delays_ms: Sequence[int]
    period_ms: int = 0
    most_repeats: int = 0
    _repeats: int = field(default=0, init=False)

    def on_record(self, record: Record, timers: KeyTimers) -> None:
        """Register a timer at each delay after the event, and delete those that the record lists."""
        for delay_ms in self.delays_ms:
            timers.register(wrap_int64(record.event_time_ms + delay_ms))
        for timestamp_ms in record.delete_timers_ms:
            timers.delete(timestamp_ms)

    def on_timer(self, key: Hashable, timestamp_ms: int, timers: KeyTimers) -> None:
        """Register the timer again one period later, up to the maximum number of repeats."""
        if self.period_ms and self._repeats < self.most_repeats:
            self._repeats += 1
            timers.register(wrap_int64(timestamp_ms + self.period_ms))
