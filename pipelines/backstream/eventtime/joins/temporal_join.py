"""Join each record with the version that was valid at its event time: `FOR SYSTEM_TIME AS OF` of Flink SQL."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from backstream.eventtime.joins.rule import JoinRule, Side, SideRecord, emit_pair
from backstream.eventtime.process_functions import Context


@dataclass(slots=True)
class TemporalJoin(JoinRule):
    """The temporal join of Flink SQL: no record is late, but the version of a late record may have been removed.

    The right side has versions, and a version replaces an earlier one of its key and time. A left record waits for
    the first watermark that reaches its event time. When the timer of a key fires, of the versions that the
    watermark has reached only the newest stays.
    """

    waiting: list[SideRecord] = field(default_factory=list)
    versions: dict[int, SideRecord] = field(default_factory=dict)
    timer_ms: int | None = None
    """The only timer of the key."""

    def on_record(self, record: SideRecord, context: Context) -> None:
        """Store a record, and set the timer unless an earlier one is set."""
        if record.side is Side.LEFT:
            self.waiting.append(record)
        else:
            self.versions[record.time_ms] = record
        self._set_timer(record.time_ms, context)

    def on_timer(self, timestamp_ms: int, context: Context) -> None:
        """Join the left records that the watermark has reached, then remove old versions."""
        self.timer_ms, now_ms, times_ms = None, context.current_watermark_ms, sorted(self.versions)
        for record in self.waiting:
            if record.time_ms <= now_ms:
                self._join(record, times_ms, context)
        self.waiting = [record for record in self.waiting if record.time_ms > now_ms]
        for time_ms in times_ms[: max(0, bisect_right(times_ms, now_ms) - 1)]:
            del self.versions[time_ms]
        if self.waiting:
            self._set_timer(min(record.time_ms for record in self.waiting), context)

    def _join(self, record: SideRecord, times_ms: list[int], context: Context) -> None:
        place = bisect_right(times_ms, record.time_ms) - 1
        version = self.versions[times_ms[place]] if place >= 0 else None
        if version and not self.is_pair(record, version):
            version = None
        if version or Side.LEFT.is_kept_by(self.join_type):
            emit_pair(context, record, version, record.time_ms)

    def _set_timer(self, at_ms: int, context: Context) -> None:
        if self.timer_ms is None or at_ms < self.timer_ms:
            if self.timer_ms is not None:
                context.timer_service.delete(self.timer_ms)
            self.timer_ms = at_ms
            context.timer_service.register(at_ms)
