from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pendulum
import pytest

from backstream.errors import SpecError
from backstream.eventtime.instants import DAY_MS, instant_ms
from backstream.eventtime.intervals import Interval, LocalDays
from backstream.orchestration.run_range import resolve_limits, resolve_local_days, resolve_range, with_seconds

FEB_1, FEB_8, MAR_1 = 1359676800000, 1360281600000, 1362096000000
FEBRUARY = (datetime(2013, 2, 1, tzinfo=UTC), datetime(2013, 3, 1, tzinfo=UTC))
NO_INTERVAL = (None, None)


@pytest.mark.parametrize(
    ("since", "until", "start_ms", "end_ms"),
    [
        ("2013-02-01", "2013-02-08", FEB_1, FEB_8),
        ("2013-02-01T00:00:00Z", "2013-02-08T00:00:00+00:00", FEB_1, FEB_8),
        ("2013-01-31T19:00:00-05:00", "2013-02-07T19:00:00-05:00", FEB_1, FEB_8),
        ("1969-12-31T23:00:00Z", "1970-01-01T00:00:00Z", -3_600_000, 0),
    ],
)
def test_a_range_given_by_name_is_the_range(since: str, until: str, start_ms: int, end_ms: int) -> None:
    assert resolve_range({"since": since, "until": until}, NO_INTERVAL) == Interval(start_ms, end_ms)


def test_days_of_a_time_zone_are_the_utc_days_that_hold_them() -> None:
    params = {
        "since": "2013-02-01T00:00:00-05:00",
        "until": "2013-02-08T05:00:00Z",
        "time_zone": "America/New_York",
    }
    assert resolve_range(params, NO_INTERVAL) == Interval(FEB_1, FEB_8 + DAY_MS)
    assert resolve_local_days(params) == LocalDays("America/New_York", "2013-02-01", "2013-02-08")
    assert resolve_local_days(params | {"time_zone": ""}) is None


def test_a_range_in_the_parameters_overrides_the_data_interval() -> None:
    params = {"since": "2013-02-01", "until": "2013-02-08"}
    assert resolve_range(params, FEBRUARY) == Interval(FEB_1, FEB_8)


@pytest.mark.parametrize("params", [{}, {"since": None, "until": None}, {"since": "", "until": ""}])
def test_without_a_named_range_the_data_interval_is_the_range(params: dict[str, str | None]) -> None:
    assert resolve_range(params, FEBRUARY) == Interval(FEB_1, MAR_1)


def test_a_data_interval_may_use_any_time_zone() -> None:
    new_york = timezone(timedelta(hours=-5))
    interval = (datetime(2013, 1, 31, 19, tzinfo=new_york), datetime(2013, 2, 28, 19, tzinfo=new_york))
    assert resolve_range({}, interval) == Interval(FEB_1, MAR_1)


def test_a_data_interval_may_use_pendulum_datetimes() -> None:
    interval = (pendulum.datetime(2013, 2, 1), pendulum.datetime(2013, 3, 1))
    assert resolve_range({}, interval) == Interval(FEB_1, MAR_1)


@pytest.mark.parametrize(
    ("params", "interval", "message"),
    [
        (
            {"time_zone": "America/New_York"},
            FEBRUARY,
            "time_zone America/New_York needs both since and until",
        ),
        (
            {"since": "2013-02-01"},
            FEBRUARY,
            "a range needs both ends: since is 2013-02-01, until is not given",
        ),
        (
            {"until": "2013-02-01", "since": ""},
            FEBRUARY,
            "a range needs both ends: until is 2013-02-01, since is not given",
        ),
        (
            {"since": "2013-02-01T05:00", "until": "2013-02-02"},
            FEBRUARY,
            (
                "since must name its time zone, got the local time '2013-02-01T05:00'\n\n"
                "hint: write 2013-02-01T05:00Z for UTC, or 2013-02-01T05:00-05:00 for New York in winter"
            ),
        ),
        (
            {"since": "2013-02-01", "until": "yesterday"},
            FEBRUARY,
            "until must be an instant such as 2013-02-01 or 2013-02-01T05:00Z, got 'yesterday'",
        ),
        (
            {"since": "2013-02-01", "until": "2013-02-01"},
            FEBRUARY,
            (
                "cannot backfill 2013-02-01T00:00Z to 2013-02-01T00:00Z: the range is empty\n\n"
                "hint: `until` is excluded; for the one day use until=2013-02-02T00:00Z"
            ),
        ),
        (
            {"since": "2013-02-02", "until": "2013-02-01"},
            FEBRUARY,
            "cannot backfill 2013-02-02T00:00Z to 2013-02-01T00:00Z: `since` is after `until`",
        ),
        (
            {},
            NO_INTERVAL,
            (
                "no range: the run has no data interval, and since and until are not given\n\n"
                "hint: give both, such as since=2013-02-01T00:00:00Z until=2013-03-01T00:00:00Z"
            ),
        ),
        (
            {},
            (FEBRUARY[0], FEBRUARY[0]),
            (
                "no range: the run's data interval is empty, it starts and ends at 2013-02-01T00:00Z\n\n"
                "hint: give since and until, or a timetable with data intervals (CronDataIntervalTimetable)"
            ),
        ),
    ],
)
def test_what_names_no_range_is_refused(
    params: dict[str, str], interval: tuple[datetime | None, datetime | None], message: str
) -> None:
    with pytest.raises(SpecError) as caught:
        resolve_range(params, interval)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("params", "limits"),
    [
        ({}, (None, None)),
        ({"since": "2013-02-01T00:00:00Z"}, (FEB_1, None)),
        ({"since": None, "until": "2013-02-08T01:00:00+01:00"}, (None, FEB_8)),
        ({"since": "", "until": ""}, (None, None)),
    ],
)
def test_stale_days_are_looked_for_within_the_limits_of_the_form(
    params: dict[str, str | None], limits: tuple[int | None, int | None]
) -> None:
    assert resolve_limits(params) == limits


def test_limits_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(SpecError, match="`since` is after `until`"):
        resolve_limits({"since": "2013-02-08T00:00:00Z", "until": "2013-02-01T00:00:00Z"})


@pytest.mark.parametrize("text", ["2013-02-01T00:00:00Z", "2013-02-01T05:06:07Z", "2013-02-01T05:06:07.008Z"])
def test_an_instant_is_handed_on_as_the_form_wants_it(text: str) -> None:
    assert with_seconds(instant_ms(text, "test")) == text
