"""Join the records of a window and key: the window join of Flink SQL, and `coGroup` of the DataStream API.

In SQL, a window fires once, at the first watermark that reaches its last millisecond. `coGroup` is a window
operator over both inputs: with allowed lateness, a late record fires its window again with all pairs. Nothing
retracts the earlier ones.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from backstream.eventtime.joins.operator import JoinedRow, JoinOperator, JoinType, Matches, Side
from backstream.eventtime.records import Record
from backstream.eventtime.watermarks import WatermarkEvent
from backstream.eventtime.window_operator import Pane, PaneTiming
from backstream.eventtime.windows import TimeWindow, Tumbling, WindowSpec


@dataclass(slots=True)
class WindowJoin(JoinOperator):
    """The window join of Flink SQL. A record is dropped per window, so that some of its windows can have it."""

    spec: WindowSpec = field(default_factory=lambda: Tumbling(1))
    state: dict[tuple[Hashable, TimeWindow], tuple[list[int], list[int]]] = field(default_factory=dict)

    def on_record(self, number: int, record: Record, side: Side) -> None:
        """Add a record to each of its windows that has not fired."""
        for window in self.spec.assign(record.event_time_ms):
            if window.max_timestamp_ms <= self.watermark_ms:
                self.dropped.append(number)
            else:
                self.state.setdefault((record.key, window), ([], []))[side].append(number)

    def on_watermark(self, by: int, event: WatermarkEvent) -> None:
        """Join the records of each window that the watermark reaches."""
        for key, window in [place for place in self.state if place[1].max_timestamp_ms <= event.watermark_ms]:
            left, right = self.state.pop((key, window))
            pairs = join_lists(left, right, self.join_type, self.records, self.matches)
            self.rows += [JoinedRow(*pair, is_by_record=False, by=by, window=window) for pair in pairs]


def join_lists(
    left: Sequence[int], right: Sequence[int], join_type: JoinType, records: Sequence[Record], matches: Matches
) -> Iterator[tuple[int | None, int | None]]:
    """Yield the rows of a join of two lists with numbers of records."""
    pairs = [(one, other) for one in left for other in right if matches(records[one], records[other])]
    paired_left, paired_right = {one for one, _ in pairs}, {other for _, other in pairs}
    if join_type is JoinType.SEMI:
        yield from ((one, None) for one in left if one in paired_left)
    elif join_type is not JoinType.ANTI:
        yield from pairs
    if Side.LEFT.is_kept_by(join_type):
        yield from ((one, None) for one in left if one not in paired_left)
    if Side.RIGHT.is_kept_by(join_type):
        yield from ((None, other) for other in right if other not in paired_right)


def join_panes(
    panes: Sequence[Pane],
    records: Sequence[Record],
    right: Container[int],
    join_type: JoinType,
    matches: Matches,
) -> Iterator[JoinedRow]:
    """Yield the rows of a window join of the DataStream API.

    Args:
        panes: the firings of a window operator over the union of both inputs.
        records: the records of both inputs.
        right: the partitions of the right input.
        join_type: the rows that the function of the job emits.
        matches: the condition.
    """
    for pane in panes:
        sides: tuple[list[int], list[int]] = ([], [])
        for number in pane.records:
            sides[records[number].source_partition in right].append(number)
        for pair in join_lists(*sides, join_type, records, matches):
            yield JoinedRow(*pair, is_by_record=pane.timing is PaneTiming.LATE, by=pane.by, window=pane.window)
