"""When the merged watermark reaches the end of each window, from the arrival index alone.

For a bounded generator per source partition the question *when does the watermark first reach x* has a simple
answer per partition: at the first tick that sees an event from `x + delay + 1` on. Over partitions it is the
latest of these ticks, among those that are not idle. Which are idle changes only where a partition falls silent
or wakes, and that does not depend on event times; between two such ticks the set is constant. So the first stretch
in which all active partitions have reached x decides. The rules are those of `core.merging.SplitSource`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backstream.eventtime.instants import MAX_MS
from backstream.eventtime.records import SourceClock
from backstream.eventtime.watermarks import Emission, Topology
from backstream.source.arrival_index import ArrivalIndex, BucketGrid, index_delay_ms, int64_array
from backstream.spark.watermarks.firing_times import ArrivalPositions, FiringTimes, WindowGrid

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NEVER = np.int64(MAX_MS)
"""A tick that does not come."""


def firing_times_from_index(
    index: ArrivalIndex,
    buckets: BucketGrid,
    grid: WindowGrid,
    emission: Emission,
    clock: SourceClock,
    allowed_lateness_ms: int,
    partitions: Sequence[str],
) -> FiringTimes:
    """Where in arrival order each window of the grid fires and is gone.

    Args:
        index: of every input file up to the plan's cut-off.
        buckets: how the index is cut; that of the same watermarks and windows.
        grid: the windows.
        emission: as `core.arrivals.is_told_by_index` accepts it.
        clock: when the source ticks.
        allowed_lateness_ms: how long a fired window is kept.
        partitions: all that the source reads, also those that never delivered.
    """
    if emission.topology is Topology.OPERATOR:
        rows = [index.rows.filter(pc.is_valid(index.rows["source_partition"]))]
    else:
        rows = [index.delivered.get(each, index.rows.slice(0, 0)) for each in partitions]
    is_idleness_known = emission.strategy.idle_timeout_ms and emission.topology is Topology.SPLITS
    stretches = _stretches(rows, emission, clock) if is_idleness_known else _always(len(rows))
    places = []
    for is_second, lateness_ms in ((False, 0), (True, allowed_lateness_ms)):
        first_cut_ms = grid.first_end_ms + index_delay_ms(emission) + lateness_ms
        first = buckets.bucket(first_cut_ms, is_second=is_second)
        reached = np.vstack([_reached(each, first, grid.count, clock) for each in rows])
        ticks = _merged(reached, stretches)
        places.append(
            ArrivalPositions(np.where(ticks == NEVER, NEVER, clock.start_ms + ticks * clock.interval_ms))
        )
    return FiringTimes(grid, *places)


def _reached(mine: pa.Table, first: int, count: int, clock: SourceClock) -> Longs:
    """Per window number the first tick that sees an event of the partition from the window's cut on."""
    windows = (int64_array(mine["event_bucket"]) - first) // 2  # the last window whose cut the bucket is behind
    earliest_ms = np.full(count + 1, MAX_MS)
    is_behind_one = windows >= 0
    places = np.minimum(windows[is_behind_one], count)
    np.minimum.at(earliest_ms, places, int64_array(mine["first_arrival_ms"])[is_behind_one])
    from_cut_on_ms = np.minimum.accumulate(earliest_ms[::-1])[::-1][:count]
    return _ticks_seeing(from_cut_on_ms, clock)


def _ticks_seeing(arrivals_ms: Longs, clock: SourceClock) -> Longs:
    """The first tick after each arrival; `NEVER` where the clock has stopped by then."""
    is_known = arrivals_ms != MAX_MS
    elapsed_ms = np.where(is_known, np.maximum(arrivals_ms, clock.start_ms), clock.start_ms) - clock.start_ms
    ticks = elapsed_ms // clock.interval_ms + 1
    return np.where(is_known & (ticks <= clock.last_tick), ticks, NEVER)


@dataclass(frozen=True, slots=True)
class _Stretches:
    """Ticks `[begins[n], ends[n])` in which the same partitions are active: `is_active[partition, n]`."""

    begins: Longs
    ends: Longs
    is_active: Flags


def _always(partitions: int) -> _Stretches:
    return _Stretches(np.array([1]), np.array([NEVER]), np.full((partitions, 1), fill_value=True))


def _stretches(rows: Sequence[pa.Table], emission: Emission, clock: SourceClock) -> _Stretches:
    quiet = [idle_ticks(mine, emission, clock) for mine in rows]
    begins = np.unique(np.concatenate([np.array([1]), *(np.concatenate(each) for each in quiet)]))
    begins = begins[begins <= clock.last_tick] if clock.last_tick else begins[:1]
    is_active = np.vstack([~_covers(silent, begins) for silent in quiet])
    return _Stretches(begins, np.append(begins[1:], NEVER), is_active)


def idle_ticks(mine: pa.Table, emission: Emission, clock: SourceClock) -> tuple[Longs, Longs]:
    """Ticks `[begin, end)` in which the partition is idle, ascending.

    Within an arrival bucket it never is: that is no wider than the idle timeout.
    """
    by_bucket = mine.group_by("arrival_bucket").aggregate(
        [("first_arrival_ms", "min"), ("last_arrival_ms", "max")]
    )
    by_bucket = by_bucket.sort_by("arrival_bucket")
    first_seen = _ticks_seeing(int64_array(by_bucket["first_arrival_ms_min"]), clock)
    last_seen = _ticks_seeing(int64_array(by_bucket["last_arrival_ms_max"]), clock)
    first_seen, last_seen = first_seen[first_seen != NEVER], last_seen[last_seen != NEVER]
    wait = emission.strategy.idle_timeout_ms // clock.interval_ms + 2
    begins = np.concatenate([np.array([0]), last_seen]) + wait
    # The last tick with data may belong to a bucket that begins later than any tick.
    ends = np.concatenate([first_seen, np.full(1 + len(last_seen) - len(first_seen), NEVER)])
    is_silent = begins < ends
    return begins[is_silent], ends[is_silent]


def _covers(silences: tuple[Longs, Longs], ticks: Longs) -> Flags:
    begins, ends = silences
    if not len(begins):
        return np.zeros(len(ticks), dtype=bool)
    last = np.searchsorted(begins, ticks, side="right") - 1
    return np.asarray((last >= 0) & (ticks < ends[last]))


def _merged(reached: Longs, stretches: _Stretches) -> Longs:
    """Per window the first tick at which the merge has reached it.

    Args:
        reached: `[partition, window]`, the tick of each partition alone; it ascends with the window.
        stretches: when which partitions are active.
    """
    is_any_active: Flags = np.asarray(stretches.is_active.any(axis=0))
    inside = np.vstack([np.searchsorted(row, stretches.ends, side="left") for row in reached])
    least = np.where(stretches.is_active, inside, reached.shape[1]).min(axis=0)
    # All idle: the maximum over all of them counts (FLINK-38454).
    passed = np.maximum.accumulate(np.where(is_any_active, least, inside.max(axis=0)))
    stretch = np.searchsorted(passed, np.arange(reached.shape[1]), side="right")
    is_passed = stretch < len(passed)
    stretch = np.minimum(stretch, len(passed) - 1)
    latest = np.where(stretches.is_active[:, stretch], reached, 0).max(axis=0)
    ticks = np.where(is_any_active[stretch], latest, reached.min(axis=0))
    found = np.maximum(ticks, stretches.begins[stretch])
    return np.where(is_passed & (found != NEVER), found, NEVER)
