"""Watermark generators: what one partition claims about the events it has yet to deliver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from backstream.core.errors import SpecError
from backstream.core.instants import MIN_MS, wrapped
from backstream.core.records import Record


class StrategyKind(StrEnum):
    """How watermarks follow from events."""

    NONE = "none"
    MONOTONOUS = "monotonous"
    BOUNDED = "bounded_out_of_orderness"
    PUNCTUATED = "punctuated"
    TIME_LAG = "time_lag"


@dataclass(frozen=True, slots=True)
class Strategy:
    """A generator and how it is run. `idle_timeout_ms` 0: a silent partition is never idle."""

    kind: StrategyKind
    delay_ms: int = 0
    interval_ms: int = 200
    idle_timeout_ms: int = 0

    def __post_init__(self) -> None:
        for name in ("delay_ms", "interval_ms", "idle_timeout_ms"):
            value_ms = getattr(self, name)
            if value_ms < 0:
                msg = f"watermark {name.removesuffix('_ms')} must not be negative, got {value_ms} ms"
                raise SpecError(msg)


class Generator(Protocol):
    """Flink's two hooks. Each returns a watermark to emit, or None; a lower one than before has no effect."""

    def on_event(self, record: Record) -> int | None:
        """Called after each record was handed on, so a record is never late by its own watermark."""

    def on_periodic_emit(self, now_ms: int) -> int | None:
        """Called at each tick of the clock."""


@dataclass(slots=True)
class Bounded:
    """`max(event time) - delay - 1`: later ones may still come with the greatest time seen minus the delay."""

    delay_ms: int
    _max_ms: int = MIN_MS

    def __post_init__(self) -> None:
        self._max_ms = MIN_MS + self.delay_ms + 1  # so that the first watermark does not wrap below -inf

    def on_event(self, record: Record) -> None:
        """Remember the greatest event time."""
        self._max_ms = max(self._max_ms, record.event_time_ms)

    def on_periodic_emit(self, now_ms: int) -> int | None:
        """Emit it, less the delay."""
        return self._max_ms - self.delay_ms - 1


@dataclass(slots=True)
class Punctuated:
    """The watermark a marker record carries, right after that record; no -1 is taken off."""

    delay_ms: int

    def on_event(self, record: Record) -> int | None:
        """Emit what the marker says."""
        if record.marker is None or record.marker is False:
            return None
        if record.marker is True:
            return wrapped(record.event_time_ms - self.delay_ms)
        return record.marker

    def on_periodic_emit(self, now_ms: int) -> None:
        """Nothing."""


@dataclass(slots=True)
class TimeLag:
    """The source's clock less the delay, whatever the events say."""

    delay_ms: int

    def on_event(self, record: Record) -> None:
        """Nothing."""

    def on_periodic_emit(self, now_ms: int) -> int | None:
        """Emit the clock, less the delay."""
        return now_ms - self.delay_ms


@dataclass(slots=True)
class Silent:
    """No watermark but the final one."""

    def on_event(self, record: Record) -> None:
        """Nothing."""

    def on_periodic_emit(self, now_ms: int) -> None:
        """Nothing."""


def generator_factory(strategy: Strategy) -> Callable[[], Generator]:
    """What makes a new generator for each partition."""
    kinds: dict[StrategyKind, Callable[[], Generator]] = {
        StrategyKind.NONE: Silent,
        StrategyKind.MONOTONOUS: lambda: Bounded(0),
        StrategyKind.BOUNDED: lambda: Bounded(strategy.delay_ms),
        StrategyKind.PUNCTUATED: lambda: Punctuated(strategy.delay_ms),
        StrategyKind.TIME_LAG: lambda: TimeLag(strategy.delay_ms),
    }
    return kinds[strategy.kind]
