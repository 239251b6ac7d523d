"""Compute the firing times of windows from the arrival index alone, without reading an event.

A bounded generator of one source partition reaches a watermark x at the first tick that sees an event of
`x + delay + 1` or later. The merged watermark reaches x at the latest of these ticks over all active partitions.
The set of active partitions changes only when a partition becomes idle or active, which doesn't depend on event
times. So time is cut into phases with constant sets, and the first phase in which all active partitions have
reached x decides. `eventtime.watermark_merging.SplitWatermarkMultiplexer` defines the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backstream.definition.model import Definition
from backstream.eventtime.emission import Emission, Topology
from backstream.eventtime.instants import MAX_MS
from backstream.eventtime.records import SourceClock
from backstream.eventtime.union import complete_partitions
from backstream.source.arrival_index import ArrivalIndex, BucketGrid, index_delay_ms, int64_array
from backstream.watermarks.firing_times import ArrivalPositions, FiringTimes, WindowGrid

Longs = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]

_NEVER = np.int64(MAX_MS)
"""A tick after the last one."""


def firing_times_from_index(
    index: ArrivalIndex,
    buckets: BucketGrid,
    grid: WindowGrid,
    emission: Emission,
    clock: SourceClock,
    allowed_lateness_ms: int,
    partitions: Sequence[str],
) -> FiringTimes:
    """Return the arrival positions at which each window of the grid fires, and at which its state is removed.

    Args:
        index: the index of all input files up to the plan's cut-off.
        buckets: the buckets of the index, made for the same watermarks and windows.
        grid: the windows.
        emission: an emission that `is_in_index`.
        clock: the clock of the source.
        allowed_lateness_ms: the time for which a fired window is kept.
        partitions: all partitions that the source reads, including those without records.
    """
    if emission.topology is Topology.OPERATOR:
        rows = [index.rows.filter(pc.is_valid(index.rows["source_partition"]))]
    else:
        rows = [index.rows_by_partition.get(partition, index.rows.slice(0, 0)) for partition in partitions]
    has_idleness = emission.strategy.idle_timeout_ms and emission.topology is Topology.SPLITS
    phases = _find_phases(rows, emission, clock) if has_idleness else _single_phase(len(rows))
    first_buckets = [
        buckets.bucket(grid.first_end_ms + index_delay_ms(emission) + lateness_ms, is_second=is_second)
        for is_second, lateness_ms in ((False, 0), (True, allowed_lateness_ms))
    ]
    reached_by = [[_last_windows(partition, first) for partition in rows] for first in first_buckets]
    numbers = grid.list_stretches(*(windows + 1 for each in reached_by for windows in each))
    positions = []
    for windows_by_partition in reached_by:
        reached = np.vstack(
            [
                _find_reaching_ticks(partition, windows, numbers, clock)
                for partition, windows in zip(rows, windows_by_partition, strict=True)
            ]
        )
        ticks = _merge_partitions(reached, phases)
        positions.append(
            ArrivalPositions(np.where(ticks == _NEVER, _NEVER, clock.start_ms + ticks * clock.interval_ms))
        )
    fired, cleaned_up = positions
    return FiringTimes(grid, numbers, fired, cleaned_up)


def compute_firing_times(
    definition: Definition, index: ArrivalIndex, buckets: BucketGrid, grid: WindowGrid, clock: SourceClock
) -> FiringTimes:
    """Return the firing times of windows from the arrival index of all input files.

    Args:
        definition: a definition whose emission `is_in_index`.
        index: the index of all input files.
        buckets: the buckets of the index.
        grid: the windows.
        clock: the clock of the source.
    """
    emission, partitions = definition.emission, list_source_partitions(definition, index)
    return firing_times_from_index(index, buckets, grid, emission, clock, definition.lateness.allowed, partitions)


def list_source_partitions(definition: Definition, index: ArrivalIndex) -> list[str]:
    """Return all partitions that the stream reads, sorted."""
    expected = {*definition.quality.named_partitions}
    return complete_partitions(definition.emission.source_names, expected | index.partitions())


def _last_windows(partition: pa.Table, first: int) -> Longs:
    """Return per row of the index the last window whose cut is at or before the row's bucket of event time."""
    return (int64_array(partition["event_bucket"]) - first) // 2


def _find_reaching_ticks(partition: pa.Table, windows: Longs, numbers: Longs, clock: SourceClock) -> Longs:
    """Return per stretch of windows the first tick that sees an event of the partition at or after their cuts.

    Args:
        partition: the rows of the index of one source partition.
        windows: the result of `_last_windows`; each is the last one of its stretch.
        numbers: the first windows of the stretches.
        clock: the clock of the source.
    """
    earliest_ms = np.full(len(numbers), MAX_MS)
    is_after_a_cut = windows >= 0
    stretches = np.searchsorted(numbers, windows[is_after_a_cut], side="right") - 1
    np.minimum.at(earliest_ms, stretches, int64_array(partition["first_arrival_ms"])[is_after_a_cut])
    return _find_first_ticks(np.minimum.accumulate(earliest_ms[::-1])[::-1], clock)


