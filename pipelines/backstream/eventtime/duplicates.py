"""Decide which records are duplicates of others."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from backstream.eventtime.instants import MAX_MS, MIN_MS
from backstream.eventtime.intervals import Interval

Kept = Literal["first", "last"]


class RecordGap(StrEnum):
    """Something that a readable record lacks."""

    NO_ID = "no_id"
    """All columns of the id are null."""
    EMPTY_ID = "empty_id"
    """The columns of the id are empty texts, or some of them and the others are null. This is an id, too."""
    NO_KEY = "no_key"
    """A column of the key is null or an empty text."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The rule for duplicates: a record has an id, the values of `columns`, and copies of it have the same id.

    A record is a duplicate if a copy precedes it in arrival order, with `keep` `last` if one follows it. Only
    copies whose event time differs by at most `within_ms` count. So the decision needs no other records, and it
    does not depend on the range of a run or on its chunks. A copy counts even if it is a duplicate itself.

    Null equals null. But a record whose columns are all null has no id, so it is never a duplicate. Without
    `columns`, no record has an id.
    """

    columns: Sequence[str] = ()
    within_ms: int = 0
    keep: Kept = "first"

    def reach(self, interval: Interval) -> Interval:
        """Return the event times of all records that decide about the records of an interval."""
        if not self.columns:
            return interval
        return Interval(
            max(interval.start_ms - self.within_ms, MIN_MS), min(interval.end_ms + self.within_ms, MAX_MS)
        )

    def is_given(self, values: Iterable[Any]) -> bool:
        """Return whether values of `columns` are an id."""
        return any(value is not None for value in values)

    def mark_duplicates(self, records: Sequence[tuple[Sequence[Any], int]]) -> list[bool]:
        """Return whether each record is a duplicate.

        Args:
            records: the values of `columns` and the event time in ms of each record, in arrival order.
        """
        is_duplicate = [False] * len(records)
        times_by_id: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        order = range(len(records)) if self.keep == "first" else reversed(range(len(records)))
        for number in order:
            values, event_ms = records[number]
            if not self.is_given(values):
                continue
            times_ms = times_by_id[tuple(values)]
            at = bisect_left(times_ms, event_ms - self.within_ms)
            is_duplicate[number] = at < len(times_ms) and times_ms[at] <= event_ms + self.within_ms
            times_ms.insert(bisect_right(times_ms, event_ms), event_ms)
        return is_duplicate
