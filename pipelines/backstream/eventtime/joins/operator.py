"""Define what all joins have in common: sides, types, rows, and the order of records and watermarks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NamedTuple

from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.records import Record
from backstream.eventtime.watermarks import WatermarkEvent, Watermarks
from backstream.eventtime.windows import TimeWindow


class JoinType(StrEnum):
    """The rows of a join."""

    INNER = "inner"
    """Pairs only."""
    LEFT = "left"
    """Pairs, and left records without a partner."""
    RIGHT = "right"
    """Pairs, and right records without a partner."""
    FULL = "full"
    """Pairs, and records of both sides without a partner."""
    SEMI = "semi"
    """Left records with a partner, once each."""
    ANTI = "anti"
    """Left records without a partner."""


class Side(IntEnum):
    """A side of a join."""

    LEFT = 0
    RIGHT = 1

    @property
    def other(self) -> Side:
        """The other side."""
        return Side(1 - self)

    def is_kept_by(self, join_type: JoinType) -> bool:
        """Return whether a record of this side is in a row of its own if it has no partner."""
        kept = (
            (JoinType.LEFT, JoinType.FULL, JoinType.ANTI) if self is Side.LEFT else (JoinType.RIGHT, JoinType.FULL)
        )
        return join_type in kept


class JoinedRow(NamedTuple):
    """A row of a join: the numbers of its records, and its cause.

    `by` is the number of the watermark or of the record that caused it, and `window` the window of a window join.
    """

    left: int | None
    right: int | None
    is_by_record: bool
    by: int
    window: TimeWindow | None = None


Matches = Callable[[Record, Record], bool]
"""The condition that a left and a right record meet besides an equal key and the times."""


def match_all(_left: Record, _right: Record) -> bool:
    """Return that two records meet the condition: there is none."""
    return True


@dataclass(slots=True)
class JoinOperator(ABC):
    """An operator with two inputs. `right` has the partitions of the right input."""

    right: Container[int]
    join_type: JoinType = JoinType.INNER
    matches: Matches = match_all
    watermark_ms: int = MIN_MS
    rows: list[JoinedRow] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    """The records that the join ignored because they were late; once per window in a window join of SQL."""
    records: Sequence[Record] = ()

    def run(self, records: Sequence[Record], watermarks: Watermarks) -> None:
        """Process records and watermarks in the order of their arrival."""
        self.records = records
        events = deque(enumerate(watermarks.events))
        for number in range(-1, len(records)):
            if number >= 0:
                self.on_record(number, records[number], self.side_of(records[number]))
            while events and events[0][1].after == number:
                by, event = events.popleft()
                self.watermark_ms = event.watermark_ms
                self.on_watermark(by, event)

    def side_of(self, record: Record) -> Side:
        """Return the side of a record."""
        return Side.RIGHT if record.source_partition in self.right else Side.LEFT

    def is_pair(self, number: int, other: int, side: Side) -> bool:
        """Return whether two records meet the condition; the first one is of the given side."""
        left, right = (number, other) if side is Side.LEFT else (other, number)
        return self.matches(self.records[left], self.records[right])

    def emit(self, number: int, other: int | None, side: Side, by: int, *, is_by_record: bool) -> None:
        """Add a row of a record of a side, with its partner or without one."""
        left, right = (number, other) if side is Side.LEFT else (other, number)
        self.rows.append(JoinedRow(left, right, is_by_record, by))

    @abstractmethod
    def on_record(self, number: int, record: Record, side: Side) -> None:
        """Process a record, at the watermark before it."""

    @abstractmethod
    def on_watermark(self, by: int, event: WatermarkEvent) -> None:
        """Process a watermark, which is in force already."""
