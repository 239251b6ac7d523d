"""Days by the clocks of a time zone: 23, 24 or 25 hours long, and other instants than the days of the lake."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Self
from zoneinfo import ZoneInfo

from backstream.core.errors import SpecError
from backstream.core.instants import DAY_MS, HOUR_MS, epoch_ms, instant_ms, instant_text, moment
from backstream.core.intervals import Interval, backfill_range


@dataclass(frozen=True, slots=True)
class LocalDays:
    """The days `since` to `until` (excluded, ISO 8601 dates) of an IANA time zone."""

    zone: str
    since: str
    until: str

    @classmethod
    def of(cls, since: str, until: str, zone: str) -> Self:
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
        backfill_range(asked.exact.start_ms, asked.exact.end_ms)
        return asked

    @property
    def exact(self) -> Interval:
        """From the first moment of the first day to that of the first day left out."""
        zone = _zone(self.zone)
        start, end = (date.fromisoformat(text) for text in (self.since, self.until))
        return Interval(_midnight_ms(start, zone), _midnight_ms(end, zone))

    @property
    def covering(self) -> Interval:
        """The UTC days, in which tables are replaced, that hold all of it."""
        exact = self.exact
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
    def told(self) -> str:
        """In words: the instants, the days on which clocks change, and what is run for it."""
        lengths = {day: (each.end_ms - each.start_ms) / HOUR_MS for day, each in self.days()}
        odd = "".join(f", {day} has {hours:g} h" for day, hours in lengths.items() if hours * HOUR_MS != DAY_MS)
        return f"{self} is {self.exact}{odd}; whole UTC days are run: {self.covering}"


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
    day = moment(at_ms).astimezone(zone).date()
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
