"""Test local times by hand-written examples, and against Python's own arithmetic of time zones."""

from __future__ import annotations

import random
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from backstream.eventtime.instants import DAY_MS, HOUR_MS, MINUTE_MS, instant_ms, instant_text
from backstream.eventtime.intervals import Interval
from backstream.eventtime.seals import Delivery, Seal, SealRule, seal_days
from backstream.eventtime.time_zones import TimeZone, find_zone, load_time_zone
from backstream.eventtime.windows import (
    Cumulate,
    Session,
    Sliding,
    TimeWindow,
    Tumbling,
    WindowSpec,
    describe_window,
    find_disorder,
)

BERLIN, LORD_HOWE = load_time_zone("Europe/Berlin"), load_time_zone("Australia/Lord_Howe")
ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Pacific/Apia",
    "Africa/Casablanca",
)
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a local time


def ms(text: str) -> int:
    return instant_ms(text, "test")


@pytest.fixture
def _python_reads_tzdata() -> Iterator[None]:
    path = zoneinfo.TZPATH
    zoneinfo.reset_tzpath([])
    zoneinfo.ZoneInfo.clear_cache()
    yield
    zoneinfo.reset_tzpath(path)
    zoneinfo.ZoneInfo.clear_cache()


@pytest.mark.usefixtures("_python_reads_tzdata")
@pytest.mark.parametrize("name", ZONES)
def test_local_times_and_their_instants_are_those_of_python(name: str) -> None:
    chance, zone, python = random.Random(1), load_time_zone(name), zoneinfo.ZoneInfo(name)  # noqa: S311 - a test
    near = [at_ms + chance.randrange(-5 * HOUR_MS, 5 * HOUR_MS) for at_ms in zone.changes_ms for _ in range(3)]
    for at_ms in [*near, *(chance.randrange(ms("1901-01-01"), ms("2119-01-01")) for _ in range(200))]:
        local = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)).astimezone(python)
        local_ms = (local.replace(tzinfo=None) - EPOCH) // timedelta(milliseconds=1)
        first = (EPOCH + timedelta(milliseconds=local_ms)).replace(tzinfo=python).astimezone(UTC)

        assert zone.local_ms(at_ms) == local_ms
        assert zone.instant_ms(local_ms) == (first.replace(tzinfo=None) - EPOCH) // timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("day", "hours"), [("2024-03-31T12:00Z", 23), ("2024-06-01T12:00Z", 24), ("2024-10-27T12:00Z", 25)]
)
def test_a_day_in_berlin_has_23_24_or_25_hours(day: str, hours: int) -> None:
    window = Tumbling(DAY_MS, zone=BERLIN)

    ((start_ms, end_ms),) = window.assign(window.local_ms(ms(day)))

    assert end_ms - start_ms == DAY_MS
    assert BERLIN.instant_ms(end_ms) - BERLIN.instant_ms(start_ms) == hours * HOUR_MS


@pytest.mark.parametrize(
    ("zone", "end", "fires_at"),
    [
        ("Europe/Berlin", "2024-10-27T02:00", "2024-10-27T00:00Z"),
        ("Europe/Berlin", "2024-10-27T02:30", "2024-10-27T01:30Z"),  # the second half past two
        ("Europe/Berlin", "2024-10-27T03:00", "2024-10-27T02:00Z"),
        ("Europe/Berlin", "2024-03-31T02:30", "2024-03-31T01:00:00.001Z"),  # does not exist
        ("Europe/Berlin", "2024-03-31T03:30", "2024-03-31T01:30Z"),
        ("Australia/Lord_Howe", "2024-04-07T02:00", "2024-04-06T16:00Z"),  # half an hour too late
        ("Australia/Lord_Howe", "2024-04-07T02:30", "2024-04-06T16:00Z"),
        ("Asia/Kolkata", "2024-03-31T00:00", "2024-03-30T18:30Z"),
        ("Asia/Pyongyang", "2015-08-15T00:00", "2015-08-14T15:00Z"),  # without daylight saving: the first of two
    ],
)
def test_a_window_fires_when_flink_sql_fires_it(zone: str, end: str, fires_at: str) -> None:
    window = Tumbling(HOUR_MS, zone=load_time_zone(zone))

    assert instant_text(window.trigger_ms(ms(f"{end}Z")) + 1) == fires_at


