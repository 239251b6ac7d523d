"""Define the process function of the recorded cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backstream.eventtime.instants import wrap_int64
from backstream.eventtime.process_functions import Context


@dataclass(slots=True)
class RepeatingTimers:
    """Timers at fixed delays, repeated a few times per key; each one that fires emits the watermark."""

    delays_ms: Sequence[int]
    period_ms: int = 0
    most_repeats: int = 0
    repeats: int = field(default=0, init=False)

    def process_element(self, record: Mapping[str, Any], context: Context) -> None:
        """Register a timer at each delay after the event, and delete those that the record lists."""
        for delay_ms in self.delays_ms:
            context.timer_service.register(wrap_int64(context.timestamp_ms + delay_ms))
        for timestamp_ms in record["delete_timers_ms"]:
            context.timer_service.delete(timestamp_ms)

    def on_timer(self, timestamp_ms: int, context: Context) -> None:
        """Emit the watermark, and register the timer one period later, up to the maximum number of repeats."""
        context.emit({"watermark_ms": context.current_watermark_ms})
        if self.period_ms and self.repeats < self.most_repeats:
            self.repeats += 1
            context.timer_service.register(wrap_int64(timestamp_ms + self.period_ms))

    def snapshot_state(self) -> dict[str, int]:
        """Return the number of repetitions so far."""
        return {"repeats": self.repeats}

    def restore_state(self, state: Mapping[str, int]) -> None:
        """Restore the number of repetitions."""
        self.repeats = state["repeats"]
