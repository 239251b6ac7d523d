"""The one rule on ranges: what the form, the commands and the task `plan` refuse, and in which words."""

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


def refused(since: str, until: str, held: SourceSpan = KNOWN) -> tuple[str, str]:
    """Which end is wrong, and what is said."""
    asked = span(since, until)
    with pytest.raises(RangeError) as error:
        require_range_in_source(asked, asked, held, NOW_MS)
    return error.value.end, str(error.value)


@pytest.mark.parametrize(
    ("since", "until", "end", "said"),
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
def test_a_range_that_can_have_no_event_is_refused_with_the_range_that_can(
    since: str, until: str, end: str, said: str
) -> None:
    assert refused(since, until) == (end, said + FACTS)


@pytest.mark.parametrize(
    ("since", "until"),
    [
        ("2024-03-01", "2024-03-05"),  # whole days reach beyond the first event and the last
        ("2024-02-01", "2024-04-01"),  # so do whole months, of a schedule
        ("2023-03-01", "2024-05-09"),  # and years
        ("2024-03-02", "2024-03-03"),  # a day in the middle, with events or without
        ("2024-03-04", "2024-05-09"),  # where it is tomorrow already
    ],
)
def test_a_range_that_has_the_day_of_an_event_or_lies_between_two_is_possible(since: str, until: str) -> None:
    require_range_in_source(span(since, until), span(since, until), KNOWN, NOW_MS)


def test_a_range_may_reach_a_year_beyond_the_last_event() -> None:
    ended = SourceSpan("clicks", "clicks.toml", ALLOWED, span("2013-02-01T05:00Z", "2013-02-28T06:00Z"))
    require_range_in_source(span("2013-02-01", "2014-03-02"), span("2013-02-01", "2014-03-02"), ended, NOW_MS)

    assert refused("2013-02-01", "2023-03-01", ended) == (
        "until",
        (
            f"no event in the last 3,652 days of range 2013-02-01T00:00Z to 2023-03-01T00:00Z ({SOURCE_KEY})"
            "\n  clicks has events from 2013-02-01T05:00Z to 2013-02-28T05:59:59.999Z"
            "\n\nhint: the possible range is since=2013-02-01 until=2013-03-01; until is excluded"
        ),
    )


def test_a_window_that_begins_before_the_first_event_may_hold_it() -> None:
    asked = span("2024-02-29", "2024-03-01")

    require_range_in_source(asked, Interval(asked.start_ms, asked.end_ms + DAY_MS), KNOWN, NOW_MS)

    assert refused("2024-02-29", "2024-03-01")[0] == "until"


def test_events_of_tomorrow_and_later_make_their_days_possible() -> None:
    timetable = SourceSpan("flights", "flights.toml", ALLOWED, span("2024-05-01", "2024-06-01T06:00Z"))
    require_range_in_source(span("2024-06-01", "2024-06-02"), span("2024-06-01", "2024-06-02"), timetable, NOW_MS)

    assert refused("2024-06-01", "2024-06-03", timetable)[0] == "until"


def test_nothing_is_possible_of_a_source_without_an_event() -> None:
    none = SourceSpan("clicks", "clicks.toml", ALLOWED, Interval(0, 0))

    assert refused("2024-03-01", "2024-03-02", none)[1] == (
        "no event in range 2024-03-01T00:00Z to 2024-03-02T00:00Z (clicks.toml, source.path)"
        "\n  clicks has no event at all"
    )


def test_where_nobody_knows_of_the_events_all_is_possible_that_is_allowed_until_tomorrow() -> None:
    unknown = SourceSpan("clicks", "clicks.toml", span("2020-01-01", "2100-01-01"))
    require_range_in_source(span("2020-01-01", "2024-05-09"), span("2020-01-01", "2024-05-09"), unknown, NOW_MS)

    end, said = refused("2019-12-31", "2020-01-02", unknown)

    assert end == "since"
    assert said == (
        "since must not be before 2020-01-01T00:00Z, got 2019-12-31T00:00Z (clicks.toml, source.event_time_range)"
        "\n\nhint: the possible range is since=2020-01-01 until=2024-05-09; until is excluded"
    )


def test_a_source_whose_events_must_lie_before_some_instant_ends_there() -> None:
    ended = SourceSpan("clicks", "clicks.toml", span("2020-01-01", "2021-01-01T12:00Z"))
    require_range_in_source(span("2021-01-01", "2021-01-02"), span("2021-01-01", "2021-01-02"), ended, NOW_MS)

    assert refused("2021-01-01", "2021-01-03", ended)[1].splitlines()[0] == (
        "until must not be after 2021-01-02T00:00Z, got 2021-01-03T00:00Z (clicks.toml, source.event_time_range)"
    )


def test_at_midnight_the_day_that_begins_is_ahead() -> None:
    midnight_ms, unknown = instant_ms("2024-05-07", "now"), SourceSpan("clicks", "clicks.toml", ALLOWED)

    ends = [unknown.days(midnight_ms + ms).end_ms - midnight_ms for ms in (0, 1, 23 * HOUR_MS)]

    assert ends == [DAY_MS, 2 * DAY_MS, 2 * DAY_MS]
