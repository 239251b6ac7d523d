"""Convert instants to the wall clock of a time zone, by Flink SQL's rules for windows in local time.

A local time is what a clock on the wall shows, in milliseconds as if it were UTC. All windows of a time zone are
cut in local time, so all arithmetic of windows stays the same. Only two rules differ:

    records        get their local time: `local_ms`
    firing         the watermark, an instant, reaches `trigger_ms` of the window's end

Where clocks go back, local times repeat: an hour of wall clock holds two hours. Where they go forward, an hour is
missing. So a local day has 23, 24, or 25 hours.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from io import BytesIO
from itertools import pairwise
from typing import Self
from zoneinfo import ZoneInfo

from backstream.errors import SpecError
from backstream.eventtime.instants import DAY_MS, HOUR_MS, MAX_MS, MINUTE_MS, SECOND_MS, epoch_ms, utc_datetime
from backstream.eventtime.intervals import Interval

ZONED_TIMES = Interval(epoch_ms(datetime(1900, 1, 1, tzinfo=UTC)), epoch_ms(datetime(2120, 1, 1, tzinfo=UTC)))
"""The event times for which the changes of clocks are known."""

_RULE_STEP_MS = 28 * DAY_MS
"""A step in which the rule of a zone changes the clocks at most once."""


@dataclass(frozen=True, slots=True)
class TimeZone:
    """A time zone: its offset from UTC before the first change of clocks, and after each change.

    `has_daylight_saving` is that of the rule in force at the end of the data, as in Java. Flink fires windows of
    such zones by other rules.
    """

    name: str
    changes_ms: tuple[int, ...]
    offsets_ms: tuple[int, ...]
    returns_ms: tuple[int, ...]
    """By change of clocks, the first local time that is only after it."""
    has_daylight_saving: bool

    @classmethod
    def from_offsets(
        cls, name: str, changes_ms: Sequence[int], offsets_ms: Sequence[int], *, has_daylight_saving: bool
    ) -> Self:
        """Return a time zone with these changes of clocks, and the offsets before, between, and after them."""
        returns_ms = (
            at_ms + max(offsets) for at_ms, offsets in zip(changes_ms, pairwise(offsets_ms), strict=True)
        )
        return cls(name, tuple(changes_ms), tuple(offsets_ms), tuple(returns_ms), has_daylight_saving)

    def local_ms(self, instant_ms: int) -> int:
        """Return the local time of an instant."""
        return instant_ms + self.offsets_ms[bisect_right(self.changes_ms, instant_ms)]

    def instant_ms(self, local_ms: int) -> int:
        """Return the instant of a local time: the first of two, and in a gap by the offset before it."""
        return local_ms - self.offsets_ms[bisect_right(self.returns_ms, local_ms)]

    def end_ms(self, local_ms: int) -> int:
        """Return the end of all instants before a local time: the second of two."""
        first_ms = self.instant_ms(local_ms)
        after_ms = self.offsets_ms[bisect_right(self.changes_ms, first_ms + DAY_MS)]
        second_ms = local_ms - after_ms
        return max(first_ms, second_ms) if self.local_ms(second_ms) == local_ms else first_ms

    def trigger_ms(self, last_ms: int) -> int:
        """Return the watermark that fires a window by its last local millisecond.

        With daylight saving time, a window that ends in a repeated hour fires an hour after its first end, and one
        that ends in a missing hour fires at the start of its hour. Each shift counts as an hour.
        """
        if last_ms >= MAX_MS - DAY_MS:
            return last_ms
        first_ms = self.instant_ms(last_ms)
        if not self.has_daylight_saving:
            return first_ms
        hour_later_ms = self.instant_ms(last_ms + HOUR_MS)
        if hour_later_ms == first_ms:
            return first_ms - first_ms % HOUR_MS
        return first_ms + HOUR_MS if hour_later_ms - first_ms > HOUR_MS else first_ms

    def local_span(self, instants: Interval) -> Interval:
        """Return the local times of an interval of instants, as one interval that may have gaps."""
        first, last_ms = bisect_right(self.changes_ms, instants.start_ms), instants.end_ms - 1
        stop = bisect_right(self.changes_ms, last_ms)
        starts = [self.changes_ms[number] + self.offsets_ms[number + 1] for number in range(first, stop)]
        ends = [self.changes_ms[number] + self.offsets_ms[number] for number in range(first, stop)]
        return Interval(
            min(self.local_ms(instants.start_ms), *starts, MAX_MS), max(self.local_ms(last_ms) + 1, *ends, -MAX_MS)
        )

    def around(self, local_times: Interval) -> TimeZone:
        """Return the time zone with its changes of clocks within two days of local times, so that it is short."""
        first = bisect_right(self.changes_ms, local_times.start_ms - 2 * DAY_MS)
        stop = bisect_right(self.changes_ms, local_times.end_ms + 2 * DAY_MS)
        changes_ms, offsets_ms = self.changes_ms[first:stop], self.offsets_ms[first : stop + 1]
        return TimeZone.from_offsets(
            self.name, changes_ms, offsets_ms, has_daylight_saving=self.has_daylight_saving
        )

    def instant_span(self, local_times: Interval) -> Interval:
        """Return an interval with all instants that have one of these local times, and perhaps a few more."""
        offsets_ms = self.around(local_times).offsets_ms
        return Interval(local_times.start_ms - max(offsets_ms), local_times.end_ms - min(offsets_ms))

    def certain_span(self, local_times: Interval) -> Interval:
        """Return an interval of instants that surely have one of these local times."""
        offsets_ms = self.around(local_times).offsets_ms
        return Interval(local_times.start_ms - min(offsets_ms), local_times.end_ms - max(offsets_ms))

    def list_disorders(self, instants: Interval) -> list[int]:
        """Return the changes of clocks around which a window can fire before one that ends earlier."""
        shifts = zip(self.changes_ms, pairwise(self.offsets_ms), strict=True)
        return [
            at_ms
            for at_ms, (before_ms, after_ms) in shifts
            if instants.start_ms <= at_ms < instants.end_ms and not self._is_orderly(at_ms, after_ms - before_ms)
        ]

    def _is_orderly(self, at_ms: int, shift_ms: int) -> bool:
        if not self.has_daylight_saving:
            return shift_ms < 0
        return abs(shift_ms) == HOUR_MS and (shift_ms < 0 or not at_ms % HOUR_MS)


def tzdata_version() -> str:
    """Return the version of the time-zone data, such as 2026.1; executors get tables, and need no data."""
    return version("tzdata")


@cache
def load_time_zone(name: str) -> TimeZone:
    """Return a time zone from the time-zone data of the package `tzdata`, whose version is known.

    Raises:
        SpecError: when there is no such zone.
    """
    try:
        content = files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
    except OSError:
        msg = f"time zone must be one of the time-zone data, such as Europe/Berlin, got {name!r}"
        raise SpecError(msg) from None
    zone = ZoneInfo.from_file(BytesIO(content), key=name)
    changes = list(_find_changes(zone, _list_stored_changes(content)))
    first_ms = _offset_ms(zone, ZONED_TIMES.start_ms)
    return TimeZone.from_offsets(
        name,
        [at_ms for at_ms, _ in changes],
        [first_ms, *(after_ms for _, after_ms in changes)],
        has_daylight_saving=bool(changes) and changes[-1][0] >= ZONED_TIMES.end_ms - 366 * DAY_MS,
    )


def find_zone(name: str | None) -> TimeZone | None:
    """Return the time zone with a name; None for UTC, whose local time is the instant."""
    zone = None if name is None else load_time_zone(name)
    return zone if zone and any(zone.offsets_ms) else None


def list_time_zones() -> list[str]:
    """Return the names of all time zones."""
    return files("tzdata").joinpath("zones").read_text(encoding="utf-8").split()


_HEADER = struct.Struct(">20x6l")
"""The counts of a block of a file of the format TZif, RFC 9636."""


def _list_stored_changes(content: bytes) -> list[int]:
    """Return the instants in a TZif file at which the offset may change; later ones follow a rule."""
    (utc, standard, leaps, changes, kinds, characters) = _HEADER.unpack_from(content)
    second = _HEADER.size + changes * 5 + kinds * 6 + characters + leaps * 8 + standard + utc
    count = _HEADER.unpack_from(content, second)[3]
    return [at_s * SECOND_MS for at_s in struct.unpack_from(f">{count}q", content, second + _HEADER.size)]


def _find_changes(zone: ZoneInfo, stored_ms: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield each change of the offset, with the offset after it."""
    known_ms = [at_ms for at_ms in stored_ms if ZONED_TIMES.start_ms < at_ms < ZONED_TIMES.end_ms]
    low_ms, before_ms = ZONED_TIMES.start_ms, _offset_ms(zone, ZONED_TIMES.start_ms)
    rule_ms = range(known_ms[-1] if known_ms else low_ms, ZONED_TIMES.end_ms, _RULE_STEP_MS)
    for high_ms in (*known_ms, *rule_ms[1:]):
        after_ms = _offset_ms(zone, high_ms)
        if after_ms != before_ms:
            minutes = range(low_ms + MINUTE_MS, high_ms, MINUTE_MS)
            if _offset_ms(zone, high_ms - 1) == before_ms:
                yield high_ms, after_ms
            else:
                place = bisect_left(minutes, 1, key=lambda at_ms: _offset_ms(zone, at_ms) == after_ms)
                yield minutes[place], after_ms
        low_ms, before_ms = high_ms, after_ms


def _offset_ms(zone: ZoneInfo, instant_ms: int) -> int:
    offset = utc_datetime(instant_ms).astimezone(zone).utcoffset()
    assert offset is not None  # noqa: S101 - the datetime is aware
    return offset // timedelta(milliseconds=1)
