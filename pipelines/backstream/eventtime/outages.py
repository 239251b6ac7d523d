"""Define outages of source partitions: a hypothesis about a recorded stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from backstream.errors import SpecError
from backstream.eventtime.instants import instant_ms
from backstream.eventtime.intervals import Interval


@dataclass(frozen=True, slots=True)
class Outage:
    """An interval of arrival in which a source partition delivers nothing; its records arrive at the end."""

    source_partition: str
    interval: Interval

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the outage in a text such as `EWR:2013-02-10/2013-02-12`.

        Raises:
            SpecError: when the text has another form, or the interval is empty.
        """
        partition, colon, span = _split_instants(text)
        start, slash, end = span.partition("/")
        if not (partition and colon and slash):
            msg = f"an outage must be PARTITION:START/END, such as EWR:2013-02-10/2013-02-12, got {text!r}"
            raise SpecError(msg)
        interval = Interval(instant_ms(start, "--outage"), instant_ms(end, "--outage"))
        if interval.start_ms >= interval.end_ms:
            msg = f"the end of an outage must be after its start, got {text!r}"
            raise SpecError(msg)
        return cls(partition, interval)

    def arrival_ms(self, source_partition: str, recorded_ms: int) -> int:
        """Return the arrival of a record under this hypothesis."""
        is_hit = source_partition == self.source_partition
        is_hit = is_hit and self.interval.start_ms <= recorded_ms < self.interval.end_ms
        return self.interval.end_ms if is_hit else recorded_ms

    def __str__(self) -> str:
        return f"outage of {self.source_partition} from {self.interval}"


def _split_instants(text: str) -> tuple[str, str, str]:
    """Split before the year of the first instant; instants with a time of day contain colons."""
    head, slash, end = text.partition("/")
    for position, character in enumerate(head):
        if character == ":" and head[position + 1 :][:4].isdigit() and head[position + 5 : position + 6] == "-":
            return head[:position], ":", head[position + 1 :] + slash + end
    return "", "", text
