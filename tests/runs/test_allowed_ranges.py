"""Test the rule for allowed ranges, which the form, the commands and the `plan` task share."""

from __future__ import annotations

import pytest

from backstream.errors import RangeError
from backstream.eventtime.instants import DAY_MS, HOUR_MS, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.runs.allowed_ranges import SourceSpan, require_range_in_source

NOW_MS = instant_ms("2024-05-07T13:00Z", "now")


def span(since: str, until: str) -> Interval:
    return Interval(instant_ms(since, "since"), instant_ms(until, "until"))


ALLOWED = span("1970-01-01", "2100-01-01")
EVENTS = span("2024-03-01T05:00Z", "2024-03-04T07:30Z")
KNOWN = SourceSpan("clicks", "clicks.toml", ALLOWED, EVENTS)
RANGE_KEY = "clicks.toml, source.event_time_range"
SOURCE_KEY = "clicks.toml, source.path"
FACTS = (
    "\n  clicks has events from 2024-03-01T05:00Z to 2024-03-04T07:29:59.999Z"
    "\n\nhint: the possible range is since=2024-03-01 until=2024-03-05; until is excluded"
)


def refusal(since: str, until: str, source: SourceSpan = KNOWN) -> tuple[str, str]:
    """Return the wrong end and the message of the error."""
    interval = span(since, until)
    with pytest.raises(RangeError) as error:
        require_range_in_source(interval, interval, source, NOW_MS)
    return error.value.field, str(error.value)


@pytest.mark.parametrize(
    ("since", "until", "end", "message"),
    [
        (
            "0001-01-01",
            "9999-12-31",
            "since",
            f"since must not be before 1970-01-01T00:00Z, got 0001-01-01T00:00Z ({RANGE_KEY})",
        ),
        (
            "2024-03-01",
            "9999-12-31",
            "until",
            "until must not be after 2024-05-09T00:00Z, got 9999-12-31T00:00Z (now is 2024-05-07T13:00Z)",
        ),
        (
            "2030-01-01",
            "2030-02-01",
            "until",
            "until must not be after 2024-05-09T00:00Z, got 2030-02-01T00:00Z (now is 2024-05-07T13:00Z)",
        ),
        (
            "2024-03-05",
            "2024-03-06",
            "since",
            "no event in range 2024-03-05T00:00Z to 2024-03-06T00:00Z (clicks.toml, source.path)",
        ),
        (
            "2004-03-01",
            "2024-03-04",
            "since",
            f"no event in the first 7,305 days of range 2004-03-01T00:00Z to 2024-03-04T00:00Z ({SOURCE_KEY})",
        ),
        (
            "2004-03-01",
            "2004-03-04",
            "until",
            "no event in range 2004-03-01T00:00Z to 2004-03-04T00:00Z (clicks.toml, source.path)",
        ),
    ],
)
def test_a_range_without_events_is_rejected_with_the_possible_range(
    since: str, until: str, end: str, message: str
) -> None:
    assert refusal(since, until) == (end, message + FACTS)


@pytest.mark.parametrize(
    ("since", "until"),
    [
        ("2024-03-01", "2024-03-05"),  # whole days extend beyond the first and the last event
        ("2024-02-01", "2024-04-01"),  # whole months of a schedule
        ("2023-03-01", "2024-05-09"),  # whole years
        ("2024-03-02", "2024-03-03"),  # a day in the middle, with events or without
        ("2024-03-04", "2024-05-09"),  # some time zones are a day ahead
    ],
)
def test_a_range_with_or_between_days_of_events_is_allowed(since: str, until: str) -> None:
    require_range_in_source(span(since, until), span(since, until), KNOWN, NOW_MS)


