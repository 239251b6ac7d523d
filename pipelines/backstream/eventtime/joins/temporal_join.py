"""Join each record with the version that was valid at its event time: `FOR SYSTEM_TIME AS OF` of Flink SQL."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable
from dataclasses import dataclass, field

from backstream.eventtime.joins.operator import JoinOperator, Side
from backstream.eventtime.records import Record
from backstream.eventtime.watermarks import WatermarkEvent


@dataclass(slots=True)
class _Key:
    """The left records of a key that wait, its versions by time, and its only timer."""

    waiting: list[int] = field(default_factory=list)
    versions: dict[int, int] = field(default_factory=dict)
    timer_ms: int | None = None

    def set_timer(self, at_ms: int) -> None:
        """Set the timer, unless an earlier one is set."""
        self.timer_ms = at_ms if self.timer_ms is None else min(at_ms, self.timer_ms)


@dataclass(slots=True)
class TemporalJoin(JoinOperator):
    """The temporal join of Flink SQL: no record is late, but the version of a late record may have been removed.

    The right side has versions, and a version replaces an earlier one of its key and time. A left record waits for
    the first watermark that reaches its event time. When the timer of a key fires, of the versions that the
    watermark has reached only the newest stays.
    """

    keys: dict[Hashable, _Key] = field(default_factory=dict)

    def on_record(self, number: int, record: Record, side: Side) -> None:
        """Store a record, and set the timer of its key."""
        key = self.keys.setdefault(record.key, _Key())
        if side is Side.LEFT:
            key.waiting.append(number)
        else:
            key.versions[record.event_time_ms] = number
        key.set_timer(record.event_time_ms)

    def on_watermark(self, by: int, event: WatermarkEvent) -> None:
        """Join the left records that the watermark has reached, then remove old versions."""
        for key in self.keys.values():
            if key.timer_ms is not None and key.timer_ms <= event.watermark_ms:
                key.timer_ms = None
                self._join(key, event.watermark_ms, by)

    def _join(self, key: _Key, watermark_ms: int, by: int) -> None:
        times_ms = sorted(key.versions)
        due = [number for number in key.waiting if self.records[number].event_time_ms <= watermark_ms]
        for number in due:
            place = bisect_right(times_ms, self.records[number].event_time_ms) - 1
            version = key.versions[times_ms[place]] if place >= 0 else None
            if version is not None and self.is_pair(number, version, Side.LEFT):
                self.emit(number, version, Side.LEFT, by, is_by_record=False)
            elif Side.LEFT.is_kept_by(self.join_type):
                self.emit(number, None, Side.LEFT, by, is_by_record=False)
        key.waiting = [number for number in key.waiting if number not in set(due)]
        for time_ms in times_ms[: max(0, bisect_right(times_ms, watermark_ms) - 1)]:
            del key.versions[time_ms]
        if key.waiting:
            key.set_timer(min(self.records[number].event_time_ms for number in key.waiting))
