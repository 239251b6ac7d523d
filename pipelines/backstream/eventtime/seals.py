"""Determine from arrival times whether more events can arrive for a day; the current time has no influence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from backstream.eventtime.instants import DAY_MS, instant_text
from backstream.eventtime.time_zones import TimeZone
from backstream.eventtime.union import complete_partitions, source_name


class Seal(StrEnum):
    """The seal of one day of event time."""

    SEALED = "sealed"
    """Every expected partition delivered a record that arrived after the horizon of the day."""
    EMPTY = "empty"
    """The day is sealed and has no event."""
    OPEN = "open"
    """No partition delivered a record after the horizon yet: events may still arrive."""
    PARTIAL = "partial"
    """Some partitions delivered a record after the horizon, others did not: their events may still arrive."""

    @property
    def is_final(self) -> bool:
        """Return whether no more events can arrive for the day."""
        return self in (Seal.SEALED, Seal.EMPTY)


@dataclass(frozen=True, slots=True)
class Delivery:
    """The events of one partition and day, with the last arrival among them."""

    partition: str
    day_ms: int
    events: int
    last_arrival_ms: int


@dataclass(frozen=True, slots=True)
class DaySeal:
    """A day with its seal, and the reason if the seal is not final."""

    day_ms: int
    seal: Seal
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SealRule:
    """The conditions for a seal: maximum arrival delay, expected partitions, and idle timeout.

    `horizon_ms` is the maximum time from the event to its arrival. `partitions` None: those that were observed.
    `idle_timeout_ms` 0: a partition without records never becomes idle. In a union, `idle_timeouts_ms` has the
    timeout by name of the source. With a `zone`, days are those of its local time.
    """

    horizon_ms: int
    partitions: tuple[str, ...] | None = None
    idle_timeout_ms: int = 0
    idle_timeouts_ms: Mapping[str, int] = field(default_factory=dict)
    zone: TimeZone | None = None

    def idle_timeout_of(self, partition: str) -> int:
        """Return the idle timeout of a partition."""
        return self.idle_timeouts_ms.get(source_name(partition), self.idle_timeout_ms)


def seal_days(days: Sequence[int], deliveries: Iterable[Delivery], rule: SealRule) -> list[DaySeal]:
    """Return the seal of each day; `days` are in ms."""
    last_ms: dict[str, int] = {}
    days_with_events: set[int] = set()
    for delivery in deliveries:
        last_ms[delivery.partition] = max(
            delivery.last_arrival_ms, last_ms.get(delivery.partition, delivery.last_arrival_ms)
        )
        days_with_events |= {delivery.day_ms} if delivery.events else set()
    expected = complete_partitions(rule.idle_timeouts_ms, last_ms) if rule.partitions is None else rule.partitions
    return [_seal_day(day_ms, last_ms, expected, rule, has_events=day_ms in days_with_events) for day_ms in days]


def _seal_day(
    day_ms: int, last_ms: dict[str, int], expected: Sequence[str], rule: SealRule, *, has_events: bool
) -> DaySeal:
    end_ms = day_ms + DAY_MS
    bound_ms = (rule.zone.end_ms(end_ms) if rule.zone else end_ms) + rule.horizon_ms
    newest_ms = max(last_ms.values(), default=None)
    behind = [
        name
        for name in expected
        if not _has_passed(last_ms.get(name), newest_ms, bound_ms, rule.idle_timeout_of(name))
    ]
    if newest_ms is not None and not behind:
        return DaySeal(day_ms, Seal.SEALED if has_events else Seal.EMPTY)
    of_partitions = f" of {', '.join(behind)}" if behind else ""
    seal = Seal.PARTIAL if newest_ms is not None and newest_ms > bound_ms else Seal.OPEN
    return DaySeal(day_ms, seal, f"no arrival{of_partitions} after {instant_text(bound_ms)}")


def _has_passed(last_ms: int | None, newest_ms: int | None, bound_ms: int, idle_timeout_ms: int) -> bool:
    """Return whether a partition delivered after the bound, or is idle while others delivered after it."""
    if last_ms is None or newest_ms is None:
        return False
    is_idle = 0 < idle_timeout_ms <= newest_ms - last_ms
    return last_ms > bound_ms or (is_idle and newest_ms > bound_ms)
