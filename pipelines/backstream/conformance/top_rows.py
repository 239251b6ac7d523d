"""Compute the top-N rows of recorded windows of Flink SQL, and the form in which rows are compared.

`ROW_NUMBER` ranks the aggregated rows of a window, or its records. A record is a row of its own if it has a key of
its own. So the records of such a case have their number in the key, and its windows are those of one record.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

from backstream.eventtime.ranks import rank_rows
from backstream.eventtime.records import Record


class RankedBy(StrEnum):
    """The rows that a case ranks, and their order."""

    RECORDS = "records"
    """The records of a key, by their values from the greatest on, and then by arrival."""
    AGGREGATES = "aggregates"
    """The keys of a window, by the sums of their values from the greatest on, and then by key."""
    FIRST = "first"
    """The records of a key, by event time, and then by arrival."""
    LAST = "last"
    """The records of a key, by event time and then by arrival, from the last one on."""


class TopRow(NamedTuple):
    """A row that is emitted; `by` is the number of the watermark that fired its window, None if unknown."""

    start_ms: int
    end_ms: int
    key: str
    rank: int
    records: tuple[int, ...]
    value: int
    by: int | None = None

    @classmethod
    def from_recording(cls, row: Mapping[str, Any]) -> TopRow:
        """Return a recorded row."""
        place = (row["start"], row["end"], str(row["key"]), row["rank"])
        return cls(*place, tuple(sorted(row["records"])), row["value"], row["by"])


class Members(NamedTuple):
    """The records in a fired window of a key, and the number of the watermark that fired it."""

    start_ms: int
    end_ms: int
    records: tuple[int, ...]
    by: int | None = None


def name_of_key(key: Hashable) -> str:
    """Return the key of a record as text, without the number of the record."""
    return str(key[0] if isinstance(key, tuple) else key)


@dataclass(frozen=True, slots=True)
class TopOfCase:
    """The part `top` of a case: the first `n` rows are emitted."""

    ranked_by: RankedBy
    n: int

    @property
    def are_records(self) -> bool:
        """Return whether single records are ranked."""
        return self.ranked_by is not RankedBy.AGGREGATES

    def with_keys(self, records: Sequence[Record]) -> tuple[Record, ...]:
        """Return records with the keys of the rows that are ranked."""
        if not self.are_records:
            return tuple(records)
        return tuple(replace(record, key=(record.key, number)) for number, record in enumerate(records))

    def rows(self, records: Sequence[Record], windows: Iterable[Members]) -> list[TopRow]:
        """Return the rows of fired windows, sorted; `records` are those that `with_keys` returns."""

        def key_of(members: Members) -> str:
            return name_of_key(records[members.records[0]].key)

        def value_of(members: Members) -> int:
            return sum(records[number].value for number in members.records)

        def event_of(members: Members) -> tuple[int, int]:
            number = members.records[0]
            return records[number].event_time_ms, number

        orders: Mapping[RankedBy, Callable[[Members], Any]] = {
            RankedBy.RECORDS: lambda each: (-value_of(each), each.records),
            RankedBy.AGGREGATES: lambda each: (-value_of(each), key_of(each)),
            RankedBy.FIRST: event_of,
            RankedBy.LAST: lambda each: tuple(-part for part in event_of(each)),
        }
        ranked = rank_rows(
            windows,
            lambda each: (each.start_ms, each.end_ms, key_of(each) if self.are_records else None),
            orders[self.ranked_by],
        )
        return sorted(
            TopRow(each.start_ms, each.end_ms, key_of(each), rank, each.records, value_of(each), each.by)
            for each, rank in ranked
            if rank <= self.n
        )

    @property
    def section(self) -> dict[str, Any]:
        """The section `[top]` of a definition; its columns are those of `aggregates`, and the key."""
        orders = {
            RankedBy.RECORDS: "total desc, seq",
            RankedBy.AGGREGATES: "total desc, key",
            RankedBy.FIRST: "at, seq",
            RankedBy.LAST: "at desc, seq desc",
        }
        partition = {"partition_by": ["key"]} if self.are_records else {}
        return {"n": self.n, "by": orders[self.ranked_by], "rank": "place", **partition}

    @property
    def key(self) -> list[str]:
        """The key of a definition."""
        return ["key", "seq"] if self.are_records else ["key"]

    @property
    def aggregates(self) -> dict[str, str]:
        """The aggregates that are ranked."""
        return {"total": "sum(value)", "at": "min(happened)"}
