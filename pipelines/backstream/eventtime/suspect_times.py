"""Find times that are wrong although they can be read: numbers of another unit, and placeholders for no time.

A number of seconds that is read as milliseconds is a time in January 1970, and one of microseconds is a time in
the year 56,000. So a few ranges contain almost all such times. A time in one of them is suspect. It is implausible
if hardly any other record is within a year of it: an archive of weather since 1950 has true times in 1970, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Any, Self

from backstream.eventtime.instants import DAY_MS, HOUR_MS, SECOND_MS, epoch_ms, utc_datetime

UNITS_US: Mapping[str, float] = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
"""The microseconds of the units of numbers."""
BEFORE_CALENDAR, AFTER_CALENDAR = "before the year 1", "after the year 9999"
"""Reasons of suspect times that are no dates. Those of a placeholder for no time have its date as the reason."""
FACTORS = {f"{factor:g}": factor for factor in (1e9, 1e6, 1e3, 1e-3, 1e-6, 1e-9)}
"""Factors by reason: numbers of another unit are too small by it."""
_PERIOD_US = tuple(epoch_ms(datetime(year, 1, 1, tzinfo=UTC)) * 1_000 for year in (1990, 2100))
"""The period of most sources. A number fits a unit in which it is a time of this period."""
_ZERO_DATES = (
    *(date(1970, 1, 1), date.min, date(1601, 1, 1), date(1753, 1, 1)),
    *(date(1899, 12, 30), date(1900, 1, 1), date(1904, 1, 1)),
)
"""The first dates of programs and file formats: Unix, Go, Windows, SQL Server, Excel, MySQL, and Mac OS."""
_LAST_SECONDS = (2**31 - 1, 2**63 // 10**9)
"""The last second since 1970 in 32 bits, and the last one in 64 bits of nanoseconds."""
_MAX_ZONE_MS = 14 * HOUR_MS
"""The greatest distance of a time zone from UTC; the date of a placeholder may be local."""
YEAR_US = 31_556_952_000_000
"""The average length of a year in microseconds."""
_MAX_NEAR = 0.01
"""The share of all other records within about a year, up to which suspect records are far from them."""


def _list_ranges() -> Iterator[tuple[float, float, str]]:
    """Yield the ranges of suspect times in microseconds since 1970, half-open, with the reason."""
    for reason, factor in FACTORS.items():
        yield _PERIOD_US[0] / factor, _PERIOD_US[1] / factor, reason
    for day in _ZERO_DATES:
        yield *_around_date_us(day), f"{day}"
    for second in _LAST_SECONDS:
        yield second * 1e6, (second + 1) * 1e6, f"{utc_datetime(second * SECOND_MS).date()}"
    last_us, end_us = _around_date_us(date.max)[0], _around_date_us(date.max)[1] + DAY_MS * 1_000
    yield last_us, end_us, f"{date.max}"
    yield float("-inf"), _around_date_us(date.min)[0], BEFORE_CALENDAR
    yield end_us, float("inf"), AFTER_CALENDAR


def _around_date_us(day: date) -> tuple[float, float]:
    """Return the bounds of the instants at which a date can begin, in any time zone."""
    start_ms = epoch_ms(datetime.combine(day, datetime.min.time(), UTC))
    return (start_ms - _MAX_ZONE_MS) * 1_000, (start_ms + _MAX_ZONE_MS) * 1_000


def _cut_into_segments() -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Return the bounds of consecutive ranges, and the reason of each; empty if its times are not suspect."""
    ranges = list(_list_ranges())
    bounds = sorted({bound for first_us, end_us, _ in ranges for bound in (first_us, end_us)})
    reasons = [
        next((reason for low_us, high_us, reason in ranges if low_us <= first_us and end_us <= high_us), "")
        for first_us, end_us in pairwise(bounds)
    ]
    return tuple(bounds[1:-1]), tuple(reasons)


BOUNDS_US, REASONS = _cut_into_segments()
"""The bounds between ranges of times in microseconds since 1970, and the reason of each range.

The reason is empty if the times of the range are not suspect.
"""


def may_be_suspect(first_us: float, last_us: float) -> bool:
    """Return whether an interval has suspect times, or true times within two years of them."""
    low = bisect_right(BOUNDS_US, first_us - 2 * YEAR_US)
    high = bisect_right(BOUNDS_US, last_us + 2 * YEAR_US)
    return any(REASONS[low : high + 1])


def fits_unit(numbers: Any, unit: str) -> Any:
    """Return whether a number, or each number of an array, is a time from 1990 to 2099 in a unit."""
    times_us = numbers * UNITS_US[unit]
    return (times_us >= _PERIOD_US[0]) & (times_us < _PERIOD_US[1])


def year_of(time_us: float) -> int:
    """Return the number of the year since 1970 of a time; all years are equally long."""
    return int(time_us // YEAR_US)


@dataclass(frozen=True, slots=True)
class SuspectTimes:
    """Records with times that are suspect for the same reason: their number, and the bounds of their times.

    `file` has one of the first times. `text` is that time as it is written, if the source has text.
    """

    records: int
    first_us: int
    last_us: int
    file: str
    text: str = ""

    @classmethod
    def join(cls, groups: Iterable[Self]) -> Self:
        """Return groups of records as one."""
        whole = list(groups)
        first = min(whole, key=lambda each: each.first_us)
        last_us = max(each.last_us for each in whole)
        return replace(first, records=sum(each.records for each in whole), last_us=last_us)


@dataclass(frozen=True, slots=True)
class TimeCounts:
    """The number of records by the year of their time, without suspect ones, and the suspect ones by reason.

    The reason is that of a range of `REASONS`, or the unit that fits numbers that are too large for their own.
    """

    years: Mapping[int, int] = field(default_factory=dict)
    suspects: Mapping[str, SuspectTimes] = field(default_factory=dict)

    @classmethod
    def sum(cls, parts: Iterable[Self]) -> Self:
        """Return the counts of all parts together."""
        years, suspects = Counter[int](), dict[str, list[SuspectTimes]]()
        for part in parts:
            years.update(part.years)
            for reason, times in part.suspects.items():
                suspects.setdefault(reason, []).append(times)
        return cls(dict(years), {reason: SuspectTimes.join(groups) for reason, groups in suspects.items()})

    def find_implausible(self) -> dict[str, SuspectTimes]:
        """Return the suspect records that have at most one percent of all other records within about a year.

        Records with numbers that are too large for their unit are among the others only in the unit that fits.
        """
        others = sum(self.years.values())
        return {
            reason: times
            for reason, times in self.suspects.items()
            if reason in UNITS_US or self._count_near(times) <= _MAX_NEAR * others
        }

    def _count_near(self, times: SuspectTimes) -> int:
        first, last = year_of(times.first_us) - 1, year_of(times.last_us) + 1
        return sum(count for year, count in self.years.items() if first <= year <= last)