def test_utc_is_no_time_zone_of_its_own() -> None:
    assert (find_zone(None), find_zone("UTC"), find_zone("Etc/UTC")) == (None, None, None)


@pytest.mark.parametrize("name", ZONES)
def test_intervals_of_local_times_hold_all_their_instants(name: str) -> None:
    chance, zone = random.Random(2), load_time_zone(name)  # noqa: S311 - a test
    for change_ms in zone.changes_ms[-9:]:
        start_ms = change_ms + chance.randrange(-DAY_MS, DAY_MS)
        instants = Interval(start_ms, start_ms + chance.randrange(1, DAY_MS))
        local, near = zone.local_span(instants), zone.around(zone.local_span(instants))
        outer, inner = zone.instant_span(local), zone.certain_span(local)
        for at_ms in range(outer.start_ms - HOUR_MS, outer.end_ms + HOUR_MS, 10 * MINUTE_MS + 1):
            is_local = local.start_ms <= zone.local_ms(at_ms) < local.end_ms
            assert near.local_ms(at_ms) == zone.local_ms(at_ms)
            assert is_local or not instants.start_ms <= at_ms < instants.end_ms
            assert not is_local or outer.start_ms <= at_ms < outer.end_ms
            assert is_local or not inner.start_ms <= at_ms < inner.end_ms


YEAR = Interval(ms("2024-01-01"), ms("2025-01-01"))


@pytest.mark.parametrize(
    ("window", "at"),
    [
        (Session(HOUR_MS, BERLIN), None),
        (Session(HOUR_MS, LORD_HOWE), "2024-04-06T15:00Z"),
        (Session(HOUR_MS, load_time_zone("Australia/Adelaide")), "2024-10-05T16:30Z"),
        (Tumbling(10 * MINUTE_MS, zone=LORD_HOWE), None),
        (Sliding(HOUR_MS, 30 * MINUTE_MS, zone=LORD_HOWE), None),
        (Sliding(HOUR_MS, 10 * MINUTE_MS, zone=LORD_HOWE), "2024-04-06T15:00Z"),
        (Cumulate(DAY_MS, 6 * HOUR_MS, zone=LORD_HOWE), None),
    ],
)
def test_windows_that_fire_out_of_order_are_found(window: WindowSpec, at: str | None) -> None:
    assert find_disorder(window, YEAR) == (None if at is None else ms(at))


def test_a_window_has_local_times_and_instants_as_text() -> None:
    day = TimeWindow(ms("2024-10-27"), ms("2024-10-28"))

    assert describe_window(Tumbling(DAY_MS, zone=BERLIN), day) == (
        "2024-10-27T00:00 to 2024-10-28T00:00 in Europe/Berlin, 2024-10-26T22:00Z to 2024-10-27T23:00Z"
    )
    assert describe_window(Tumbling(DAY_MS), day) == "2024-10-27T00:00Z to 2024-10-28T00:00Z"


@pytest.mark.parametrize(
    ("arrived", "seal"), [("2024-10-27T22:59Z", Seal.OPEN), ("2024-10-27T23:01Z", Seal.SEALED)]
)
def test_a_local_day_is_sealed_after_its_25_hours(arrived: str, seal: Seal) -> None:
    day_ms = ms("2024-10-27")
    deliveries = [Delivery("A", day_ms, 1, day_ms), Delivery("A", day_ms + DAY_MS, 1, ms(arrived))]

    (day,) = seal_days([day_ms], deliveries, SealRule(0, zone=BERLIN))

    assert day.seal is seal


@pytest.mark.parametrize(
    ("zone", "local", "end"),
    [
        (BERLIN, "2024-10-27T00:00", "2024-10-26T22:00Z"),
        (BERLIN, "2024-10-27T02:30", "2024-10-27T01:30Z"),
        (load_time_zone("America/Sao_Paulo"), "2018-02-18T00:00", "2018-02-18T03:00Z"),
    ],
)
def test_the_instants_before_a_local_time_end_at_the_second_of_two(zone: TimeZone, local: str, end: str) -> None:
    assert instant_text(zone.end_ms(ms(f"{local}Z"))) == end