def _find_first_ticks(arrivals_ms: Longs, clock: SourceClock) -> Longs:
    """Return the first tick after each arrival; `_NEVER` if the clock has stopped by then."""
    has_arrival = arrivals_ms != MAX_MS
    elapsed_ms = np.where(has_arrival, np.maximum(arrivals_ms, clock.start_ms), clock.start_ms) - clock.start_ms
    ticks = elapsed_ms // clock.interval_ms + 1
    return np.where(has_arrival & (ticks <= clock.last_tick), ticks, _NEVER)


@dataclass(frozen=True, slots=True)
class _Phases:
    """Ranges of ticks `[begins[n], ends[n])` with the same active partitions: `is_active[partition, n]`."""

    begins: Longs
    ends: Longs
    is_active: _Flags


def _single_phase(partitions: int) -> _Phases:
    return _Phases(np.array([1]), np.array([_NEVER]), np.full((partitions, 1), fill_value=True))


def _find_phases(rows: Sequence[pa.Table], emission: Emission, clock: SourceClock) -> _Phases:
    idle_ranges = [idle_ticks(partition, emission, clock) for partition in rows]
    begins = np.unique(np.concatenate([np.array([1]), *(np.concatenate(ranges) for ranges in idle_ranges)]))
    begins = begins[begins <= clock.last_tick] if clock.last_tick else begins[:1]
    is_active = np.vstack([~_contain(ranges, begins) for ranges in idle_ranges])
    return _Phases(begins, np.append(begins[1:], _NEVER), is_active)


def idle_ticks(partition: pa.Table, emission: Emission, clock: SourceClock) -> tuple[Longs, Longs]:
    """Return the ranges of ticks `[begin, end)` in which the partition is idle, ascending.

    A partition is never idle within an arrival bucket, since a bucket isn't longer than the idle timeout.
    """
    by_bucket = partition.group_by("arrival_bucket").aggregate(
        [("first_arrival_ms", "min"), ("last_arrival_ms", "max")]
    )
    by_bucket = by_bucket.sort_by("arrival_bucket")
    first_seen = _find_first_ticks(int64_array(by_bucket["first_arrival_ms_min"]), clock)
    last_seen = _find_first_ticks(int64_array(by_bucket["last_arrival_ms_max"]), clock)
    first_seen, last_seen = first_seen[first_seen != _NEVER], last_seen[last_seen != _NEVER]
    idle_after = emission.strategy.idle_timeout_ms // clock.interval_ms + 2
    begins = np.concatenate([np.array([0]), last_seen]) + idle_after
    # The last tick with data may be of a bucket that begins after the last tick.
    ends = np.concatenate([first_seen, np.full(1 + len(last_seen) - len(first_seen), _NEVER)])
    is_idle = begins < ends
    return begins[is_idle], ends[is_idle]


def _contain(ranges: tuple[Longs, Longs], ticks: Longs) -> _Flags:
    """Return for each tick whether one of the ranges contains it."""
    begins, ends = ranges
    if not len(begins):
        return np.zeros(len(ticks), dtype=bool)
    last = np.searchsorted(begins, ticks, side="right") - 1
    return np.asarray((last >= 0) & (ticks < ends[last]))


def _merge_partitions(reached: Longs, phases: _Phases) -> Longs:
    """Return per stretch of windows the first tick at which the merged watermark reaches it.

    Args:
        reached: the tick of each partition alone as `[partition, stretch]`; it ascends with the stretch.
        phases: the active partitions over time.
    """
    is_any_active: _Flags = np.asarray(phases.is_active.any(axis=0))
    # The number of stretches that each partition has reached by the end of each phase.
    counts = np.vstack([np.searchsorted(row, phases.ends, side="left") for row in reached])
    merged = np.where(phases.is_active, counts, reached.shape[1]).min(axis=0)
    # If all partitions are idle, the maximum over all of them counts (FLINK-38454).
    stretches_reached = np.maximum.accumulate(np.where(is_any_active, merged, counts.max(axis=0)))
    phase = np.searchsorted(stretches_reached, np.arange(reached.shape[1]), side="right")
    is_reached = phase < len(stretches_reached)
    phase = np.minimum(phase, len(stretches_reached) - 1)
    latest = np.where(phases.is_active[:, phase], reached, 0).max(axis=0)
    ticks = np.where(is_any_active[phase], latest, reached.min(axis=0))
    ticks = np.maximum(ticks, phases.begins[phase])
    return np.where(is_reached & (ticks != _NEVER), ticks, _NEVER)
