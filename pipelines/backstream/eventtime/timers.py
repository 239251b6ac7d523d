"""Run a keyed process function with event-time timers, by the plainest algorithm: find the timers that fire.

A timer is identified by its key and timestamp. Registering a pending timer again has no effect. A timer fires at
the first watermark after its registration that reaches it. So a timer in the past fires at the next watermark,
whatever its value. Timers that `on_timer` registers within reach of the current watermark fire with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from backstream.eventtime.process_functions import Context, Emitted, ProcessFunction
from backstream.eventtime.records import Record
from backstream.eventtime.stream_state import ProcessState, read_attributes, require_json, write_attributes
from backstream.eventtime.watermarks import WatermarkEvent, Watermarks


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


@dataclass(slots=True)
class ProcessOperator:
    """One process function per key. An operator that is restored from the state at a cut continues from there."""

    new_function: Callable[[], ProcessFunction]
    fields: Callable[[Record], Mapping[str, Any]] = record_fields
    functions: dict[Hashable, ProcessFunction] = field(default_factory=dict)
    contexts: dict[Hashable, Context] = field(default_factory=dict)
    firings: list[TimerFiring] = field(default_factory=list)

    def run(self, records: Sequence[Record], watermarks: Watermarks) -> ProcessResults:
        """Process records and watermarks in the order of their arrival, and return all results so far.

        Args:
            records: the next records.
            watermarks: the watermarks of these records only.
        """
        events = deque(enumerate(watermarks.events, watermarks.events_before))
        first = watermarks.records_before
        for number in range(first - 1, first + len(records)):
            if number >= first:
                self._process(records[number - first], watermarks.in_force_ms[number - first])
            while events and events[0][1].after == number:
                by, event = events.popleft()
                self._fire_timers(event, by)
        return ProcessResults(self.firings, {key: context.emitted for key, context in self.contexts.items()})

    def snapshot(self) -> list[ProcessState]:
        """Return the state of each key.

        Raises:
            SpecError: when JSON cannot hold a value of the state.
        """
        states = []
        for key, context in self.contexts.items():
            require_json(context.state, f"context.state of key {key!r}")
            attributes = read_attributes(self.functions[key], "process function")
            timers_ms = tuple(sorted(context.timer_service.pending))
            states.append(ProcessState(key, timers_ms, dict(context.state), attributes))
        return states

    def restore(self, states: Iterable[ProcessState]) -> None:
        """Continue from the state of each key at a cut."""
        for state in states:
            function, context = self._add_key(state.key)
            context.timer_service.pending |= set(state.timers_ms)
            context.state |= state.state
            write_attributes(function, state.function)

    def _add_key(self, key: Hashable) -> tuple[ProcessFunction, Context]:
        self.functions[key], self.contexts[key] = self.new_function(), Context(key)
        return self.functions[key], self.contexts[key]

    def _process(self, record: Record, watermark_ms: int) -> None:
        if record.key not in self.functions:
            self._add_key(record.key)
        context = self.contexts[record.key]
        context.timestamp_ms = record.event_time_ms
        context.timer_service.current_watermark_ms = watermark_ms
        self.functions[record.key].process_element(self.fields(record), context)

    def _fire_timers(self, event: WatermarkEvent, by: int) -> None:
        while due := _next_due(self.contexts, event.watermark_ms):
            timestamp_ms, context = due
            context.timer_service.delete(timestamp_ms)
            context.timestamp_ms = timestamp_ms
            context.timer_service.current_watermark_ms = event.watermark_ms
            self.firings.append(TimerFiring(context.key, timestamp_ms, event.watermark_ms, by, event.after))
            self.functions[context.key].on_timer(timestamp_ms, context)


def _next_due(contexts: Mapping[Hashable, Context], watermark_ms: int) -> tuple[int, Context] | None:
    """Return the earliest pending timer that the watermark reaches, with the context of its key."""
    earliest = ((context.timer_service.earliest_ms(), context) for context in contexts.values())
    due = [(at_ms, context) for at_ms, context in earliest if at_ms is not None and at_ms <= watermark_ms]
    return min(due, key=lambda timer: timer[0], default=None)
