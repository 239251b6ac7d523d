"""Watermarks: what holds for every stream, whatever Flink recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstream.core.errors import SpecError
from backstream.core.fates import Fate
from backstream.core.generators import Strategy, StrategyKind
from backstream.core.instants import MAX_MS, MIN_MS
from backstream.core.panes import panes
from backstream.core.records import Clock, Record
from backstream.core.watermarks import Emission, Topology, Watermarks, watermarks
from backstream.core.windows import Tumbling


def stream(*arrivals: tuple[int, int, int]) -> list[Record]:
    """Records of (arrival, partition, event time)."""
    return [Record(arrival, partition, "a", event) for arrival, partition, event in arrivals]


def bounded(**settings: int) -> Emission:
    return Emission(Strategy(StrategyKind.BOUNDED, **{"interval_ms": 1, **settings}))


def test_the_slowest_partition_holds_the_watermark_back() -> None:
    #  arrival      0    1    2    3
    #  partition 0  100       200
    #  partition 1       5         50
    records = stream((0, 0, 100), (1, 1, 5), (2, 0, 200), (3, 1, 50))

    heard = watermarks(records, bounded(), Clock(0, 1, 4), [0, 1])

    assert [event.watermark_ms for event in heard.events] == [4, 49, MAX_MS]


def test_a_partition_that_never_delivers_holds_everything() -> None:
    heard = watermarks(stream((0, 0, 100), (50, 0, 200)), bounded(), Clock(0, 1, 100), [0, 1])

    assert heard.in_force_ms == [MIN_MS, MIN_MS]
    assert [event.watermark_ms for event in heard.events] == [MAX_MS]


def test_an_idle_partition_lets_the_others_go_on() -> None:
    # A timeout of 5 is noticed at the seventh tick: the stop watch starts one tick late and must be exceeded.
    heard = watermarks(stream((0, 0, 100), (50, 0, 200)), bounded(idle_timeout_ms=5), Clock(0, 1, 60), [0, 1])

    assert heard.in_force_ms == [MIN_MS, 99]
    assert heard.events[0].at_ms == 7


def test_a_tick_comes_before_a_record_of_the_same_millisecond() -> None:
    heard = watermarks(stream((0, 0, 100), (10, 0, 5)), bounded(interval_ms=10), Clock(0, 10, 10), [0])

    assert heard.in_force_ms == [MIN_MS, 99]


def test_records_out_of_arrival_order_are_refused() -> None:
    with pytest.raises(SpecError) as refused:
        watermarks(stream((5, 0, 1), (4, 0, 1)), bounded(), Clock(0, 1, 9), [0])
    assert str(refused.value) == "records must be in arrival order, got 4 ms after a later one"


def test_a_negative_delay_is_refused() -> None:
    with pytest.raises(SpecError) as refused:
        Strategy(StrategyKind.BOUNDED, delay_ms=-1)
    assert str(refused.value) == "watermark delay must not be negative, got -1 ms"


@st.composite
def streams(draw: st.DrawFn) -> list[Record]:
    """Up to 30 records of 3 partitions, with event times around their arrival."""
    arrivals = sorted(draw(st.lists(st.integers(0, 300), max_size=30)))
    return [
        Record(at, draw(st.integers(0, 2)), draw(st.sampled_from("ab")), at + draw(st.integers(-80, 20)))
        for at in arrivals
    ]


EMISSIONS = st.builds(
    Emission,
    st.builds(
        Strategy,
        st.sampled_from([StrategyKind.MONOTONOUS, StrategyKind.BOUNDED, StrategyKind.TIME_LAG]),
        st.integers(0, 50),
        st.sampled_from([0, 1, 7, 50]),
        st.sampled_from([0, 10, 60]),
    ),
    st.sampled_from(Topology),
    releases_ended=st.booleans(),
)


def clock_of(records: list[Record], emission: Emission) -> Clock:
    last_ms = records[-1].arrival_time_ms if records else 0
    return Clock(0, emission.strategy.interval_ms, last_ms)


@given(streams(), EMISSIONS)
def test_watermarks_strictly_rise_and_end_with_plus_inf(records: list[Record], emission: Emission) -> None:
    heard = watermarks(records, emission, clock_of(records, emission), range(3))

    values = [event.watermark_ms for event in heard.events]
    assert values == sorted(set(values))
    assert values[-1] == MAX_MS
    assert heard.in_force_ms == sorted(heard.in_force_ms)


@given(streams(), EMISSIONS, st.integers(1, 60), st.integers(0, 60))
def test_every_record_has_one_fate_and_only_dropped_ones_are_in_no_pane(
    records: list[Record], emission: Emission, size_ms: int, lateness_ms: int
) -> None:
    heard = watermarks(records, emission, clock_of(records, emission), range(3))
    result = panes(records, heard, Tumbling(size_ms), lateness_ms)

    assert len(result.fates) == len(records)
    in_panes = {number for pane in result.panes for number in pane.records}
    assert [number in in_panes for number in range(len(records))] == [
        fate is not Fate.DROPPED for fate in result.fates
    ]


@given(streams(), EMISSIONS)
def test_quiet_ticks_may_be_skipped(records: list[Record], emission: Emission) -> None:
    """A stream that is played at once, and one with an empty arrival at every millisecond's tick, agree."""
    everything = replace(emission, strategy=replace(emission.strategy, interval_ms=1))
    clock = clock_of(records, everything)

    skipping = watermarks(records, everything, clock, range(3))
    slow = _every_tick(records, everything, clock)

    assert skipping.events == slow.events
    assert skipping.statuses == slow.statuses


def _every_tick(records: list[Record], emission: Emission, clock: Clock) -> Watermarks:
    import backstream.core.watermarks as module

    effective = module._effective_ticks  # noqa: SLF001 - the one shortcut that this test takes away
    try:
        module._effective_ticks = lambda done, until, *_, **__: iter(range(done + 1, until + 1))  # noqa: SLF001
        return watermarks(records, emission, clock, range(3))
    finally:
        module._effective_ticks = effective  # noqa: SLF001
