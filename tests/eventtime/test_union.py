"""Test unions of several sources beyond the recordings, with drivers that are simpler than the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backstream.errors import SpecError
from backstream.eventtime.emission import Emission, Topology
from backstream.eventtime.instants import MAX_MS, MIN_MS
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.union import UnionSource, complete_partitions
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy, generator_factory
from backstream.eventtime.watermark_merging import SplitWatermarkMultiplexer, StatusWatermarkValve
from backstream.eventtime.watermark_sources import compute_watermarks
from backstream.eventtime.watermarks import Watermarks

_NOT_UNITED = (StrategyKind.CUSTOM, StrategyKind.PER_SOURCE, StrategyKind.STRUCTURED_STREAMING)
KINDS = [kind for kind in StrategyKind if kind not in _NOT_UNITED]
INTERVALS_MS = [0, 1, 7, 50]


@st.composite
def strategies(draw: st.DrawFn, interval_ms: int) -> WatermarkStrategy:
    """Draw a strategy of any kind, half of them with idleness."""
    return WatermarkStrategy(
        draw(st.sampled_from(KINDS)),
        draw(st.sampled_from([0, 1, 30, 400])),
        interval_ms,
        draw(st.sampled_from([0, 0, 1, 20, 90])),
    )


@st.composite
def unions(draw: st.DrawFn) -> tuple[list[Record], Emission, SourceClock]:
    """Draw a stream of up to 30 records, up to 4 sources with up to 6 partitions in all, and a clock."""
    interval_ms = draw(st.sampled_from(INTERVALS_MS))
    owners = draw(st.lists(st.integers(0, 3), min_size=1, max_size=6))
    sources = [
        UnionSource(
            f"s{owner}",
            draw(strategies(interval_ms)),
            tuple(number for number, other in enumerate(owners) if other == owner),
        )
        for owner in draw(st.permutations(range(draw(st.integers(max(owners) + 1, 4)))))
    ]
    arrivals = sorted(draw(st.lists(st.integers(0, 900), max_size=30)))
    records = [
        Record(
            at,
            draw(st.integers(0, len(owners) - 1)),
            draw(st.sampled_from("ab")),
            at + draw(st.integers(-500, 20)),
            marker=draw(st.sampled_from([None, None, True, at - 5])),
        )
        for at in arrivals
    ]
    end_ms = (arrivals[-1] if arrivals else 0) + draw(st.sampled_from([0, 3, 700]))
    return records, Emission.from_sources(sources), SourceClock(draw(st.integers(-100, 0)), interval_ms, end_ms)


def run_every_tick(records: Sequence[Record], emission: Emission, clock: SourceClock) -> Watermarks:
    """Return the watermarks of a union, with a call of every source at every tick."""
    output = Watermarks()
    gate = StatusWatermarkValve(output)
    sources = [
        SplitWatermarkMultiplexer(
            source.strategy,
            source.partitions,
            lambda _, strategy=source.strategy: generator_factory(strategy)(),  # type: ignore[misc]
            gate.new_channel(),
        )
        for source in emission.sources
    ]
    owner = {
        number: mux for source, mux in zip(emission.sources, sources, strict=True) for number in source.partitions
    }
    tick = 0
    for number, record in enumerate([*records, None]):
        until = clock.last_tick if record is None else clock.ticks_before(record.arrival_time_ms)
        while tick < until:
            tick += 1
            output.at(number - 1, clock.tick_ms(tick))
            for source in sources:
                source.on_tick(tick, clock.tick_ms(tick))
        if record:
            output.in_force_ms.append(output.current_ms)
            output.at(number, record.arrival_time_ms)
            owner[record.source_partition].on_record(record, until + 1)
    return output


@settings(max_examples=400)
@given(unions())
def test_quiet_ticks_have_no_effect(union: tuple[list[Record], Emission, SourceClock]) -> None:
    records, emission, clock = union

    watermarks = compute_watermarks(records, emission, clock, [])

    every_tick = run_every_tick(records, emission, clock)
    assert watermarks.in_force_ms == every_tick.in_force_ms
    assert watermarks.events[:-1] == [event for event in every_tick.events if event.watermark_ms != MAX_MS]
    assert watermarks.current_ms == MAX_MS


@given(unions())
def test_one_source_alone_is_a_source_of_splits(union: tuple[list[Record], Emission, SourceClock]) -> None:
    records, emission, clock = union
    partitions = sorted(number for source in emission.sources for number in source.partitions)
    alone = UnionSource("alone", emission.sources[0].strategy, tuple(partitions))

    watermarks = compute_watermarks(records, Emission.from_sources([alone]), clock, partitions)

    single = compute_watermarks(records, Emission(alone.strategy), clock, partitions)
    assert watermarks.in_force_ms == single.in_force_ms
    assert watermarks.events == single.events


@given(unions())
def test_sources_of_one_partition_are_subtasks(union: tuple[list[Record], Emission, SourceClock]) -> None:
    records, emission, clock = union
    strategy = emission.sources[0].strategy
    partitions = sorted(number for source in emission.sources for number in source.partitions)
    sources = [UnionSource(str(number), strategy, (number,)) for number in partitions]

    watermarks = compute_watermarks(records, Emission.from_sources(sources), clock, partitions)

    subtasks = compute_watermarks(records, Emission(strategy, Topology.SUBTASKS), clock, partitions)
    assert watermarks.in_force_ms == subtasks.in_force_ms
    assert watermarks.events == subtasks.events


def alone_in_force_ms(records: list[Record], source: UnionSource, clock: SourceClock) -> list[int]:
    """Return the watermark of one source alone at the arrival of each record of the union."""
    numbers = [number for number, record in enumerate(records) if record.source_partition in source.partitions]
    alone = compute_watermarks(
        [records[number] for number in numbers], Emission(source.strategy), clock, source.partitions
    )
    rises = [
        (event.watermark_ms, numbers[event.after] if event.after >= 0 else -1, event.at_ms)
        for event in alone.events
    ]
    return [
        max(
            (
                rise_ms
                for rise_ms, after, at_ms in rises[:-1]
                if after < number and at_ms <= record.arrival_time_ms
            ),
            default=MIN_MS,
        )
        for number, record in enumerate(records)
    ]


@given(unions())
def test_without_idleness_the_watermark_is_the_minimum_of_the_sources(
    union: tuple[list[Record], Emission, SourceClock],
) -> None:
    records, emission, clock = union
    sources = [
        replace(source, strategy=replace(source.strategy, idle_timeout_ms=0)) for source in emission.sources
    ]

    watermarks = compute_watermarks(records, Emission.from_sources(sources), clock, [])

    alone = [alone_in_force_ms(records, source, clock) for source in sources]
    assert watermarks.in_force_ms == [min(values) for values in zip(*alone, strict=True)]


def bounded(**settings: int) -> WatermarkStrategy:
    return WatermarkStrategy(StrategyKind.BOUNDED, **{"interval_ms": 1, **settings})  # type: ignore[arg-type]


def test_a_source_without_records_holds_the_watermark_until_it_is_idle() -> None:
    records = [Record(0, 0, "a", 100), Record(50, 0, "a", 200)]
    clock = SourceClock(0, 1, 60)

    for timeout_ms, at_second_ms in ((0, MIN_MS), (5, 99)):
        silent = UnionSource("silent", bounded(idle_timeout_ms=timeout_ms), (1,))
        emission = Emission.from_sources([UnionSource("busy", bounded(), (0,)), silent])
        assert compute_watermarks(records, emission, clock, [0, 1]).in_force_ms == [MIN_MS, at_second_ms]


def test_a_source_without_partitions_is_a_source_without_records() -> None:
    records = [Record(0, 0, "a", 100), Record(50, 0, "a", 200)]
    clock = SourceClock(0, 1, 60)

    busy = UnionSource("busy", bounded(), (0,))

    for kind, topology in product(KINDS, Topology):
        if (kind, topology) == (StrategyKind.FLINK_SQL, Topology.OPERATOR):
            continue
        strategy = WatermarkStrategy(kind, 0, 1, 5)
        results = [
            compute_watermarks(
                records,
                Emission.from_sources([busy, UnionSource("none", strategy, numbers)], topology),
                clock,
                [0, 1],
            )
            for numbers in ((), (1,))
        ]
        assert results[0] == results[1]


def test_sources_have_no_operators_of_the_plan_of_flink_sql() -> None:
    sources = [UnionSource("sql", WatermarkStrategy(StrategyKind.FLINK_SQL, 0, 1, 5), (0,))]

    with pytest.raises(SpecError, match=r"^watermarks that operators of Flink SQL's plan make are not possible"):
        Emission.from_sources(sources, Topology.OPERATOR)


def test_partitions_belong_to_the_source_in_their_name() -> None:
    emission = Emission.from_sources([UnionSource("orders", bounded()), UnionSource("returns", bounded())])

    named = emission.with_partitions(["orders/0", "returns/all", "orders/1/eu"])

    assert [source.partitions for source in named.sources] == [(0, 2), (1,)]
    with pytest.raises(SpecError) as refused:
        emission.with_partitions(["refunds/0"])
    assert str(refused.value) == (
        "source partition must begin with one of the sources orders, returns, got 'refunds/0'"
    )


def test_a_source_without_partitions_gets_one() -> None:
    assert complete_partitions(["orders", "returns"], {"orders/1", "orders/0"}) == [
        "orders/0",
        "orders/1",
        "returns/",
    ]
    assert complete_partitions([], {"1", "0"}) == ["0", "1"]


def test_sources_with_different_intervals_are_rejected() -> None:
    with pytest.raises(SpecError) as refused:
        Emission.from_sources([UnionSource("a", bounded()), UnionSource("b", bounded(interval_ms=7))])
    assert str(refused.value) == "sources of a union must emit watermarks at the same interval, got [1, 7] ms"


def test_a_time_lag_beside_a_source_that_holds_takes_no_time() -> None:
    lag = UnionSource("lag", WatermarkStrategy(StrategyKind.TIME_LAG, 0, 200), (0,))
    held = UnionSource("held", WatermarkStrategy(StrategyKind.NONE, 0, 200), (1,))

    watermarks = compute_watermarks([], Emission.from_sources([lag, held]), SourceClock(0, 200, 1 << 40), [0, 1])

    assert [event.watermark_ms for event in watermarks.events] == [MAX_MS]
