"""Test the days of a time zone: their instants when clocks change, and the UTC days that contain them."""

from __future__ import annotations

import pytest

from backstream.errors import SpecError
from backstream.eventtime.instants import HOUR_MS, instant_ms
from backstream.eventtime.intervals import Interval, LocalDays

NEW_YORK = "America/New_York"


def interval(start: str, end: str) -> Interval:
    return Interval(instant_ms(start, "start"), instant_ms(end, "end"))


@pytest.mark.parametrize(
    ("since", "until", "zone", "start", "end"),
    [
        ("2024-03-10", "2024-03-11", NEW_YORK, "2024-03-10T05:00Z", "2024-03-11T04:00Z"),
        ("2024-11-03", "2024-11-04", NEW_YORK, "2024-11-03T04:00Z", "2024-11-04T05:00Z"),
        ("2024-07-01", "2024-07-03", "Asia/Kolkata", "2024-06-30T18:30Z", "2024-07-02T18:30Z"),
        ("2024-07-01", "2024-07-03", "UTC", "2024-07-01", "2024-07-03"),
        # Beirut: clocks skip from 00:00 to 01:00. Havana: clocks go back from 01:00, so that midnight occurs
        # twice.
        ("2024-03-31", "2024-04-01", "Asia/Beirut", "2024-03-30T22:00Z", "2024-03-31T21:00Z"),
        ("2024-11-03", "2024-11-04", "America/Havana", "2024-11-03T04:00Z", "2024-11-04T05:00Z"),
        # Samoa had no 30 December.
        ("2011-12-29", "2011-12-31", "Pacific/Apia", "2011-12-29T10:00Z", "2011-12-30T10:00Z"),
    ],
)
def test_a_local_day_follows_the_clocks_of_its_zone(
    since: str, until: str, zone: str, start: str, end: str
) -> None:
    assert LocalDays.from_dates(since, until, zone).instants == interval(start, end)


def test_the_utc_days_contain_the_local_days() -> None:
    assert LocalDays.from_dates("2024-03-10", "2024-03-11", NEW_YORK).utc_days == interval(
        "2024-03-10", "2024-03-12"
    )
    assert LocalDays.from_dates("2024-07-01", "2024-07-02", "Asia/Kolkata").utc_days == interval(
        "2024-06-30", "2024-07-02"
    )
    assert LocalDays.from_dates("2024-07-01", "2024-07-02", "UTC").utc_days == interval("2024-07-01", "2024-07-02")


def test_midnights_of_the_zone_are_equivalent_to_dates() -> None:
    by_date = LocalDays.from_dates("2024-03-10", "2024-03-11", NEW_YORK)

    assert LocalDays.from_dates("2024-03-10T00:00-05:00", "2024-03-11T04:00:00Z", NEW_YORK) == by_date
    assert [(day, interval.end_ms - interval.start_ms) for day, interval in by_date.days()] == [
        ("2024-03-10", 23 * HOUR_MS)
    ]


def test_the_description_lists_days_with_a_clock_change() -> None:
    assert LocalDays.from_dates("2024-03-09", "2024-03-11", NEW_YORK).describe == (
        "2024-03-09 to 2024-03-11 in America/New_York is 2024-03-09T05:00Z to 2024-03-11T04:00Z, "
        "2024-03-10 has 23 h; whole UTC days are run: 2024-03-09T00:00Z to 2024-03-12T00:00Z"
    )


@pytest.mark.parametrize("zone", ["New York", "", "America", "../etc/passwd", "/etc/passwd", "a\0b"])
def test_an_unknown_zone_is_rejected(zone: str) -> None:
    with pytest.raises(SpecError) as raised:
        LocalDays.from_dates("2024-03-10", "2024-03-11", zone)

    assert str(raised.value) == (
        f"time zone must be the name of an IANA zone such as America/New_York, got {zone!r}"
    )


def test_an_instant_that_is_no_midnight_of_the_zone_is_rejected_with_the_midnight() -> None:
    with pytest.raises(SpecError) as raised:
        LocalDays.from_dates("2024-03-10", "2024-03-11T00:00Z", NEW_YORK)

    assert str(raised.value) == (
        "until 2024-03-11T00:00Z is not a midnight in America/New_York\n\n"
        "hint: use 2024-03-10T05:00Z, the first moment of 2024-03-10, or the date alone"
    )


def test_a_range_without_a_day_is_rejected() -> None:
    with pytest.raises(SpecError, match="the range is empty"):
        LocalDays.from_dates("2024-03-10", "2024-03-10", NEW_YORK)
    with pytest.raises(SpecError, match="`since` is after `until`"):
        LocalDays.from_dates("2024-03-10", "2024-03-09", NEW_YORK)
