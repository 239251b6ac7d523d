"""The window operator, slow and obvious: which records each window fires with, and which are dropped.

Flink's `WindowOperator` with the default event-time trigger: a window fires when the watermark reaches its
last millisecond, again with each late record while it is kept, and is gone once the watermark reaches that
millisecond plus the allowed lateness. Panes accumulate.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from backstream.errors import PlanError, SpecError
from backstream.eventtime.instants import MAX_MS, MIN_MS, wrap_int64
from backstream.eventtime.records import Fate, Record
from backstream.eventtime.watermarks import Watermarks
from backstream.eventtime.windows import Session, TimeWindow, WindowSpec


class PaneTiming(StrEnum):
    """Why a window fired."""

    ON_TIME = "on_time"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class Pane:
    """One firing. `records` are numbers of records, ascending; `by` numbers the watermark or the late record."""

    key: Hashable
    window: TimeWindow
    records: tuple[int, ...]
    watermark_ms: int
    timing: PaneTiming
    by: int
    after: int


@dataclass(slots=True)
class WindowResults:
    """All firings in order, the fate of each record, and the numbers of those in the side output."""

    panes: list[Pane] = field(default_factory=list)
    fates: list[Fate] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    expired: list[tuple[int, TimeWindow]] = field(default_factory=list)
    """Records and the windows they missed though a later one took them."""


@dataclass(slots=True)
class _Open:
    """A window that is kept: its records, and whether it still waits for its firing."""

    records: list[int]
    is_waiting: bool


@dataclass(slots=True)
class _Operator:
    window: WindowSpec
    allowed_lateness_ms: int
    watermark_ms: int = MIN_MS
    open: dict[Hashable, dict[TimeWindow, _Open]] = field(default_factory=dict)
    result: WindowResults = field(default_factory=WindowResults)

    def cleanup_ms(self, window: TimeWindow) -> int:
        """When the window is gone: its last millisecond plus lateness, +inf when that overflows."""
        cleanup = wrap_int64(window.max_timestamp_ms + self.allowed_lateness_ms)
        return cleanup if cleanup >= window.max_timestamp_ms else MAX_MS

    def on_watermark(self, watermark_ms: int, by: int, after: int) -> None:
        """Fire what waits, by window end; then forget what is gone."""
        self.watermark_ms = watermark_ms
        due = [
            (window.max_timestamp_ms, key, window)
            for key, windows in self.open.items()
            for window, kept in windows.items()
            if kept.is_waiting and window.max_timestamp_ms <= watermark_ms
        ]
        for _, key, window in sorted(due, key=lambda each: each[0]):
            kept = self.open[key][window]
            kept.is_waiting = False
            self._fire(key, window, PaneTiming.ON_TIME, by, after)
        for windows in self.open.values():
            for window in [each for each in windows if self.cleanup_ms(each) <= watermark_ms]:
                del windows[window]

    def on_record(self, number: int, record: Record) -> None:
        """Add the record to each of its windows that is still kept; late ones fire at once."""
        windows = self.window.assign(record.event_time_ms)
        took = [window for window in windows if self._take(number, record.key, window)]
        self.result.fates.append(self._fate(number, record, windows, took))
        if took:
            self.result.expired += [(number, window) for window in windows if window not in took]

    def _take(self, number: int, key: Hashable, window: TimeWindow) -> bool:
        windows = self.open.setdefault(key, {})
        if isinstance(self.window, Session):
            window = self._merged(key, window)
        if self.cleanup_ms(window) <= self.watermark_ms:
            windows.pop(window, None)
            return False
        kept = windows.setdefault(window, _Open([], is_waiting=False))
        kept.records.append(number)
        if window.max_timestamp_ms > self.watermark_ms:
            kept.is_waiting = True
        else:
            self._fire(key, window, PaneTiming.LATE, number, number)
        return True

    def _merged(self, key: Hashable, window: TimeWindow) -> TimeWindow:
        """The session that the record's own one becomes with all it touches."""
        windows = self.open[key]
        touched = [each for each in windows if each.start_ms <= window.end_ms and each.end_ms >= window.start_ms]
        union = TimeWindow(
            min(each.start_ms for each in [window, *touched]), max(each.end_ms for each in [window, *touched])
        )
        if not touched or touched == [union]:
            return union
        # Flink adds without saturation here, so that a lateness near the limit fails the job.
        if wrap_int64(union.max_timestamp_ms + self.allowed_lateness_ms) <= self.watermark_ms:
            msg = (
                "session cannot merge to end before the watermark: lateness overflows\n"
                f"  session {union.start_ms} to {union.end_ms} ms\n"
                f"  watermark {self.watermark_ms} ms, allowed lateness {self.allowed_lateness_ms} ms"
            )
            raise PlanError(msg)
        records = sorted(number for each in touched for number in windows.pop(each).records)
        windows[union] = _Open(records, is_waiting=union.max_timestamp_ms > self.watermark_ms)
        return union

    def _fate(
        self, number: int, record: Record, windows: Sequence[TimeWindow], took: Sequence[TimeWindow]
    ) -> Fate:
        latest = max(windows, key=lambda window: window.end_ms, default=None)
        if latest in took:
            is_late = any(pane.by == number for pane in self._late_panes_of(number, latest))
            return Fate.LATE if is_late else Fate.ON_TIME
        if took:
            return Fate.LATE
        if wrap_int64(record.event_time_ms + self.allowed_lateness_ms) <= self.watermark_ms:
            self.result.dropped.append(number)
            return Fate.DROPPED
        return Fate.UNASSIGNED

    def _late_panes_of(self, number: int, window: TimeWindow | None) -> list[Pane]:
        """Late panes that this record has just caused, for its latest window."""
        found = []
        for pane in reversed(self.result.panes):
            if pane.timing is not PaneTiming.LATE or pane.by != number:
                break
            if isinstance(self.window, Session) or pane.window == window:
                found.append(pane)
        return found

    def _fire(self, key: Hashable, window: TimeWindow, timing: PaneTiming, by: int, after: int) -> None:
        records = tuple(sorted(self.open[key][window].records))
        self.result.panes.append(Pane(key, window, records, self.watermark_ms, timing, by, after))


def fire_windows(
    records: Sequence[Record], heard: Watermarks, window: WindowSpec, allowed_lateness_ms: int
) -> WindowResults:
    """Play records and watermarks, in the order they came, through the window operator.

    Raises:
        SpecError: on a negative lateness, or an event time that means `no timestamp`.
        PlanError: when the lateness overflows in a merge of sessions, as it does in Flink.
    """
    if allowed_lateness_ms < 0:
        msg = f"allowed lateness must not be negative, got {allowed_lateness_ms} ms"
        raise SpecError(msg)
    operator = _Operator(window, allowed_lateness_ms)
    events = list(enumerate(heard.events))
    position = 0
    for number in range(-1, len(records)):
        if number >= 0:
            operator.on_record(number, records[number])
        while position < len(events) and events[position][1].after == number:
            by, event = events[position]
            operator.on_watermark(event.watermark_ms, by, event.after)
            position += 1
    return operator.result
