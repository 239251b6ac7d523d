"""Join the records of a window and key: the window join of Flink SQL, and `coGroup` of the DataStream API.

Both are a window operator over the records of both sides. SQL has no allowed lateness, and it drops a record per
window. With `coGroup`, a late record fires its window again with all pairs. Nothing retracts the earlier ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from backstream.eventtime.joins.rule import JoinRule, Side, SideRecord, drop_record, emit_pair
from backstream.eventtime.process_functions import Context
from backstream.eventtime.records import Record
from backstream.eventtime.window_operator import WindowOperator, WindowResults
from backstream.eventtime.windows import TimeWindow, Tumbling, WindowSpec


@dataclass(slots=True)
class WindowJoin(JoinRule):
    """A window join; `drops_per_window` is the rule of SQL."""

    window: WindowSpec = field(default_factory=lambda: Tumbling(1))
    allowed_lateness_ms: int = 0
    drops_per_window: bool = False
    operator: WindowOperator = field(init=False)
    records: dict[int, SideRecord] = field(default_factory=dict)
    """The records in the state of the windows, by number."""
    seen: int = 0

    def __post_init__(self) -> None:
        self.operator = WindowOperator(self.window, self.allowed_lateness_ms)

    def on_record(self, record: SideRecord, context: Context) -> None:
        """Add a record to each of its windows that still accepts it; late windows fire at once."""
        number = self.seen
        self.seen, self.records[number] = self.seen + 1, record
        self.operator.results = WindowResults()
        self.operator.watermark_ms = context.current_watermark_ms
        self.operator.on_record(number, Record(0, record.side, None, record.time_ms))
        for window in self.window.assign(record.time_ms):
            trigger_ms = self.window.trigger_ms(window.end_ms)
            if trigger_ms > context.current_watermark_ms:
                context.timer_service.register(trigger_ms)
            self._register_cleanup(window, context)
        for _ in range(self._count_drops(record)):
            drop_record(context, record)
        self._emit_panes(context)

    def on_timer(self, timestamp_ms: int, context: Context) -> None:
        """Fire the windows that the watermark has reached, and remove expired state."""
        self.operator.results = WindowResults()
        self.operator.on_watermark(context.current_watermark_ms, 0, 0)
        self._emit_panes(context)
        states = [state for windows in self.operator.state.values() for state in windows.values()]
        kept = {number for state in states for number in state.records}
        self.records = {number: record for number, record in self.records.items() if number in kept}

    def _register_cleanup(self, window: TimeWindow, context: Context) -> None:
        cleanup_ms = self.operator.cleanup_ms(window)
        if cleanup_ms > context.current_watermark_ms:
            context.timer_service.register(cleanup_ms)

    def _count_drops(self, record: SideRecord) -> int:
        """Return how often the last record is dropped: once, or once for each window that has fired."""
        results = self.operator.results
        if not self.drops_per_window:
            return len(results.dropped)
        return len(results.expired) + len(self.window.assign(record.time_ms)) * len(results.dropped)

    def _emit_panes(self, context: Context) -> None:
        for pane in self.operator.results.panes:
            records = [self.records[number] for number in pane.records]
            left, right = ([record for record in records if record.side is side] for side in Side)
            for record, other in self.join_lists(left, right):
                emit_pair(context, record, other, pane.window.end_ms - 1)
