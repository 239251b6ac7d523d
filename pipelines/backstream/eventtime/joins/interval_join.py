"""Join records of a key whose event times are near: `intervalJoin` of the DataStream API, and that of Flink SQL.

A pair meets `lower <= right - left <= upper`. The reach of a left record is `upper`, that of a right one `-lower`.
A record waits for partners until the watermark has passed its event time plus its reach.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from backstream.eventtime.instants import MAX_MS
from backstream.eventtime.joins.operator import JoinOperator, Side
from backstream.eventtime.records import Record
from backstream.eventtime.watermarks import WatermarkEvent


@dataclass(frozen=True, slots=True)
class JoinBounds:
    """The inclusive bounds of the right event time minus the left one; an exclusive bound is moved by 1 ms."""

    lower_ms: int
    upper_ms: int

    def reach_ms(self, side: Side) -> int:
        """Return the largest distance of a later partner; negative if all partners are earlier."""
        return self.upper_ms if side is Side.LEFT else -self.lower_ms

    def are_met(self, time_ms: int, other_ms: int, side: Side) -> bool:
        """Return whether the bounds hold between a record of a side and one of the other side."""
        return time_ms - self.reach_ms(side.other) <= other_ms <= time_ms + self.reach_ms(side)


@dataclass(slots=True)
class IntervalJoin(JoinOperator):
    """`intervalJoin` of the DataStream API: late records are dropped, and pairs are emitted at once."""

    bounds: JoinBounds = JoinBounds(0, 0)
    state: tuple[dict[Hashable, list[int]], dict[Hashable, list[int]]] = field(default_factory=lambda: ({}, {}))

    def on_record(self, number: int, record: Record, side: Side) -> None:
        """Pair a record with the stored ones of the other side, unless it is behind the watermark."""
        if record.event_time_ms < self.watermark_ms:
            self.dropped.append(number)
            return
        self.state[side].setdefault(record.key, []).append(number)
        for other in self.state[side.other].get(record.key, ()):
            other_ms = self.records[other].event_time_ms
            if self.bounds.are_met(record.event_time_ms, other_ms, side) and self.is_pair(number, other, side):
                self.emit(number, other, side, number, is_by_record=True)

    def on_watermark(self, by: int, event: WatermarkEvent) -> None:
        """Remove the records that the watermark has reached, with their reach."""
        for side in Side:
            reach_ms = max(0, self.bounds.reach_ms(side))
            for key, numbers in self.state[side].items():
                self.state[side][key] = [
                    number
                    for number in numbers
                    if self.records[number].event_time_ms + reach_ms > event.watermark_ms
                ]


@dataclass(slots=True)
class _Waiting:
    """A record that waits for partners, and whether it has had one."""

    number: int
    time_ms: int
    is_paired: bool


@dataclass(slots=True)
class SqlIntervalJoin(JoinOperator):
    """The interval join of Flink SQL: late records are not dropped, and null rows come when a record is removed.

    `shares_expiry`: the time up to which a side is removed is one number for all keys, as in one subtask of Flink.
    Then records of one key can decide whether those of another one meet, so a higher parallelism changes pairs.
    Otherwise each key has its own number, which no parallelism changes.
    """

    bounds: JoinBounds = JoinBounds(0, 0)
    shares_expiry: bool = True
    waiting: dict[tuple[Hashable, Side], list[_Waiting]] = field(default_factory=dict)
    timers_ms: dict[tuple[Hashable, Side], int] = field(default_factory=dict)
    expired_ms: dict[tuple[Hashable, Side], int] = field(default_factory=dict)

    def on_record(self, number: int, record: Record, side: Side) -> None:
        """Pair a record with all that still wait on the other side, then remove those that have expired."""
        key, time_ms, now_ms = record.key, record.event_time_ms, self._now_ms
        last_partner_ms = time_ms + self.bounds.reach_ms(side)
        row = _Waiting(number, time_ms, is_paired=False)
        if self._expired_ms(key, side.other) < last_partner_ms:
            expired_ms = now_ms - self.bounds.reach_ms(side.other) - 1
            self._set_expired(key, side.other, expired_ms)
            for other in self.waiting.get((key, side.other), ()):
                is_near = self.bounds.are_met(time_ms, other.time_ms, side)
                if is_near and self.is_pair(number, other.number, side):
                    row.is_paired = other.is_paired = True
                    self.emit(number, other.number, side, number, is_by_record=True)
            self._remove_expired(key, side.other, expired_ms, number, is_by_record=True)
        if now_ms < last_partner_ms:
            self.waiting.setdefault((key, side), []).append(row)
            self.timers_ms.setdefault((key, side), last_partner_ms + 1)
        elif not row.is_paired and side.is_kept_by(self.join_type):
            self.emit(number, None, side, number, is_by_record=True)

    def on_watermark(self, by: int, event: WatermarkEvent) -> None:
        """Fire the timers of keys: remove what has expired, and set the timer for the earliest of the rest."""
        due = [(at_ms, *place) for place, at_ms in self.timers_ms.items() if at_ms <= event.watermark_ms]
        for _, key, side in sorted(due, key=lambda timer: timer[0]):
            del self.timers_ms[key, side]
            reach_ms = self.bounds.reach_ms(side)
            expired_ms = MAX_MS if event.watermark_ms == MAX_MS else self._now_ms - reach_ms - 1
            self._set_expired(key, side, expired_ms)
            self._remove_expired(key, side, expired_ms, by, is_by_record=False)
            earliest_ms = min((row.time_ms for row in self.waiting[key, side]), default=0)
            if earliest_ms > 0:
                self.timers_ms[key, side] = earliest_ms + reach_ms + 1
            else:
                self.waiting[key, side].clear()  # times before 1970 vanish without a null row, as in Flink

    @property
    def _now_ms(self) -> int:
        """The watermark as the operator uses it: never before 1970."""
        return max(self.watermark_ms, 0)

    def _expired_ms(self, key: Hashable, side: Side) -> int:
        return self.expired_ms.get((None if self.shares_expiry else key, side), 0)

    def _set_expired(self, key: Hashable, side: Side, expired_ms: int) -> None:
        self.expired_ms[None if self.shares_expiry else key, side] = expired_ms

    def _remove_expired(self, key: Hashable, side: Side, expired_ms: int, by: int, *, is_by_record: bool) -> None:
        """Remove the waiting records up to a time, with a null row for each that never had a partner."""
        waiting = self.waiting.get((key, side), [])
        for row in waiting:
            if row.time_ms <= expired_ms and not row.is_paired and side.is_kept_by(self.join_type):
                self.emit(row.number, None, side, by, is_by_record=is_by_record)
        self.waiting[key, side] = [row for row in waiting if row.time_ms > expired_ms]
