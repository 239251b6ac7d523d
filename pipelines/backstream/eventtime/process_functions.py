"""Define the interface of a process function: a class of the user with state per key, timers, and outputs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from backstream.eventtime.instants import MAX_MS, MIN_MS


class ProcessFunction(Protocol):
    """A class of the user that is called per record and per firing timer.

    Each key has its own instance, so its attributes are state of that key. A class without timers needs no
    `on_timer`.
    """

    def process_element(self, record: Mapping[str, Any], context: Context) -> None:
        """Process a record of the key, a mapping from column to value."""

    def on_timer(self, timestamp_ms: int, context: Context) -> None:
        """Process a firing timer of the key."""


@dataclass(slots=True)
class TimerService:
    """The pending timers of one key, and the watermark."""

    pending: set[int] = field(default_factory=set)
    current_watermark_ms: int = MIN_MS

    def register(self, timestamp_ms: int) -> None:
        """Register an event-time timer; a pending one is unchanged."""
        self.pending.add(_require_timestamp(timestamp_ms))

    def delete(self, timestamp_ms: int) -> None:
        """Delete a timer if it is pending."""
        self.pending.discard(timestamp_ms)

    def earliest_ms(self) -> int | None:
        """Return the earliest pending timer; None: there is none."""
        return min(self.pending, default=None)


class Emitted(NamedTuple):
    """A row that a process function emitted; `tag` is that of a side output, None for a row to publish."""

    timestamp_ms: int
    tag: str | None
    row: Mapping[str, Any]


@dataclass(slots=True)
class Context:
    """The interface of a process function to the engine; it is the same object in all calls of a key.

    `timestamp_ms` is the event time of the record, or that of the timer. `columns` are the allowed columns of a
    row; None: all.
    """

    key: Hashable
    timer_service: TimerService = field(default_factory=TimerService)
    state: dict[str, Any] = field(default_factory=dict)
    columns: frozenset[str] | None = None
    timestamp_ms: int = MIN_MS
    emitted: list[Emitted] = field(default_factory=list)

    @property
    def current_watermark_ms(self) -> int:
        """The watermark that is in force."""
        return self.timer_service.current_watermark_ms

    def emit(self, row: Mapping[str, Any], timestamp_ms: int | None = None) -> None:
        """Emit a row to publish, with the time of the record or timer, or with another one.

        Columns that the row lacks are null.

        Raises:
            ValueError: when the row has a column that the definition does not declare.
        """
        unknown = sorted(set(row) - self.columns) if self.columns is not None else []
        if unknown:
            msg = f"process.columns does not declare {unknown[0]!r}"
            raise ValueError(msg)
        at_ms = self.timestamp_ms if timestamp_ms is None else _require_timestamp(timestamp_ms)
        self.emitted.append(Emitted(at_ms, None, dict(row)))

    def output(self, tag: str, row: Mapping[str, Any]) -> None:
        """Emit a row to the side output with this tag."""
        self.emitted.append(Emitted(self.timestamp_ms, tag, dict(row)))


def _require_timestamp(timestamp_ms: int) -> int:
    if type(timestamp_ms) is not int or not MIN_MS <= timestamp_ms <= MAX_MS:
        msg = f"a timestamp must be a 64-bit int in milliseconds, got {timestamp_ms!r}"
        raise ValueError(msg)
    return timestamp_ms
