"""Run records through the window operator by the plainest algorithm: panes that fire, and the fate of records.

The rules are those of Flink's `WindowOperator` with the default event-time trigger. A window fires when the
watermark reaches its last millisecond, and again with each late record until its state is removed. The state is
removed when the watermark reaches that millisecond plus the allowed lateness. Panes accumulate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from backstream.errors import PlanError, SpecError
from backstream.eventtime.instants import MAX_MS, MIN_MS, wrap_int64
from backstream.eventtime.records import Fate, Record
from backstream.eventtime.stream_state import OpenWindow
from backstream.eventtime.watermarks import Watermarks
from backstream.eventtime.windows import Session, TimeWindow, WindowSpec


class PaneTiming(StrEnum):
    """The reason for a firing: the watermark, or a late record."""

    ON_TIME = "on_time"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class Pane:
    """One firing of a window.

    `records` are numbers of records, ascending. `by` is the number of the watermark or of the late record that
    caused it, `after` that of the last record before it.
    """

    key: Hashable
    window: TimeWindow
    records: tuple[int, ...]
    watermark_ms: int
    timing: PaneTiming
    by: int
    after: int


@dataclass(slots=True)
class WindowResults:
    """All panes in order, the fate of each record, and the numbers of records in the side output."""

    panes: list[Pane] = field(default_factory=list)
    fates: list[Fate] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    expired: list[tuple[int, TimeWindow]] = field(default_factory=list)
    """Records with each window that no longer accepted them although a later window did."""


@dataclass(slots=True)
class _WindowState:
    """The records of a window, whether its on-time firing is still to come, and its number of firings."""

    records: list[int]
    is_pending: bool
    firings: int = 0


@dataclass(slots=True)
class WindowOperator:
    """The windows of all keys. An operator that is restored from the windows at a cut continues from there.

    The event times of records are local with a `spec` in local time; watermarks are always instants.
    """

    spec: WindowSpec
    allowed_lateness_ms: int
    watermark_ms: int = MIN_MS
    state: dict[Hashable, dict[TimeWindow, _WindowState]] = field(default_factory=dict)
    results: WindowResults = field(default_factory=WindowResults)

    def run(self, records: Sequence[Record], watermarks: Watermarks) -> WindowResults:
        """Process records and watermarks in the order of their arrival, and return all results so far.

        Args:
            records: the next records.
            watermarks: the watermarks of these records only.

        Raises:
            SpecError: when an event time means `no timestamp`.
            PlanError: when the lateness overflows in a merge of sessions, as it does in Flink.
        """
        events = deque(enumerate(watermarks.events, watermarks.events_before))
        first = watermarks.records_before
        for number in range(first - 1, first + len(records)):
            if number >= first:
                self.on_record(number, records[number - first])
            while events and events[0][1].after == number:
                by, event = events.popleft()
                self.on_watermark(event.watermark_ms, by, event.after)
        return self.results

    def snapshot(self) -> list[OpenWindow]:
        """Return all windows whose state is not removed."""
        return [
            OpenWindow(key, *window, tuple(sorted(state.records)), state.is_pending, state.firings)
            for key, windows in self.state.items()
            for window, state in windows.items()
        ]

    def restore(self, windows: Iterable[OpenWindow], watermark_ms: int) -> None:
        """Continue from the windows at a cut, and the watermark there."""
        self.watermark_ms = watermark_ms
        for window in windows:
            state = _WindowState(list(window.records), window.is_pending, window.firings)
            self.state.setdefault(window.key, {})[TimeWindow(window.start_ms, window.end_ms)] = state

    def cleanup_ms(self, window: TimeWindow) -> int:
        """Return the watermark that removes the state: that of the firing plus lateness, +inf on overflow."""
        trigger_ms = self._trigger_ms(window)
        cleanup = wrap_int64(trigger_ms + self.allowed_lateness_ms)
        return cleanup if cleanup >= trigger_ms else MAX_MS

    def _trigger_ms(self, window: TimeWindow) -> int:
        return self.spec.trigger_ms(window.end_ms)

    def on_watermark(self, watermark_ms: int, by: int, after: int) -> None:
        """Fire pending windows in the order of their ends, then remove expired state."""
        self.watermark_ms = watermark_ms
        due = [
            (trigger_ms, window.end_ms, key, window)
            for key, windows in self.state.items()
            for window, state in windows.items()
            if state.is_pending and (trigger_ms := self._trigger_ms(window)) <= watermark_ms
        ]
        for _, _, key, window in sorted(due, key=lambda firing: firing[:2]):
            self.state[key][window].is_pending = False
            self._fire(key, window, PaneTiming.ON_TIME, by, after)
        for windows in self.state.values():
            for window in [window for window in windows if self.cleanup_ms(window) <= watermark_ms]:
                del windows[window]

    def on_record(self, number: int, record: Record) -> None:
        """Add the record to each of its windows that still has state; late windows fire at once.

        A filtered record has moved the watermark, and comes no further.
        """
        if record.is_filtered:
            self.results.fates.append(Fate.FILTERED)
            return
        windows = self.spec.assign(record.event_time_ms)
        accepting = [window for window in windows if self._add(number, record.key, window)]
        self.results.fates.append(self._fate(number, record, windows, accepting))
        if accepting:
            self.results.expired += [(number, window) for window in windows if window not in accepting]

    def _add(self, number: int, key: Hashable, window: TimeWindow) -> bool:
        """Add a record to a window and return whether the window accepts it."""
        windows = self.state.setdefault(key, {})
        if isinstance(self.spec, Session):
            if self.spec.emitted_until is not None and self.cleanup_ms(window) <= self.watermark_ms:
                return False
            window = self._merge_session(key, window)
        if self.cleanup_ms(window) <= self.watermark_ms:
            windows.pop(window, None)
            return False
        state = windows.setdefault(window, _WindowState([], is_pending=False))
        state.records.append(number)
        if self._trigger_ms(window) > self.watermark_ms:
            state.is_pending = True
        else:
            self._fire(key, window, PaneTiming.LATE, number, number)
        return True

    def _merge_session(self, key: Hashable, window: TimeWindow) -> TimeWindow:
        """Merge the record's own session with all that it touches, and return the result."""
        windows = self.state[key]
        touched = [
            other for other in windows if other.start_ms <= window.end_ms and other.end_ms >= window.start_ms
        ]
        merged = TimeWindow(
            min(other.start_ms for other in [window, *touched]), max(other.end_ms for other in [window, *touched])
        )
        if not touched or touched == [merged]:
            return merged
        # Flink adds without saturation here, so that a lateness near the limit fails the job.
        trigger_ms = self._trigger_ms(merged)
        if wrap_int64(trigger_ms + self.allowed_lateness_ms) <= self.watermark_ms:
            msg = (
                "session cannot merge to end before the watermark: lateness overflows\n"
                f"  session {merged.start_ms} to {merged.end_ms} ms\n"
                f"  watermark {self.watermark_ms} ms, allowed lateness {self.allowed_lateness_ms} ms"
            )
            raise PlanError(msg)
        records = sorted(number for other in touched for number in windows.pop(other).records)
        windows[merged] = _WindowState(records, is_pending=trigger_ms > self.watermark_ms)
        return merged

    def _fate(
        self, number: int, record: Record, windows: Sequence[TimeWindow], accepting: Sequence[TimeWindow]
    ) -> Fate:
        latest = max(windows, key=lambda window: window.end_ms, default=None)
        if latest in accepting:
            is_late = any(pane.by == number for pane in self._late_panes_of(number, latest))
            return Fate.LATE if is_late else Fate.ON_TIME
        if accepting:
            return Fate.LATE
        trigger_ms = self.spec.trigger_ms(record.event_time_ms + 1)
        # SQL drops a record if its windows have expired; the DataStream API compares the record's own time.
        is_expired = bool(windows) and self.spec.zone is not None
        if is_expired or wrap_int64(trigger_ms + self.allowed_lateness_ms) <= self.watermark_ms:
            self.results.dropped.append(number)
            return Fate.DROPPED
        return Fate.UNASSIGNED

    def _late_panes_of(self, number: int, window: TimeWindow | None) -> list[Pane]:
        """Return the late panes of this window that the current record caused."""
        panes = []
        for pane in reversed(self.results.panes):
            if pane.timing is not PaneTiming.LATE or pane.by != number:
                break
            if isinstance(self.spec, Session) or pane.window == window:
                panes.append(pane)
        return panes

    def _fire(self, key: Hashable, window: TimeWindow, timing: PaneTiming, by: int, after: int) -> None:
        state = self.state[key][window]
        records = tuple(sorted(state.records))
        state.firings += 1
        self.results.panes.append(Pane(key, window, records, self.watermark_ms, timing, by, after))


def fire_windows(
    records: Sequence[Record], watermarks: Watermarks, window: WindowSpec, allowed_lateness_ms: int
) -> WindowResults:
    """Run records and watermarks through the window operator, in the order of their arrival.

    Raises:
        SpecError: when the lateness is negative, or an event time means `no timestamp`.
        PlanError: when the lateness overflows in a merge of sessions, as it does in Flink.
    """
    if allowed_lateness_ms < 0:
        msg = f"allowed lateness must not be negative, got {allowed_lateness_ms} ms"
        raise SpecError(msg)
    return WindowOperator(window, allowed_lateness_ms).run(records, watermarks)
