"""Half-open intervals of epoch milliseconds, and the backfill range a person asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Self
from zoneinfo import ZoneInfo

from backstream.errors import PlanError, SpecError
from backstream.eventtime.instants import (
    DAY_MS,
    HOUR_MS,
    duration_text,
    epoch_ms,
    instant_ms,
    instant_text,
    utc_datetime,
)


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


@dataclass(frozen=True, slots=True)
class LocalDays:
    """The days `since` to `until` (excluded, ISO 8601 dates) of an IANA time zone."""

    zone: str
    since: str
    until: str

    @classmethod
    def from_dates(cls, since: str, until: str, zone: str) -> Self:
        """The days that a person asked for.

        Args:
            since: a date, or an instant that is midnight in the zone.
            until: likewise; the first day that is left out.
            zone: such as `America/New_York`.

        Raises:
            SpecError: when there is no such zone, an end is neither, or the range is empty or reversed.
        """
        known = _zone(zone)
        asked = cls(zone, _day(since, "since", known), _day(until, "until", known))
        backfill_range(asked.instants.start_ms, asked.instants.end_ms)
        return asked

    @property
    def instants(self) -> Interval:
        """From the first moment of the first day to that of the first day left out."""
        zone = _zone(self.zone)
        start, end = (date.fromisoformat(text) for text in (self.since, self.until))
        return Interval(_midnight_ms(start, zone), _midnight_ms(end, zone))

    @property
    def utc_days(self) -> Interval:
        """The UTC days, in which tables are replaced, that hold all of it."""
        exact = self.instants
        return Interval(exact.start_ms // DAY_MS * DAY_MS, -(-exact.end_ms // DAY_MS) * DAY_MS)

    def days(self) -> Iterator[tuple[str, Interval]]:
        """Each day and its instants."""
        zone, day = _zone(self.zone), date.fromisoformat(self.since)
        while day < date.fromisoformat(self.until):
            following = day + timedelta(days=1)
            yield day.isoformat(), Interval(_midnight_ms(day, zone), _midnight_ms(following, zone))
            day = following

    def __str__(self) -> str:
        return f"{self.since} to {self.until} in {self.zone}"

    @property
    def describe(self) -> str:
        """In words: the instants, the days on which clocks change, and what is run for it."""
        lengths = {day: (each.end_ms - each.start_ms) / HOUR_MS for day, each in self.days()}
        odd = "".join(f", {day} has {hours:g} h" for day, hours in lengths.items() if hours * HOUR_MS != DAY_MS)
        return f"{self} is {self.instants}{odd}; whole UTC days are run: {self.utc_days}"


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # unknown, a folder, or no name at all
        msg = f"time zone must be the name of an IANA zone such as America/New_York, got {name!r}"
        raise SpecError(msg) from None


def _day(text: str, name: str, zone: ZoneInfo) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        at_ms = instant_ms(text, name)
    day = utc_datetime(at_ms).astimezone(zone).date()
    if _midnight_ms(day, zone) != at_ms:
        msg = (
            f"{name} {instant_text(at_ms)} is not a midnight in {zone.key}\n\n"
            f"hint: use {instant_text(_midnight_ms(day, zone))}, the first moment of {day}, or the date alone"
        )
        raise SpecError(msg)
    return day.isoformat()


def _midnight_ms(day: date, zone: ZoneInfo) -> int:
    """The first moment of a day; where clocks skip midnight, the moment at which they do."""
    return epoch_ms(datetime.combine(day, datetime.min.time(), zone))
