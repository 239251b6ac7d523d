"""Half-open intervals of epoch milliseconds, and the backfill range a person asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from backstream.core.errors import PlanError, SpecError
from backstream.core.instants import DAY_MS, duration_text, instant_text


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """`[start_ms, end_ms)`; empty when the two are equal."""

    start_ms: int
    end_ms: int

    def __str__(self) -> str:
        return f"{instant_text(self.start_ms)} to {instant_text(self.end_ms)}"

    def overlaps(self, other: Interval) -> bool:
        """Whether an instant lies in both."""
        return max(self.start_ms, other.start_ms) < min(self.end_ms, other.end_ms)

    def cut(self, step_ms: int) -> Iterator[Interval]:
        """The interval in pieces of `step_ms` from its start; the last may be shorter."""
        for start_ms in range(self.start_ms, self.end_ms, step_ms):
            yield Interval(start_ms, min(start_ms + step_ms, self.end_ms))

    def without(self, others: Iterable[Interval]) -> Iterator[Interval]:
        """The parts that share no instant with any of the others, in their order."""
        start_ms = self.start_ms
        for other in sorted(each for each in others if each.overlaps(self)):
            if start_ms < other.start_ms:
                yield Interval(start_ms, other.start_ms)
            start_ms = max(start_ms, other.end_ms)
        if start_ms < self.end_ms:
            yield Interval(start_ms, self.end_ms)


def backfill_range(since_ms: int, until_ms: int) -> Interval:
    """The range a person asked for.

    Raises:
        SpecError: when it is empty or reversed.
    """
    if since_ms == until_ms:
        msg = (
            f"cannot backfill {instant_text(since_ms)} to {instant_text(until_ms)}: the range is empty\n\n"
            f"hint: `until` is excluded; for the one day use until={instant_text(since_ms + DAY_MS)}"
        )
        raise SpecError(msg)
    if since_ms > until_ms:
        msg = f"cannot backfill {instant_text(since_ms)} to {instant_text(until_ms)}: `since` is after `until`"
        raise SpecError(msg)
    return Interval(since_ms, until_ms)


def require_aligned(value_ms: int, name: str, unit_ms: int, offset_ms: int, unit_name: str) -> None:
    """Check that an instant lies on a grid.

    Raises:
        PlanError: naming the instant and its two neighbours on the grid.
    """
    over_ms = (value_ms - offset_ms) % unit_ms
    if over_ms:
        below, above = value_ms - over_ms, value_ms - over_ms + unit_ms
        msg = (
            f"{name} {instant_text(value_ms)} is not a boundary of {unit_name} ({duration_text(unit_ms)})\n\n"
            f"hint: use {instant_text(below)} or {instant_text(above)}"
        )
        raise PlanError(msg)


def require_whole_days(value_ms: int, name: str) -> None:
    """Check that an instant is midnight UTC: tables are replaced a day at a time.

    Raises:
        PlanError: naming the instant and the two midnights about it.
    """
    require_aligned(value_ms, name, DAY_MS, 0, "UTC days, the unit in which ranges are replaced")
