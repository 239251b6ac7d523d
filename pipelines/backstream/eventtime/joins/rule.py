"""Define what the rules of all joins have in common: sides, types, conditions, and rows."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

from backstream.eventtime.process_functions import Context

_DROPPED_TAG = "dropped"
"""The side output with records that a join ignores, because they are late."""
SIDE = "join_side"
"""The column with the number of a record's side."""


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
    """A side of a join: the number of its source."""

    LEFT = 0
    RIGHT = 1

    @property
    def other(self) -> Side:
        """The other side."""
        return Side(1 - self)

    def is_kept_by(self, join_type: JoinType) -> bool:
        """Return whether a record of this side has a row of its own if it has no partner."""
        of_left = (JoinType.LEFT, JoinType.FULL, JoinType.ANTI)
        return join_type in (of_left if self is Side.LEFT else (JoinType.RIGHT, JoinType.FULL))


class SideRecord(NamedTuple):
    """A record of a side: its event time, and its columns in a row of the join."""

    time_ms: int
    side: Side
    values: Mapping[str, Any]


Comparison = tuple[str, str, str]
"""A condition besides the key and the times: a left column, an operator, and a right column."""
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(slots=True)
class JoinRule(ABC):
    """The rule of a join for one key, with its state."""

    join_type: JoinType
    conditions: Sequence[Comparison]
    has_null_key: bool = field(default=False, init=False)
    """True if a column of the key is null: such keys are not equal."""

    @abstractmethod
    def on_record(self, record: SideRecord, context: Context) -> None:
        """Process a record, at the watermark before it."""

    @abstractmethod
    def on_timer(self, timestamp_ms: int, context: Context) -> None:
        """Process a timer of the key."""

    def is_pair(self, record: SideRecord, other: SideRecord) -> bool:
        """Return whether two records of different sides meet the conditions; null meets none."""
        left, right = (record.values, other.values) if record.side is Side.LEFT else (other.values, record.values)
        return not self.has_null_key and all(
            left[name] is not None
            and right[other_name] is not None
            and _COMPARISONS[text](left[name], right[other_name])
            for name, text, other_name in self.conditions
        )

    def join_lists(
        self, left: Sequence[SideRecord], right: Sequence[SideRecord]
    ) -> Iterator[tuple[SideRecord, SideRecord | None]]:
        """Yield the rows of two complete lists: a record, and its partner or none."""
        pairs = [(one, other) for one in left for other in right if self.is_pair(one, other)]
        if self.join_type not in (JoinType.SEMI, JoinType.ANTI):
            yield from pairs
        paired = {id(record) for pair in pairs for record in pair}
        if self.join_type is JoinType.SEMI:
            yield from ((record, None) for record in left if id(record) in paired)
        for records in (left, right):
            for record in records:
                if id(record) not in paired and record.side.is_kept_by(self.join_type):
                    yield record, None


def emit_pair(context: Context, record: SideRecord, other: SideRecord | None, time_ms: int) -> None:
    """Emit the row of a record, with its partner or with nulls."""
    context.emit({**record.values, **(other.values if other else {})}, time_ms)


def drop_record(context: Context, record: SideRecord) -> None:
    """Emit a record that a join ignores to the side output."""
    context.output(_DROPPED_TAG, {SIDE: record.side.name.lower(), **record.values})
