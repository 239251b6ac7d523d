"""Compare firing times from the arrival index with the reference, which reads every record."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from backstream.eventtime.emission import Emission, Topology
from backstream.eventtime.instants import MAX_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.union import UnionSource
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy
from backstream.eventtime.watermark_sources import compute_watermarks
from backstream.eventtime.windows import Cumulate, FixedWindow, Sliding, Tumbling
from backstream.source.arrival_index import ArrivalIndex, BucketGrid
from backstream.watermarks import firing_times, firing_times_from_index
from backstream.watermarks.firing_times import ArrivalPositions, WindowGrid

PARTITIONS = ("a", "b", "c")


def stream(chance: random.Random) -> list[Record]:
    """Return a stream with bursts and silent periods. Some events are very late, and some partitions have none."""
    delivering = chance.sample(range(len(PARTITIONS)), chance.randint(1, len(PARTITIONS)))
    arrival_ms, records = chance.randint(-50, 50), []
    for _ in range(chance.randint(0, 60)):
        arrival_ms += chance.choice([0, 1, 2, 5, 5, 60, 400])
        event_ms = arrival_ms - chance.choice([0, 0, 3, 10, 80]) + chance.choice([0, 0, 0, 30])
        records.append(Record(arrival_ms, chance.choice(delivering), "", event_ms))
    return records


def index_of(records: Sequence[Record], buckets: BucketGrid) -> ArrivalIndex:
    """Return the index that Spark would compute."""
    rows: dict[tuple[str, int, int], list[int]] = {}
    for record in records:
        number, within_ms = divmod(record.event_time_ms - buckets.first_cut_ms, buckets.step_ms)
        place = 2 * number + (within_ms >= buckets.second_cut_ms)
        width = record.arrival_time_ms // buckets.arrival_width_ms
        rows.setdefault((PARTITIONS[record.source_partition], place, width), []).append(record.arrival_time_ms)
    names = ("source_partition", "event_bucket", "arrival_bucket")
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    table = {name: pa.array(column) for name, column in zip(names, columns, strict=True)}
    if not rows:
        table["source_partition"] = pa.array([], pa.string())
    table |= {
        "first_arrival_ms": pa.array([min(each) for each in rows.values()], pa.int64()),
        "last_arrival_ms": pa.array([max(each) for each in rows.values()], pa.int64()),
    }
    return ArrivalIndex(pa.table(table))


def random_emission(chance: random.Random) -> Emission:
    topology = chance.choice(list(Topology))
    kind = chance.choice([StrategyKind.BOUNDED, StrategyKind.MONOTONOUS])
    idle_timeout_ms = 0 if topology is Topology.SUBTASKS else chance.choice([0, 7, 25, 100])
    strategy = WatermarkStrategy(kind, chance.choice([0, 4, 33]), chance.choice([1, 5, 20]), idle_timeout_ms)
    if not idle_timeout_ms and topology is not Topology.OPERATOR and chance.random() < 0.5:
        return Emission.from_sources(
            [UnionSource("x", strategy, (0, 2)), UnionSource("y", strategy, (1,))], topology
        )
    return Emission(strategy, topology)


def random_window(chance: random.Random) -> FixedWindow:
    windows: list[FixedWindow] = [
        Tumbling(10),
        Tumbling(30, -7),
        Sliding(40, 15, 3),
        Sliding(5, 20),
        Cumulate(30, 10, 4),
    ]
    return chance.choice(windows)


@pytest.mark.parametrize("seed", range(400))
def test_firing_and_cleanup_times_from_the_index_equal_the_reference(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:  # windows with the same positions are one stretch, as in a long range
        monkeypatch.setattr(firing_times, "_MAX_LISTED_WINDOWS", 0)
        monkeypatch.setattr(firing_times, "_LISTED_PER_STRETCH", 0)
    chance = random.Random(seed)  # noqa: S311 - a test's stream, not a secret
    records, emission, window = stream(chance), random_emission(chance), random_window(chance)
    lateness_ms = chance.choice([0, 3, 10, 45])
    last_ms = records[-1].arrival_time_ms if records else 100
    clock = SourceClock(chance.randint(-60, 60), emission.strategy.interval_ms, last_ms)
    grid = WindowGrid.from_window(window, Interval(-100, max(last_ms, 0) + 100))
    buckets = BucketGrid.from_window(window, emission, lateness_ms)
    assert emission.is_in_index
    timeline = compute_watermarks(records, emission, clock, range(len(PARTITIONS)))

    result = firing_times_from_index.firing_times_from_index(
        index_of(records, buckets), buckets, grid, emission, clock, lateness_ms, PARTITIONS
    )

    def listed(positions: ArrivalPositions) -> list[int]:
        """Return the position of each window."""
        stretches = np.searchsorted(result.numbers, np.arange(grid.count), side="right") - 1
        return [int(positions.arrival_time_ms[stretch]) for stretch in stretches]

    def reached(event_time_ms: int) -> int:
        """Return when a watermark first reached the time; `MAX_MS` if only the last one did."""
        ticks = (event.at_ms for event in timeline.events[:-1] if event.watermark_ms >= event_time_ms)
        return next(ticks, MAX_MS)

    ends_ms = grid.ends_ms.tolist()
    assert listed(result.fired) == [reached(end_ms - 1) for end_ms in ends_ms]
    assert listed(result.cleaned_up) == [reached(end_ms - 1 + lateness_ms) for end_ms in ends_ms]
