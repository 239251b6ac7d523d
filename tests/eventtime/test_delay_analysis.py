"""Test the proof about critical delays, and the arithmetic of curves and recommendations."""

from __future__ import annotations

import json
from array import array
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstream.errors import SpecError
from backstream.eventtime.delay_analysis import (
    CriticalDelays,
    DelayAdvice,
    FiringDelay,
    FiringDelays,
    NormalDistribution,
    require_share,
)
from backstream.eventtime.emission import Emission, EmissionModel, Topology
from backstream.eventtime.instants import HOUR_MS, MAX_MS, MIN_MS, MINUTE_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy
from backstream.eventtime.watermark_sources import compute_watermarks
from backstream.eventtime.watermarks import Watermarks


def delays(*critical_ms: int, records: int | None = None) -> CriticalDelays:
    """Return a histogram with one record per critical delay."""
    return CriticalDelays.from_counts(((delay_ms, 1) for delay_ms in critical_ms), records or len(critical_ms))


def advice(
    overdue: CriticalDelays, dropped: CriticalDelays, keep: float, current_ms: int | None = None
) -> DelayAdvice:
    """Return the advice for a range without windows."""
    no_windows = FiringDelays(array("q"), array("q"), array("q"), 0)
    return DelayAdvice("events", Interval(0, 1), keep, current_ms, overdue, dropped, overdue, no_windows)


@st.composite
def streams(draw: st.DrawFn) -> list[Record]:
    """Draw up to 30 records of 3 partitions, with idle times, and event times around their arrival."""
    arrivals = sorted(draw(st.lists(st.integers(0, 300), max_size=30)))
    return [Record(at, draw(st.integers(0, 2)), "a", at + draw(st.integers(-80, 20))) for at in arrivals]


@given(
    records=streams(),
    delay_ms=st.integers(1, 200),
    topology=st.sampled_from(Topology),
    model=st.sampled_from(EmissionModel),
    idle_timeout_ms=st.sampled_from([0, 3, 40]),
    interval_ms=st.sampled_from([0, 1, 7, 50]),
    is_released=st.booleans(),
)
def test_a_delay_lowers_every_watermark_by_itself_and_changes_no_time(
    records: list[Record],
    delay_ms: int,
    topology: Topology,
    model: EmissionModel,
    idle_timeout_ms: int,
    interval_ms: int,
    is_released: bool,
) -> None:
    def watermarks_with(delay_ms: int) -> Watermarks:
        strategy = WatermarkStrategy(StrategyKind.BOUNDED, delay_ms, interval_ms, idle_timeout_ms)
        emission = Emission(strategy, topology, drops_finished_splits=is_released, model=model)
        return compute_watermarks(records, emission, SourceClock(0, interval_ms, 400), range(4))

    undelayed, delayed = watermarks_with(0), watermarks_with(delay_ms)

    shifted = [value if value == MIN_MS else value - delay_ms for value in undelayed.in_force_ms]
    assert delayed.in_force_ms == shifted
    rises = [(event.watermark_ms, event.at_ms) for event in undelayed.events if event.watermark_ms != MAX_MS]
    assert [(event.watermark_ms, event.at_ms) for event in delayed.events if event.watermark_ms != MAX_MS] == [
        (watermark_ms - delay_ms, at_ms) for watermark_ms, at_ms in rises
    ]


@given(st.lists(st.integers(-5, 60), max_size=40), st.integers(0, 70))
def test_a_delay_affects_all_records_with_at_least_this_critical_delay(
    critical_ms: list[int], delay_ms: int
) -> None:
    histogram = delays(*critical_ms)

    assert histogram.count_affected(delay_ms) == sum(critical >= delay_ms for critical in critical_ms)


@given(st.lists(st.integers(-5, 60), min_size=1, max_size=40), st.integers(1, 100))
def test_no_smaller_delay_leaves_the_share_unaffected(critical_ms: list[int], percent: int) -> None:
    histogram = delays(*critical_ms)

    smallest_ms = histogram.smallest_delay_ms(percent / 100)

    unaffected = [
        100 * sum(critical < delay_ms for critical in critical_ms) for delay_ms in range(smallest_ms + 1)
    ]
    required = percent * len(critical_ms)
    assert [count >= required for count in unaffected] == [False] * smallest_ms + [True]


def test_a_share_is_read_as_a_decimal() -> None:
    # 1 - 0.9 is less than a tenth in binary: of 10 records, none could be affected.
    assert delays(*range(10)).smallest_delay_ms(0.9) == 9
    assert delays(*range(10)).smallest_delay_ms(1.0) == 10


def test_records_without_critical_delay_count_as_unaffected() -> None:
    histogram = delays(30, 20, records=200)

    assert (histogram.unaffected_share(0), histogram.unaffected_share(21), histogram.unaffected_share(31)) == (
        0.99,
        0.995,
        1.0,
    )
    assert (histogram.smallest_delay_ms(0.99), histogram.smallest_delay_ms(0.995)) == (0, 21)
    assert delays(records=0).unaffected_share(0) == 1.0


