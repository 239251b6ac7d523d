"""Run the process function of one key: the fast version of `eventtime.timers` for a single key.

A key stops only at the rises of the watermark that reach one of its timers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import numpy as np

from backstream.eventtime.instants import MIN_MS, instant_text
from backstream.eventtime.process_functions import Context, ProcessFunction, TimerService
from backstream.watermarks.timeline import Longs


@dataclass(slots=True)
class TimerQueue(TimerService):
    """Pending timers with fast access to the earliest; deleted timers stay in the heap until they are its top."""

    heap: list[int] = field(default_factory=list)

    def register(self, timestamp_ms: int) -> None:
        """Register an event-time timer; a pending one is unchanged."""
        if timestamp_ms not in self.pending:
            TimerService.register(self, timestamp_ms)
            heappush(self.heap, timestamp_ms)

    def earliest_ms(self) -> int | None:
        """Return the earliest pending timer; None: there is none."""
        while self.heap and self.heap[0] not in self.pending:
            heappop(self.heap)
        return self.heap[0] if self.heap else None


@dataclass(slots=True)
class KeyRun:
    """One key with its function and its timers.

    `rises_ms` are all rises of the watermark.
    """

    rises_ms: Longs
    function: ProcessFunction
    context: Context
    timer_ms: int | None = None
    """The timer that fires now; None while a record is processed."""

    def process_element(self, record: Mapping[str, Any], timestamp_ms: int, watermark_ms: int) -> None:
        """Fire the timers that the watermark at the arrival of a record reaches, and process the record."""
        timers = self.context.timer_service
        if timers.pending and watermark_ms > timers.current_watermark_ms:
            self._fire_until(watermark_ms)
        self.timer_ms = None
        timers.current_watermark_ms = watermark_ms
        self.context.timestamp_ms = timestamp_ms
        self.function.process_element(record, self.context)

    def finish(self) -> None:
        """Fire all timers that the remaining rises reach."""
        if len(self.rises_ms):
            self._fire_until(int(self.rises_ms[-1]))

    def place(self) -> str:
        """Return where the function failed: at a timer, or at the record with an event time."""
        kind = "record" if self.timer_ms is None else "timer"
        at_ms = self.context.timestamp_ms
        try:
            at = instant_text(at_ms)
        except (ValueError, OverflowError):
            at = f"{at_ms} ms"
        return f"at the {kind} of {at}, key {self.context.key!r}"

    def _fire_until(self, watermark_ms: int) -> None:
        """Fire the timers that the rises up to this watermark reach."""
        timers = self.context.timer_service
        while (earliest_ms := timers.earliest_ms()) is not None and earliest_ms <= watermark_ms:
            passed = _count_rises_until(self.rises_ms, timers.current_watermark_ms)
            rise = max(passed, int(np.searchsorted(self.rises_ms, earliest_ms, side="left")))
            if rise >= len(self.rises_ms) or self.rises_ms[rise] > watermark_ms:
                break
            self._fire_at(rise)

    def _fire_at(self, rise: int) -> None:
        timers, watermark_ms = self.context.timer_service, int(self.rises_ms[rise])
        timers.current_watermark_ms = watermark_ms
        while (due_ms := timers.earliest_ms()) is not None and due_ms <= watermark_ms:
            timers.delete(due_ms)
            self.timer_ms = self.context.timestamp_ms = due_ms
            self.function.on_timer(due_ms, self.context)


def _count_rises_until(rises_ms: Longs, watermark_ms: int) -> int:
    """Return the number of rises up to a watermark; -inf is before all of them."""
    return 0 if watermark_ms == MIN_MS else int(np.searchsorted(rises_ms, watermark_ms, side="right"))