def test_a_range_may_extend_a_year_beyond_the_last_event() -> None:
    ended = SourceSpan("clicks", "clicks.toml", ALLOWED, span("2013-02-01T05:00Z", "2013-02-28T06:00Z"))
    require_range_in_source(span("2013-02-01", "2014-03-02"), span("2013-02-01", "2014-03-02"), ended, NOW_MS)

    assert refusal("2013-02-01", "2023-03-01", ended) == (
        "until",
        (
            f"no event in the last 3,652 days of range 2013-02-01T00:00Z to 2023-03-01T00:00Z ({SOURCE_KEY})"
            "\n  clicks has events from 2013-02-01T05:00Z to 2013-02-28T05:59:59.999Z"
            "\n\nhint: the possible range is since=2013-02-01 until=2013-03-01; until is excluded"
        ),
    )


def test_a_range_of_few_long_chunks_may_extend_years_beyond_the_events() -> None:
    sparse = SourceSpan("clicks", "clicks.toml", ALLOWED, KNOWN.events, chunk_ms=30 * DAY_MS)
    years = span("2004-03-01", "2024-03-04")

    require_range_in_source(years, years, sparse, NOW_MS)

    assert refusal("2004-03-01", "2024-03-04")[0] == "since"


def test_a_window_that_begins_before_the_first_event_may_contain_it() -> None:
    interval = span("2024-02-29", "2024-03-01")

    require_range_in_source(interval, Interval(interval.start_ms, interval.end_ms + DAY_MS), KNOWN, NOW_MS)

    assert refusal("2024-02-29", "2024-03-01")[0] == "until"


def test_the_days_of_future_events_are_allowed() -> None:
    timetable = SourceSpan("flights", "flights.toml", ALLOWED, span("2024-05-01", "2024-06-01T06:00Z"))
    require_range_in_source(span("2024-06-01", "2024-06-02"), span("2024-06-01", "2024-06-02"), timetable, NOW_MS)

    assert refusal("2024-06-01", "2024-06-03", timetable)[0] == "until"


def test_no_range_is_allowed_for_a_source_without_events() -> None:
    empty = SourceSpan("clicks", "clicks.toml", ALLOWED, Interval(0, 0))

    assert refusal("2024-03-01", "2024-03-02", empty)[1] == (
        "no event in range 2024-03-01T00:00Z to 2024-03-02T00:00Z (clicks.toml, source.path)"
        "\n  clicks has no events"
    )


def test_if_the_events_are_unknown_all_days_until_tomorrow_are_allowed() -> None:
    unknown = SourceSpan("clicks", "clicks.toml", span("2020-01-01", "2100-01-01"))
    require_range_in_source(span("2020-01-01", "2024-05-09"), span("2020-01-01", "2024-05-09"), unknown, NOW_MS)

    end, message = refusal("2019-12-31", "2020-01-02", unknown)

    assert end == "since"
    assert message == (
        "since must not be before 2020-01-01T00:00Z, got 2019-12-31T00:00Z (clicks.toml, source.event_time_range)"
        "\n\nhint: the possible range is since=2020-01-01 until=2024-05-09; until is excluded"
    )


def test_a_range_ends_with_the_event_time_range_of_the_source() -> None:
    ended = SourceSpan("clicks", "clicks.toml", span("2020-01-01", "2021-01-01T12:00Z"))
    require_range_in_source(span("2021-01-01", "2021-01-02"), span("2021-01-01", "2021-01-02"), ended, NOW_MS)

    assert refusal("2021-01-01", "2021-01-03", ended)[1].splitlines()[0] == (
        "until must not be after 2021-01-02T00:00Z, got 2021-01-03T00:00Z (clicks.toml, source.event_time_range)"
    )


def test_at_midnight_the_day_that_begins_is_ahead() -> None:
    midnight_ms, unknown = instant_ms("2024-05-07", "now"), SourceSpan("clicks", "clicks.toml", ALLOWED)

    ends = [unknown.days(midnight_ms + ms).end_ms - midnight_ms for ms in (0, 1, 23 * HOUR_MS)]

    assert ends == [DAY_MS, 2 * DAY_MS, 2 * DAY_MS]
