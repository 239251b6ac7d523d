"""Test properties of watermarks that hold for every stream, independent of recordings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstream.errors import SpecError
from backstream.eventtime.emission import Emission, EmissionModel, Topology
from backstream.eventtime.instants import MAX_MS, MIN_MS
from backstream.eventtime.records import Fate, Record, SourceClock
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy, generator_factory
from backstream.eventtime.watermark_sources import compute_watermarks, run_source
from backstream.eventtime.watermarks import Watermarks
from backstream.eventtime.window_operator import fire_windows
from backstream.eventtime.windows import Tumbling


def stream(*arrivals: tuple[int, int, int]) -> list[Record]:
    """Return records from tuples of arrival, partition and event time."""
    return [Record(arrival, partition, "a", event) for arrival, partition, event in arrivals]


def bounded(**settings: Any) -> Emission:
    return Emission(WatermarkStrategy(StrategyKind.BOUNDED, **{"interval_ms": 1, **settings}))


def test_the_slowest_partition_holds_the_watermark_back() -> None:
    #  arrival      0    1    2    3
    #  partition 0  100       200
    #  partition 1       5         50
    records = stream((0, 0, 100), (1, 1, 5), (2, 0, 200), (3, 1, 50))

    watermarks = compute_watermarks(records, bounded(), SourceClock(0, 1, 4), [0, 1])

    assert [event.watermark_ms for event in watermarks.events] == [4, 49, MAX_MS]


def test_a_partition_without_records_holds_the_watermark_at_minus_inf() -> None:
    watermarks = compute_watermarks(stream((0, 0, 100), (50, 0, 200)), bounded(), SourceClock(0, 1, 100), [0, 1])

    assert watermarks.in_force_ms == [MIN_MS, MIN_MS]
    assert [event.watermark_ms for event in watermarks.events] == [MAX_MS]


def test_an_idle_partition_does_not_hold_the_watermark_back() -> None:
    # A timeout of 5 has an effect at the seventh tick: its timer starts one tick late and must be exceeded.
    watermarks = compute_watermarks(
        stream((0, 0, 100), (50, 0, 200)), bounded(idle_timeout_ms=5), SourceClock(0, 1, 60), [0, 1]
    )

    assert watermarks.in_force_ms == [MIN_MS, 99]
    assert watermarks.events[0].at_ms == 7


def test_a_tick_precedes_a_record_of_the_same_millisecond() -> None:
    watermarks = compute_watermarks(
        stream((0, 0, 100), (10, 0, 5)), bounded(interval_ms=10), SourceClock(0, 10, 10), [0]
    )

    assert watermarks.in_force_ms == [MIN_MS, 99]


def test_records_out_of_arrival_order_are_rejected() -> None:
    with pytest.raises(SpecError) as refused:
        compute_watermarks(stream((5, 0, 1), (4, 0, 1)), bounded(), SourceClock(0, 1, 9), [0])
    assert str(refused.value) == "records must be in arrival order, got 4 ms after a later one"


def test_a_negative_delay_is_rejected() -> None:
    with pytest.raises(SpecError) as refused:
        WatermarkStrategy(StrategyKind.BOUNDED, delay_ms=-1)
    assert str(refused.value) == "watermark delay must not be negative, got -1 ms"


@st.composite
def streams(draw: st.DrawFn) -> list[Record]:
    """Draw up to 30 records of 3 partitions, with event times around their arrival."""
    arrivals = sorted(draw(st.lists(st.integers(0, 300), max_size=30)))
    return [
        Record(at, draw(st.integers(0, 2)), draw(st.sampled_from("ab")), at + draw(st.integers(-80, 20)))
        for at in arrivals
    ]


EMISSIONS = st.builds(
    Emission,
    st.builds(
        WatermarkStrategy,
        st.sampled_from([StrategyKind.MONOTONOUS, StrategyKind.BOUNDED, StrategyKind.TIME_LAG]),
        st.integers(0, 50),
        st.sampled_from([0, 1, 7, 50]),
        st.sampled_from([0, 10, 60]),
    ),
    st.sampled_from(Topology),
    drops_finished_splits=st.booleans(),
)


def clock_of(records: list[Record], emission: Emission) -> SourceClock:
    last_ms = records[-1].arrival_time_ms if records else 0
    return SourceClock(0, emission.strategy.interval_ms, last_ms)


@given(streams(), EMISSIONS)
def test_watermarks_strictly_rise_and_end_with_plus_inf(records: list[Record], emission: Emission) -> None:
    watermarks = compute_watermarks(records, emission, clock_of(records, emission), range(3))

    values = [event.watermark_ms for event in watermarks.events]
    assert values == sorted(set(values))
    assert values[-1] == MAX_MS
    assert watermarks.in_force_ms == sorted(watermarks.in_force_ms)


@given(streams(), EMISSIONS, st.integers(1, 60), st.integers(0, 60))
def test_every_record_has_one_fate_and_only_dropped_ones_are_in_no_pane(
    records: list[Record], emission: Emission, size_ms: int, lateness_ms: int
) -> None:
    watermarks = compute_watermarks(records, emission, clock_of(records, emission), range(3))
    result = fire_windows(records, watermarks, Tumbling(size_ms), lateness_ms)

    assert len(result.fates) == len(records)
    in_panes = {number for pane in result.panes for number in pane.records}
    assert [number in in_panes for number in range(len(records))] == [
        fate is not Fate.DROPPED for fate in result.fates
    ]


@given(streams(), EMISSIONS)
def test_skipping_quiet_ticks_changes_no_result(records: list[Record], emission: Emission) -> None:
    """Compare a run that skips quiet ticks with one that processes every tick."""
    everything = replace(emission, strategy=replace(emission.strategy, interval_ms=1))
    clock = clock_of(records, everything)

    skipping = compute_watermarks(records, everything, clock, range(3))
    slow = _run_every_tick(records, everything, clock)

    assert skipping.events == slow.events
    assert skipping.statuses == slow.statuses


def _run_every_tick(records: list[Record], emission: Emission, clock: SourceClock) -> Watermarks:
    new = generator_factory(emission.strategy)
    return run_source(
        records, emission, clock, range(3), lambda _: new(), lambda first, last: range(first, last + 1)
    )


YEARS_MS = 1_700_000_000_000


def time_lag(**settings: Any) -> Emission:
    return Emission(WatermarkStrategy(StrategyKind.TIME_LAG, **settings))


def test_a_time_lag_over_years_is_rejected_before_it_is_listed() -> None:
    with pytest.raises(SpecError) as refused:
        compute_watermarks([], time_lag(), SourceClock(0, 200, YEARS_MS), [0])
    assert str(refused.value) == (
        "a time lag moves the watermark at every tick: 8,500,000,000 watermarks are too many to list, "
        "the limit is 1,000,000\n\nhint: use a longer interval, or an earlier end of the clock"
    )


def test_a_time_lag_that_becomes_idle_may_have_no_records_for_years() -> None:
    records = stream((0, 0, 5), (YEARS_MS, 0, YEARS_MS))

    watermarks = compute_watermarks(
        records, time_lag(idle_timeout_ms=1_000, delay_ms=7), SourceClock(0, 200, YEARS_MS), [0]
    )

    # The source is idle from tick 1 + floor(1000 / 200) + 2 on: the seventh tick is the last that emits.
    assert [event.watermark_ms for event in watermarks.events] == [
        *(200 * tick - 7 for tick in range(1, 8)),
        MAX_MS,
    ]
    assert watermarks.in_force_ms == [MIN_MS, 1_393]


class Counting:
    """A generator that emits the number of its periodic calls."""

    def __init__(self) -> None:
        self.calls = 0

    def on_event(self, record: Record) -> None:
        """Emit no watermark."""

    def on_periodic_emit(self, now_ms: int) -> int | None:
        """Emit the number of calls."""
        self.calls += 1
        return self.calls


class SteadyCounting(Counting):
    """The same generator, but steady: its quiet ticks are skipped."""

    is_steady = True


def test_a_custom_generator_is_called_at_every_tick_unless_it_is_steady() -> None:
    records = stream((0, 0, 5), (1_000, 0, 5))

    def emitted_by(new_generator: type[Counting]) -> list[int]:
        watermarks = compute_watermarks(
            records, bounded(interval_ms=10), SourceClock(0, 10, 1_000), [0], new_generator
        )
        return [event.watermark_ms for event in watermarks.events]

    assert emitted_by(Counting) == [*range(1, 101), MAX_MS]
    assert emitted_by(SteadyCounting) == [1, 2, MAX_MS]


def test_a_custom_generator_with_too_many_calls_is_rejected() -> None:
    with pytest.raises(SpecError) as refused:
        compute_watermarks([], bounded(interval_ms=200), SourceClock(0, 200, YEARS_MS), [0], Counting)
    assert str(refused.value) == (
        "a watermark generator cannot be called at 8,500,000,000 ticks, the limit is 200,000,000\n\n"
        "hint: use a longer interval or an idle timeout, or set `is_steady = True` in the generator's class"
    )

    idle = bounded(interval_ms=200, idle_timeout_ms=1_000)
    watermarks = compute_watermarks([], idle, SourceClock(0, 200, YEARS_MS), [0], Counting)
    assert [event.watermark_ms for event in watermarks.events] == [*range(1, 7), MAX_MS]


@given(streams(), st.sampled_from(Topology), st.sampled_from([0, 30]), st.sampled_from(EmissionModel))
def test_a_record_is_never_late_by_its_own_watermark(
    records: list[Record], topology: Topology, idle_timeout_ms: int, model: EmissionModel
) -> None:
    strategy = WatermarkStrategy(StrategyKind.MONOTONOUS, interval_ms=7, idle_timeout_ms=idle_timeout_ms)
    emission = Emission(strategy, topology, model=model)

    watermarks = compute_watermarks(records, emission, clock_of(records, emission), range(3))

    max_event_ms = MIN_MS
    for record, watermark_ms in zip(records, watermarks.in_force_ms, strict=True):
        assert watermark_ms <= max(max_event_ms - 1, MIN_MS)
        max_event_ms = max(max_event_ms, record.event_time_ms)


def test_an_emission_model_needs_a_maximum_event_time() -> None:
    with pytest.raises(SpecError) as refused:
        Emission(WatermarkStrategy(StrategyKind.TIME_LAG), model=EmissionModel.RECORD)
    assert str(refused.value) == "emission model on_event needs monotonous or bounded watermarks, got time_lag"
