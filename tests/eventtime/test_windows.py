"""Test the assignment of events to windows."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import gcd

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backstream.errors import SpecError
from backstream.eventtime.instants import MAX_MS, MIN_MS
from backstream.eventtime.windows import Cumulate, FixedWindow, Session, Sliding, Tumbling, WindowSpec

EVENT_TIMES_MS = st.integers(-(2**45), 2**45)
STEPS_MS = st.integers(1, 12)
FIXED_WINDOWS = st.one_of(
    st.builds(Tumbling, STEPS_MS),
    st.builds(Sliding, STEPS_MS, STEPS_MS),
    st.builds(lambda step_ms, steps: Cumulate(step_ms * steps, step_ms), STEPS_MS, STEPS_MS),
)


@given(FIXED_WINDOWS, st.integers(-20, 20))
@example(Cumulate(144, 12), -6)
def test_the_geometry_of_windows_is_that_of_their_assignment(window: FixedWindow, offset_ms: int) -> None:
    window = replace(window, offset_ms=offset_ms % window.start_step_ms)
    assigned = [window.assign(time_ms) for time_ms in range(-600, 600)]

    known = sorted({each for windows in assigned for each in windows})
    inner = [each for each in known if each.start_ms > -450 and each.end_ms < 450]
    bounds_ms = sorted({bound_ms for each in known for bound_ms in each})
    assert {(bound_ms - offset_ms) % window.slice_ms for bound_ms in bounds_ms} == {0}
    assert window.slice_ms == gcd(*(bound_ms - bounds_ms[0] for bound_ms in bounds_ms))
    starts_ms, ends_ms = (sorted({each[side] for each in inner}) for side in (0, 1))
    assert {after - before for before, after in pairwise(starts_ms)} == {window.start_step_ms}
    assert {after - before for before, after in pairwise(ends_ms)} == {window.end_step_ms}
    sizes = [each.end_ms - each.start_ms for each in inner if each.start_ms == starts_ms[0]]
    assert (min(sizes), len(sizes)) == (window.first_size_ms, window.windows_per_start)
    assert window.has_gaps == ([] in assigned)
    assert window.has_overlaps or max(map(len, assigned)) == 1


@pytest.mark.parametrize(
    ("event_time_ms", "offset_ms", "expected"),
    [
        (0, 0, (0, 1000)),
        (999, 0, (0, 1000)),
        (1000, 0, (1000, 2000)),
        (-1, 0, (-1000, 0)),
        (-1000, 0, (-1000, 0)),
        (-1001, 0, (-2000, -1000)),
        (0, 300, (-700, 300)),
        (0, -300, (-300, 700)),
    ],
)
def test_tumbling_windows_include_their_start_and_exclude_their_end(
    event_time_ms: int, offset_ms: int, expected: tuple[int, int]
) -> None:
    assert Tumbling(1000, offset_ms).assign(event_time_ms) == [expected]


def test_sliding_windows_are_assigned_latest_first() -> None:
    #  event         12
    #  [10 ...  20)  |
    #  [ 5 .. 15)    |
    assert Sliding(10, 5).assign(12) == [(10, 20), (5, 15)]
    assert Sliding(10, 5).assign(-1) == [(-5, 5), (-10, 0)]


def test_if_the_size_is_no_multiple_of_the_slide_some_instants_have_one_more_window() -> None:
    assert [len(Sliding(10, 4).assign(instant)) for instant in range(4)] == [3, 3, 2, 2]


def test_if_the_slide_exceeds_the_size_some_instants_are_in_no_window() -> None:
    assert [len(Sliding(3, 5).assign(instant)) for instant in range(6)] == [1, 1, 1, 0, 0, 1]


def test_cumulating_windows_share_a_start_and_grow() -> None:
    assert Cumulate(30, 10).assign(12) == [(0, 20), (0, 30)]


def test_a_window_that_ends_past_the_last_instant_wraps_as_in_java() -> None:
    (window,) = Tumbling(1000).assign(MAX_MS - 5)
    assert window.end_ms < 0


def test_an_event_time_that_means_no_timestamp_is_rejected() -> None:
    with pytest.raises(SpecError) as refused:
        Tumbling(10).assign(MIN_MS)
    assert str(refused.value) == (
        "event time -9223372036854775808 ms means `no timestamp`, so no window can be assigned"
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tumbling(0), "window size must be positive, got 0 ms"),
        (lambda: Tumbling(60, 60), "window offset must be smaller than its size of 60 ms, got 60 ms"),
        (lambda: Tumbling(60, -60), "window offset must be smaller than its size of 60 ms, got -60 ms"),
        (lambda: Sliding(60, 0), "window slide must be positive, got 0 ms"),
        (lambda: Sliding(60, 10, 10), "window offset must be smaller than its slide of 10 ms, got 10 ms"),
        (lambda: Cumulate(60, 7), "window size must be a multiple of its step of 7 ms, got 60 ms"),
        (lambda: Session(-1), "window gap must be positive, got -1 ms"),
    ],
)
def test_invalid_windows_are_rejected(make: type[WindowSpec], message: str) -> None:
    with pytest.raises(SpecError) as refused:
        make()  # type: ignore[call-arg]  # a lambda that takes nothing
    assert str(refused.value) == message


@given(EVENT_TIMES_MS, st.integers(1, 10_000), st.integers(1, 10_000), st.integers(-9_999, 9_999))
def test_an_instant_is_assigned_exactly_to_the_sliding_windows_that_contain_it(
    event_time_ms: int, size_ms: int, slide_ms: int, offset_ms: int
) -> None:
    offset_ms %= slide_ms
    near = range(event_time_ms - size_ms - slide_ms, event_time_ms + 1)
    containing = [
        (start, start + size_ms)
        for start in near
        if (start - offset_ms) % slide_ms == 0 and start <= event_time_ms < start + size_ms
    ]

    assert sorted(Sliding(size_ms, slide_ms, offset_ms).assign(event_time_ms)) == containing
