"""Run a keyed process function with event-time timers, by the plainest algorithm: find the timers that fire.

A timer is identified by its key and timestamp. Registering a pending timer again has no effect. A timer fires at
the first watermark after its registration that reaches it. So a timer in the past fires at the next watermark,
whatever its value. Timers that `on_timer` registers within reach of the current watermark fire with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from backstream.eventtime.instants import wrap_int64
from backstream.eventtime.process_functions import Context, Emitted, ProcessFunction
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


class ProcessResults(NamedTuple):
    """The firings in order of watermark, then timestamp, and the emitted rows of each key in their order.

    The order of firings with equal timestamps of different keys is undefined.
    """

    firings: list[TimerFiring]
    emitted: dict[Hashable, list[Emitted]]


def record_fields(record: Record) -> dict[str, Any]:
    """Return a record as a process function gets it."""
    return {
        "event_time_ms": record.event_time_ms,
        "value": record.value,
        "delete_timers_ms": record.delete_timers_ms,
    }


def run_process(
    records: Sequence[Record],
    watermarks: Watermarks,
    new_function: Callable[[], ProcessFunction],
    fields: Callable[[Record], Mapping[str, Any]] = record_fields,
) -> ProcessResults:
    """Run records and watermarks through one process function per key.

    Args:
        records: the records in arrival order.
        watermarks: the watermarks of the stream.
        new_function: creates the function of a key.
        fields: returns a record as the function gets it.
    """
    functions: dict[Hashable, ProcessFunction] = {}
    contexts: dict[Hashable, Context] = {}
    firings: list[TimerFiring] = []
    events = deque(enumerate(watermarks.events))
    for number in range(-1, len(records)):
        if number >= 0:
            record = records[number]
            if record.key not in functions:
                functions[record.key], contexts[record.key] = new_function(), Context(record.key)
            context = contexts[record.key]
            context.timestamp_ms = record.event_time_ms
            context.timer_service.current_watermark_ms = watermarks.in_force_ms[number]
            functions[record.key].process_element(fields(record), context)
        while events and events[0][1].after == number:
            by, event = events.popleft()
            while due := _next_due(contexts, event.watermark_ms):
                timestamp_ms, context = due
                context.timer_service.delete(timestamp_ms)
                context.timestamp_ms = timestamp_ms
                context.timer_service.current_watermark_ms = event.watermark_ms
                firings.append(TimerFiring(context.key, timestamp_ms, event.watermark_ms, by, number))
                functions[context.key].on_timer(timestamp_ms, context)
    return ProcessResults(firings, {key: context.emitted for key, context in contexts.items()})


def _next_due(contexts: Mapping[Hashable, Context], watermark_ms: int) -> tuple[int, Context] | None:
    """Return the earliest pending timer that the watermark reaches, with the context of its key."""
    earliest = ((context.timer_service.earliest_ms(), context) for context in contexts.values())
    due = [(at_ms, context) for at_ms, context in earliest if at_ms is not None and at_ms <= watermark_ms]
    return min(due, key=lambda timer: timer[0], default=None)


@dataclass(slots=True)
class Repeating:
    """The process function of the recorded cases: timers at fixed delays, repeated a few times per key."""

    delays_ms: Sequence[int]
    period_ms: int = 0
    most_repeats: int = 0
    _repeats: int = field(default=0, init=False)

    def process_element(self, record: Mapping[str, Any], context: Context) -> None:
        """Register a timer at each delay after the event, and delete those that the record lists."""
        for delay_ms in self.delays_ms:
            context.timer_service.register(wrap_int64(record["event_time_ms"] + delay_ms))
        for timestamp_ms in record["delete_timers_ms"]:
            context.timer_service.delete(timestamp_ms)

    def on_timer(self, timestamp_ms: int, context: Context) -> None:
        """Register the timer again one period later, up to the maximum number of repeats."""
        if self.period_ms and self._repeats < self.most_repeats:
            self._repeats += 1
            context.timer_service.register(wrap_int64(timestamp_ms + self.period_ms))