@given(st.lists(st.integers(-60, 600), max_size=40), st.integers(0, 70))
def test_counts_in_steps_are_exact_at_every_step(critical_ms: list[int], steps: int) -> None:
    rounded = CriticalDelays.from_counts(
        ((delay_ms // 10 * 10, 1) for delay_ms in critical_ms), len(critical_ms), 10
    )
    exact = delays(*critical_ms)

    assert rounded.count_affected(10 * steps) == exact.count_affected(10 * steps)
    assert rounded.count_affected(10 * steps + 1) == exact.count_affected(10 * steps + 10)
    if critical_ms:
        smallest_ms = exact.smallest_delay_ms(0.9)
        assert rounded.smallest_delay_ms(0.9) == -(-smallest_ms // 10) * 10


@given(st.lists(st.integers(-500, 500), min_size=1, max_size=40))
def test_the_normal_distribution_has_the_mean_and_deviation_of_lateness(lateness_ms: list[int]) -> None:
    normal = NormalDistribution.fit(delays(*(value_ms - 1 for value_ms in lateness_ms)))

    assert normal.mean_ms == pytest.approx(fmean(lateness_ms))
    assert normal.deviation_ms == pytest.approx(pstdev(lateness_ms))


def test_a_normal_delay_is_rounded_up_and_not_negative() -> None:
    assert NormalDistribution(10.25, 2.0).delay_ms(2) == 15
    assert NormalDistribution(-10.0, 2.0).delay_ms(2) == 0


def test_results_wait_for_the_first_rise_that_reaches_their_window_and_the_delay() -> None:
    #  rise at      10   25   60   input ends at 100
    #  watermark     9   19   49
    #  window ends at       10        20        40
    firings = FiringDelays(array("q", [10, 20, 40]), array("q", [9, 19, 49]), array("q", [10, 25, 60]), 100)

    assert firings.wait(0) == FiringDelay(mean_ms=8, median_ms=5, open_at_end=0)  # 0, 5, 20
    assert firings.wait(1) == FiringDelay(mean_ms=25, median_ms=20, open_at_end=0)  # 15, 40, 20
    assert firings.wait(11) == FiringDelay(mean_ms=50, median_ms=50, open_at_end=1)  # 50, 40, 60
    assert FiringDelays(array("q"), array("q"), array("q"), 100).wait(0) == FiringDelay(0, 0, 0)


def test_late_records_are_overdue_and_not_dropped() -> None:
    result = advice(delays(50, 40, 30, records=10), delays(20, 10, 0, records=10), keep=0.9)

    counts = [(effect.dropped, effect.late) for effect in map(result.at, (0, 1, 11, 21, 31, 51))]
    assert counts == [(3, 0), (2, 1), (1, 2), (0, 3), (0, 2), (0, 0)]
    assert (result.recommended_ms, result.on_time_ms) == (11, 41)


@given(st.lists(st.integers(0, 60), max_size=40), st.integers(0, 30))
def test_the_curve_is_correct_at_every_delay(critical_ms: list[int], lateness_ms: int) -> None:
    records = len(critical_ms) + 3
    dropped_ms = [delay_ms - lateness_ms for delay_ms in critical_ms if delay_ms >= lateness_ms]
    result = advice(delays(*critical_ms, records=records), delays(*dropped_ms, records=records), keep=0.9)

    curve = list(result.curve())

    for delay_ms in range(70):
        _, dropped, late = max(point for point in curve if point[0] <= delay_ms)
        assert (dropped, late) == (result.at(delay_ms).dropped, result.at(delay_ms).late)
    assert len({point[1:] for point in curve}) == len(curve)


@pytest.mark.parametrize(
    ("recommended", "current", "shown"),
    [
        ("3h", "30m", "0m 5m 15m 30m 1h 2h 3h 6h"),
        ("20m", "20m", "0m 1s 10s 1m 5m 15m 20m 30m"),
        ("0m", None, "0m 1s"),
        ("90m", None, "0m 1m 5m 15m 30m 1h 90m 2h"),
    ],
)
def test_a_table_has_round_delays_up_to_the_next_above(recommended: str, current: str | None, shown: str) -> None:
    units = {"s": 1_000, "m": MINUTE_MS, "h": HOUR_MS}

    def in_ms(text: str) -> int:
        return int(text[:-1]) * units[text[-1]]

    best = in_ms(recommended)
    result = advice(
        delays(best - 1, records=10),
        delays(best - 1, records=10),
        1.0,
        None if current is None else in_ms(current),
    )

    assert result.shown_ms() == [in_ms(text) for text in shown.split()]


def test_the_json_contains_the_curve_and_the_table() -> None:
    result = advice(delays(50, records=4), delays(20, records=4), keep=1.0, current_ms=30)

    content = json.loads(result.json_text())

    assert content["curve"] == {"step_ms": 1, "delay_ms": [0, 21, 51], "dropped": [1, 0, 0], "late": [0, 1, 0]}
    assert (content["recommended_ms"], content["on_time_ms"], content["current_ms"]) == (21, 51, 30)
    assert (content["since"], content["until"]) == ("1970-01-01T00:00Z", "1970-01-01T00:00:00.001Z")
    assert content["shown"][1] == {
        "delay_ms": 21,
        "dropped": 0,
        "late": 1,
        "kept": 1.0,
        "mean_wait_ms": 0,
        "median_wait_ms": 0,
        "open_at_end": 0,
    }


@pytest.mark.parametrize("keep", [0.0, -0.1, 1.001, float("nan")])
def test_a_share_out_of_range_is_rejected(keep: float) -> None:
    with pytest.raises(SpecError) as refused:
        require_share(keep)
    assert str(refused.value) == (
        f"the share to keep must be above 0 and at most 1, got {keep}\n\nhint: 0.999 keeps 99.9 %"
    )
