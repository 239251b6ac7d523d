"""Compare the NumPy merge of bounded unions with the reference, in ranges of ticks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa
import pytest

from backstream.eventtime.emission import Emission
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.union import UnionSource
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy
from backstream.eventtime.watermark_sources import compute_watermarks
from backstream.watermarks.tick_maxima import TickMerger

PARTITIONS = ["x/a", "x/b", "y/a", "z/"]


def random_union(chance: random.Random, interval_ms: int) -> Emission:
    """Return a union of two or three bounded sources in any order; `z` has only one partition, without a name."""
    kinds = [StrategyKind.BOUNDED, StrategyKind.BOUNDED, StrategyKind.MONOTONOUS]
    sources = [
        UnionSource(name, WatermarkStrategy(chance.choice(kinds), chance.choice([0, 4, 33]), interval_ms))
        for name in chance.sample("xyz", 3)
    ]
    return Emission.from_sources(sources)


def cells_of(records: Sequence[Record], clock: SourceClock, blocks: range) -> pa.Table:
    """Return one cell per record that arrived in a range of blocks."""
    rows = [
        (PARTITIONS[record.source_partition], clock.ticks_before(record.arrival_time_ms), record.event_time_ms)
        for record in records
    ]
    inside = [row for row in rows if row[1] in blocks]
    names, numbers, events = zip(*inside, strict=True) if inside else ((), (), ())
    return pa.table(
        {
            "source_partition": pa.array(names, pa.string()),
            "block": pa.array(numbers, pa.int64()),
            "event_time_ms": pa.array(events, pa.int64()),
        }
    )


@pytest.mark.parametrize("seed", range(300))
def test_numpy_merges_bounded_unions_as_the_reference(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - a test's stream, not a secret
    interval_ms = chance.choice([1, 5, 20])
    emission = random_union(chance, interval_ms)
    arrivals = sorted(chance.randrange(400) for _ in range(chance.randint(4, 60)))
    records = [Record(at, chance.randrange(4), "", at - chance.choice([0, 0, 9, 70])) for at in arrivals]
    clock = SourceClock(chance.randint(-20, 0), interval_ms, arrivals[-1] + chance.choice([0, 30]))
    expected = compute_watermarks(records, emission.with_partitions(PARTITIONS), clock, range(4))

    merger = TickMerger(emission, clock, PARTITIONS)
    cuts = [0, *sorted(chance.sample(range(1, clock.last_tick + 1), min(2, clock.last_tick))), clock.last_tick + 1]
    rises: list[tuple[int, int]] = []
    for start, stop in pairwise(cuts):
        watermarks_ms, ticks = merger.advance_to(stop, cells_of(records, clock, range(start, stop)))
        rises += zip(watermarks_ms.tolist(), map(clock.tick_ms, ticks.tolist()), strict=True)

    assert emission.is_mergeable
    assert rises == [(event.watermark_ms, event.at_ms) for event in expected.events[:-1]]


@pytest.mark.parametrize(
    ("other", "uses_index", "uses_numpy"),
    [
        (WatermarkStrategy(StrategyKind.BOUNDED, 5, 1), True, True),
        (WatermarkStrategy(StrategyKind.BOUNDED, 6, 1), False, True),
        (WatermarkStrategy(StrategyKind.BOUNDED, 5, 1, idle_timeout_ms=9), False, False),
        (WatermarkStrategy(StrategyKind.PUNCTUATED, 5, 1), False, False),
        (WatermarkStrategy(StrategyKind.NONE, 5, 1), False, False),
    ],
)
def test_only_unions_of_one_delay_use_the_index(
    other: WatermarkStrategy, *, uses_index: bool, uses_numpy: bool
) -> None:
    bounded = WatermarkStrategy(StrategyKind.BOUNDED, 5, 1)
    emission = Emission.from_sources([UnionSource("x", bounded), UnionSource("y", other)])

    assert (emission.is_in_index, emission.is_mergeable) == (uses_index, uses_numpy)
