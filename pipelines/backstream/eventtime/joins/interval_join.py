"""Join records of a key whose event times are near: `intervalJoin` of the DataStream API, and that of Flink SQL.

A pair meets `lower <= right - left <= upper`. The reach of a left record is `upper`, that of a right one `-lower`.
A record waits for partners until the watermark has passed its event time plus its reach.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from backstream.eventtime.instants import MAX_MS
from backstream.eventtime.joins.rule import JoinRule, Side, SideRecord, drop_record, emit_pair
from backstream.eventtime.process_functions import Context


@dataclass(frozen=True, slots=True)
class JoinBounds:
    """The inclusive bounds of the right event time minus the left one; an exclusive bound is moved by 1 ms."""

    lower_ms: int
    upper_ms: int

    def reach_ms(self, side: Side) -> int:
        """Return the largest distance of a later partner; negative if all partners are earlier."""
        return self.upper_ms if side is Side.LEFT else -self.lower_ms

    def are_met(self, record: SideRecord, other: SideRecord) -> bool:
        """Return whether the bounds hold between two records of different sides."""
        first_ms = record.time_ms - self.reach_ms(record.side.other)
        return first_ms <= other.time_ms <= record.time_ms + self.reach_ms(record.side)


@dataclass(slots=True)
class IntervalJoin(JoinRule):
    """`intervalJoin` of the DataStream API: late records are dropped, and pairs are emitted at once."""

    bounds: JoinBounds = JoinBounds(0, 0)
    stored: tuple[list[SideRecord], list[SideRecord]] = field(default_factory=lambda: ([], []))

    def on_record(self, record: SideRecord, context: Context) -> None:
        """Pair a record with the stored ones of the other side, unless it is behind the watermark."""
        if record.time_ms < context.current_watermark_ms:
            drop_record(context, record)
            return
        self.stored[record.side].append(record)
        context.timer_service.register(self._removal_ms(record))
        for other in self.stored[record.side.other]:
            if self.bounds.are_met(record, other) and self.is_pair(record, other):
                emit_pair(context, record, other, max(record.time_ms, other.time_ms))

    def on_timer(self, timestamp_ms: int, context: Context) -> None:
        """Remove the records that the watermark has passed, with their reach."""
        for records in self.stored:
            records[:] = [record for record in records if self._removal_ms(record) > timestamp_ms]

    def _removal_ms(self, record: SideRecord) -> int:
        return record.time_ms + max(0, self.bounds.reach_ms(record.side))


@dataclass(slots=True)
class _Waiting:
    """A record that waits for partners, and whether it has had one."""

    record: SideRecord
    is_paired: bool = False


@dataclass(slots=True)
class SqlIntervalJoin(JoinRule):
    """The interval join of Flink SQL: late records are not dropped, and null rows come when a record is removed.

    `expired_ms` is the time up to which a side was removed. In Flink, all keys of a subtask share these numbers.
    So in a rare corner, a record of one key decides whether records of another one meet, and a higher parallelism
    changes pairs. A run has numbers for each key, which no parallelism changes.
    """

    bounds: JoinBounds = JoinBounds(0, 0)
    waiting: tuple[list[_Waiting], list[_Waiting]] = field(default_factory=lambda: ([], []))
    timers_ms: dict[Side, int] = field(default_factory=dict)
    expired_ms: dict[Side, int] = field(default_factory=dict)

    def on_record(self, record: SideRecord, context: Context) -> None:
        """Pair a record with all that still wait on the other side, then remove those that have expired."""
        side, now_ms, own = record.side, _now_ms(context), _Waiting(record)
        last_partner_ms = record.time_ms + self.bounds.reach_ms(side)
        if self.expired_ms.get(side.other, 0) < last_partner_ms:
            self.expired_ms[side.other] = now_ms - self.bounds.reach_ms(side.other) - 1
            for other in self.waiting[side.other]:
                if self.bounds.are_met(record, other.record) and self.is_pair(record, other.record):
                    own.is_paired = other.is_paired = True
                    emit_pair(context, record, other.record, max(record.time_ms, other.record.time_ms))
            self._remove_expired(side.other, context)
        if now_ms < last_partner_ms:
            self.waiting[side].append(own)
            if side not in self.timers_ms:
                self._set_timer(side, record.time_ms, context)
        elif not own.is_paired and side.is_kept_by(self.join_type):
            emit_pair(context, record, None, record.time_ms)

    def on_timer(self, timestamp_ms: int, context: Context) -> None:
        """Remove what has expired on a side, and set the timer for the earliest record of the rest."""
        for side in Side:
            if self.timers_ms.get(side) != timestamp_ms:
                continue
            del self.timers_ms[side]
            is_end = context.current_watermark_ms == MAX_MS
            self.expired_ms[side] = MAX_MS if is_end else _now_ms(context) - self.bounds.reach_ms(side) - 1
            self._remove_expired(side, context)
            earliest_ms = min((row.record.time_ms for row in self.waiting[side]), default=0)
            if earliest_ms > 0:
                self._set_timer(side, earliest_ms, context)
            else:
                self.waiting[side].clear()  # times before 1970 vanish without a null row, as in Flink

    def _set_timer(self, side: Side, time_ms: int, context: Context) -> None:
        self.timers_ms[side] = time_ms + self.bounds.reach_ms(side) + 1
        context.timer_service.register(self.timers_ms[side])

    def _remove_expired(self, side: Side, context: Context) -> None:
        """Remove the waiting records that have expired, with a null row for each that never had a partner."""
        expired_ms = self.expired_ms[side]
        for row in self.waiting[side]:
            if row.record.time_ms <= expired_ms and not row.is_paired and side.is_kept_by(self.join_type):
                emit_pair(context, row.record, None, row.record.time_ms)
        self.waiting[side][:] = [row for row in self.waiting[side] if row.record.time_ms > expired_ms]


def _now_ms(context: Context) -> int:
    """Return the watermark as the operator of SQL uses it: never before 1970."""
    return max(context.current_watermark_ms, 0)
