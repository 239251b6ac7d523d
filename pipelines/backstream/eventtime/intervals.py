"""Define half-open intervals of epoch milliseconds, backfill ranges, and days of a time zone."""

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
    MAX_MS,
    MIN_MS,
    duration_text,
    epoch_ms,
    instant_ms,
    instant_text,
    utc_datetime,
)


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """The interval `[start_ms, end_ms)`; it is empty when both are equal."""

    start_ms: int
    end_ms: int

    @property
    def length_ms(self) -> int:
        """The length."""
        return self.end_ms - self.start_ms

    def __str__(self) -> str:
        return f"{instant_text(self.start_ms)} to {instant_text(self.end_ms)}"

    def overlaps(self, other: Interval) -> bool:
        """Return whether an instant is in both."""
        return max(self.start_ms, other.start_ms) < min(self.end_ms, other.end_ms)

    def cut(self, step_ms: int) -> Iterator[Interval]:
        """Return the interval in pieces of `step_ms` from its start; the last may be shorter."""
        for start_ms in range(self.start_ms, self.end_ms, step_ms):
            yield Interval(start_ms, min(start_ms + step_ms, self.end_ms))

    def without(self, others: Iterable[Interval]) -> Iterator[Interval]:
        """Return the parts outside all of the others, in order."""
        start_ms = self.start_ms
        for other in sorted(interval for interval in others if interval.overlaps(self)):
            if start_ms < other.start_ms:
                yield Interval(start_ms, other.start_ms)
            start_ms = max(start_ms, other.end_ms)
        if start_ms < self.end_ms:
            yield Interval(start_ms, self.end_ms)


ALL_TIMES = Interval(MIN_MS, MAX_MS)


def merge_intervals(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the intervals in order; those that overlap or touch become one."""
    merged: list[Interval] = []
    for interval in sorted(intervals):
        if merged and interval.start_ms <= merged[-1].end_ms:
            merged[-1] = Interval(merged[-1].start_ms, max(merged[-1].end_ms, interval.end_ms))
        else:
            merged.append(interval)
    return merged


def backfill_range(since_ms: int, until_ms: int) -> Interval:
    """Return the requested range.

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
    """Check that an instant is on a grid.

    Raises:
        PlanError: naming the instant and its two neighbours on the grid.
    """
    excess_ms = (value_ms - offset_ms) % unit_ms
    if excess_ms:
        below, above = value_ms - excess_ms, value_ms - excess_ms + unit_ms
        msg = (
            f"{name} {instant_text(value_ms)} is not a boundary of {unit_name} ({duration_text(unit_ms)})\n\n"
            f"hint: use {instant_text(below)} or {instant_text(above)}"
        )
        raise PlanError(msg)


def require_whole_days(value_ms: int, name: str) -> None:
    """Check that an instant is midnight UTC, since tables are replaced by whole UTC days.

    Raises:
        PlanError: naming the instant and the two midnights around it.
    """
    require_aligned(value_ms, name, DAY_MS, 0, "UTC days, the unit in which ranges are replaced")


def require_range_of_days(interval: Interval) -> None:
    """Check that a range consists of whole UTC days.

    Raises:
        PlanError: naming the end of the range and the two midnights around it.
    """
    require_whole_days(interval.start_ms, "since")
    require_whole_days(interval.end_ms, "until")


@dataclass(frozen=True, slots=True)
class LocalDays:
    """The days `since` to `until` (excluded, ISO 8601 dates) of an IANA time zone."""

    zone: str
    since: str
    until: str

    @classmethod
    def from_dates(cls, since: str, until: str, zone: str) -> Self:
        """Return the requested days.

        Args:
            since: a date, or an instant that is midnight in the zone.
            until: likewise; the first day after the range.
            zone: such as `America/New_York`.

        Raises:
            SpecError: when the zone is unknown, a text is neither date nor midnight, or the range is empty or
            reversed.
        """
        time_zone = _zone(zone)
        local_days = cls(zone, _day(since, "since", time_zone), _day(until, "until", time_zone))
        backfill_range(local_days.instants.start_ms, local_days.instants.end_ms)
        return local_days

    @property
    def instants(self) -> Interval:
        """The interval from the first moment of the first day to that of the day `until`."""
        zone = _zone(self.zone)
        start, end = (date.fromisoformat(text) for text in (self.since, self.until))
        return Interval(_midnight_ms(start, zone), _midnight_ms(end, zone))

    @property
    def utc_days(self) -> Interval:
        """The UTC days that contain all of the days; tables are replaced by whole UTC days."""
        exact = self.instants
        return Interval(exact.start_ms // DAY_MS * DAY_MS, -(-exact.end_ms // DAY_MS) * DAY_MS)

    def days(self) -> Iterator[tuple[str, Interval]]:
        """Return each day with its instants."""
        zone, day = _zone(self.zone), date.fromisoformat(self.since)
        while day < date.fromisoformat(self.until):
            next_day = day + timedelta(days=1)
            yield day.isoformat(), Interval(_midnight_ms(day, zone), _midnight_ms(next_day, zone))
            day = next_day

    def __str__(self) -> str:
        return f"{self.since} to {self.until} in {self.zone}"

    @property
    def describe(self) -> str:
        """The days in words: their instants, the days with a clock change, and the UTC days that are run."""
        lengths = {day: (interval.end_ms - interval.start_ms) / HOUR_MS for day, interval in self.days()}
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
    """Return the first moment of a day; if clocks skip midnight, the moment of the change."""
    return epoch_ms(datetime.combine(day, datetime.min.time(), zone))
