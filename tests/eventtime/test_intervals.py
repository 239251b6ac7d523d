from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstream.errors import PlanError, SpecError
from backstream.eventtime.instants import DAY_MS, HOUR_MS, instant_ms
from backstream.eventtime.intervals import Interval, backfill_range, require_aligned


def at(text: str) -> int:
    return instant_ms(text, "test")


def test_a_range_is_half_open_and_shown_in_utc() -> None:
    february = backfill_range(at("2013-02-01"), at("2013-03-01"))

    assert february == Interval(1_359_676_800_000, 1_362_096_000_000)
    assert str(february) == "2013-02-01T00:00Z to 2013-03-01T00:00Z"


def test_an_empty_range_is_rejected_with_the_range_of_its_day() -> None:
    with pytest.raises(SpecError) as refused:
        backfill_range(at("2013-02-28"), at("2013-02-28"))

    assert str(refused.value) == (
        "cannot backfill 2013-02-28T00:00Z to 2013-02-28T00:00Z: the range is empty\n\n"
        "hint: `until` is excluded; for the one day use until=2013-03-01T00:00Z"
    )


def test_a_reversed_range_is_rejected() -> None:
    with pytest.raises(SpecError) as refused:
        backfill_range(at("2013-03-01"), at("2013-02-01"))

    assert str(refused.value) == (
        "cannot backfill 2013-03-01T00:00Z to 2013-02-01T00:00Z: `since` is after `until`"
    )


@pytest.mark.parametrize("text", ["2013-02-01", "1970-01-01", "1969-12-31"])
def test_a_midnight_is_a_boundary_of_days(text: str) -> None:
    require_aligned(at(text), "since", DAY_MS, 0, "days")


@pytest.mark.parametrize(
    ("text", "below", "above"),
    [
        ("2013-02-01T05:00Z", "2013-02-01T00:00Z", "2013-02-02T00:00Z"),
        ("2013-02-01T00:00:00.001Z", "2013-02-01T00:00Z", "2013-02-02T00:00Z"),
        ("1969-12-31T23:00Z", "1969-12-31T00:00Z", "1970-01-01T00:00Z"),
    ],
)
def test_an_instant_within_a_day_is_rejected_with_both_boundaries(text: str, below: str, above: str) -> None:
    with pytest.raises(PlanError) as refused:
        require_aligned(at(text), "since", DAY_MS, 0, "UTC days")

    assert str(refused.value) == (
        f"since {text} is not a boundary of UTC days (1d)\n\nhint: use {below} or {above}"
    )


def test_a_grid_may_have_an_offset() -> None:
    require_aligned(at("2013-02-01T00:45Z"), "until", HOUR_MS, -15 * 60_000, "windows")

    with pytest.raises(PlanError) as refused:
        require_aligned(at("2013-02-01T01:00Z"), "until", HOUR_MS, -15 * 60_000, "windows")
    assert str(refused.value) == (
        "until 2013-02-01T01:00Z is not a boundary of windows (1h)\n\n"
        "hint: use 2013-02-01T00:45Z or 2013-02-01T01:45Z"
    )


@pytest.mark.parametrize(
    ("first", "second", "overlap"),
    [
        ((0, 10), (9, 20), True),
        ((0, 10), (10, 20), False),
        ((10, 20), (0, 10), False),
        ((0, 10), (3, 4), True),
        ((3, 4), (0, 10), True),
        ((0, 10), (5, 5), False),
    ],
)
def test_intervals_overlap_if_they_share_an_instant(
    first: tuple[int, int], second: tuple[int, int], *, overlap: bool
) -> None:
    assert Interval(*first).overlaps(Interval(*second)) is overlap


def test_the_last_piece_of_a_cut_may_be_shorter() -> None:
    assert list(Interval(0, 7).cut(3)) == [Interval(0, 3), Interval(3, 6), Interval(6, 7)]
    assert list(Interval(-6, 0).cut(3)) == [Interval(-6, -3), Interval(-3, 0)]


@given(st.integers(-1000, 1000), st.integers(1, 500), st.integers(1, 100))
def test_the_pieces_of_a_cut_are_adjacent(start: int, length: int, step: int) -> None:
    pieces = list(Interval(start, start + length).cut(step))

    assert [pieces[0].start_ms, *(piece.end_ms for piece in pieces)] == [
        *(piece.start_ms for piece in pieces),
        start + length,
    ]


instants = st.integers(-9, 9)
intervals = st.tuples(instants, instants).map(lambda ends: Interval(min(ends), max(ends)))


@given(intervals, st.lists(intervals, max_size=4))
def test_without_removes_exactly_the_instants_of_the_others(interval: Interval, others: list[Interval]) -> None:
    parts = list(interval.without(others))
    removed = {instant for other in others for instant in range(other.start_ms, other.end_ms)}
    remaining = [instant for part in parts for instant in range(part.start_ms, part.end_ms)]
    assert remaining == [
        instant for instant in range(interval.start_ms, interval.end_ms) if instant not in removed
    ]
    assert all(first.end_ms < second.start_ms for first, second in pairwise(parts))
