from __future__ import annotations

import pytest

from backstream.charts.bar_charts import axis_step_ms, bucket_count, time_ticks
from backstream.eventtime.instants import DAY_MS, HOUR_MS, instant_ms
from backstream.eventtime.intervals import Interval


def span(since: str, until: str) -> Interval:
    return Interval(instant_ms(since, "since"), instant_ms(until, "until"))


FEBRUARY = span("2013-02-01", "2013-03-01")


@pytest.mark.parametrize(
    ("room", "step"), [(672, HOUR_MS), (671, 2 * HOUR_MS), (112, 6 * HOUR_MS), (31, DAY_MS), (4, 7 * DAY_MS)]
)
def test_the_smallest_step_that_fits_is_taken(room: int, step: int) -> None:
    assert axis_step_ms(FEBRUARY, HOUR_MS, room) == step


def test_a_step_is_always_whole_windows() -> None:
    assert axis_step_ms(FEBRUARY, 5 * HOUR_MS, 50) == 15 * HOUR_MS


def test_a_range_longer_than_any_round_step_is_cut_evenly() -> None:
    centuries = span("0100-01-01", "2013-01-01")

    step = axis_step_ms(centuries, DAY_MS, 100)

    assert bucket_count(centuries, step) <= 100
    assert step % DAY_MS == 0


def test_labels_of_a_month_are_days() -> None:
    assert time_ticks(FEBRUARY, DAY_MS, 6) == (
        (0.5, "1 Feb"),
        (7.5, "8 Feb"),
        (14.5, "15 Feb"),
        (21.5, "22 Feb"),
    )


def test_labels_of_a_day_are_hours_and_the_day_where_it_begins() -> None:
    assert time_ticks(span("2013-02-08T18:00Z", "2013-02-09T12:00Z"), HOUR_MS, 3) == (
        (0.5, "18:00"),
        (6.5, "9 Feb"),
        (12.5, "06:00"),
    )


def test_labels_of_years_are_months_and_none_is_so_near_the_end_that_it_is_cut_off() -> None:
    ticks = time_ticks(span("2012-11-15", "2014-01-05"), DAY_MS, 5)

    assert ticks == (
        (16.5, "Dec 2012"),
        (106.5, "Mar 2013"),
        (198.5, "Jun 2013"),
        (290.5, "Sep 2013"),
        (381.5, "Dec 2013"),
    )
    assert [label for _, label in time_ticks(span("2013-01-01", "2014-01-02"), DAY_MS, 5)][-1] == "Oct 2013"


def test_ten_years_have_one_label_a_year_at_most() -> None:
    ticks = time_ticks(span("2010-01-01", "2020-01-01"), DAY_MS, 4)

    assert [label for _, label in ticks] == ["Jan 2010", "Jan 2013", "Jan 2016", "Jan 2019"]
