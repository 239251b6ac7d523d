"""Merge the watermarks of bounded generators with numpy, from the greatest event time per partition and tick."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from backstream.eventtime.emission import Emission
from backstream.eventtime.instants import MAX_MS, MIN_MS
from backstream.eventtime.records import SourceClock
from backstream.eventtime.union import source_name
from backstream.watermarks.timeline import Longs, WatermarkTimeline, to_int64

_TICKS_PER_BATCH = 32_768
"""The number of ticks merged at a time, small enough for the cache of the processor."""


MAX_SPREAD = 2
"""The largest range of dense values as a multiple of their number; dense values are marked, not sorted."""


def merge_maxima(
    cells: pa.Table, emission: Emission, clock: SourceClock, partitions: Sequence[str]
) -> tuple[Longs, Longs]:
    """Return the rises of a whole stream, and their ticks; see `TickMerger`."""
    return TickMerger(emission, clock, partitions).advance_to(clock.last_tick, cells)


@dataclass(slots=True)
class TickMerger:
    """The merged watermark of one bounded generator per source partition, computed in ranges of ticks.

    Per partition, the running maximum is a step function of the tick, and idleness depends only on the last tick
    with data. Both can change only at ticks with data and when an idle timeout expires. So the merge is evaluated
    at these ticks only. It can fall when a partition resumes, therefore the result is its running maximum.

    The sources of a union tick one after the other, and the gate emits a minimum after each. So a tick of a union
    can have several rises.

    Args:
        emission: a monotonous or bounded strategy that emits at ticks, or a union of them that `is_minimum`.
        clock: the clock of the source.
        partitions: all partitions that the source reads, including those without records so far.
    """

    emission: Emission
    clock: SourceClock
    partitions: Sequence[str]
    _last_tick: int = 0
    _watermark_ms: int = MIN_MS
    _source_watermarks_ms: list[int] = field(default_factory=list)
    """The watermark of each source at the last tick."""
    _last_maxima: dict[str, _LastMaximum] = field(default_factory=dict)

    def advance_to(self, last_tick: int, cells: pa.Table) -> tuple[Longs, Longs]:
        """Return the rises at the ticks up to and including this one that weren't merged yet, and their ticks.

        Args:
            last_tick: the last tick to merge; ticks after the clock's last tick are ignored.
            cells: the data that these ticks see and earlier ticks didn't: rows per `source_partition` and `block`
                with `event_time_ms`. If a partition and block has several rows, the greatest event time is used.
        """
        last_tick = min(last_tick, self.clock.last_tick)
        maxima = [self._add_maxima(*data) for data in _data_by_partition(cells, self.partitions, last_tick)]
        idle_after = _idle_after(self.emission, self.clock)
        ticks = _find_changes([partition.ticks for partition in maxima], idle_after)
        ticks = ticks[(ticks > self._last_tick) & (ticks <= last_tick)]
        self._last_tick = max(self._last_tick, last_tick)
        if not len(ticks):
            return to_int64([]), to_int64([])
        starts = range(0, len(ticks), _TICKS_PER_BATCH)
        merged_ms = [self._merge_at(ticks[start : start + _TICKS_PER_BATCH], maxima) for start in starts]
        running_ms = np.maximum.accumulate(np.concatenate([to_int64([self._watermark_ms]), *merged_ms]))
        self._watermark_ms = int(running_ms[-1])
        is_rise = running_ms[1:] > running_ms[:-1]
        return running_ms[1:][is_rise], np.repeat(ticks, len(self.emission.strategies))[is_rise]

    def _merge_at(self, ticks: Longs, maxima: Sequence[_PartitionMaxima]) -> Longs:
        """Return the merged watermark at each tick after each source, which is not yet a running maximum."""
        if not self.emission.sources:
            return _merge_at(ticks, maxima, _idle_after(self.emission, self.clock))
        sources = self.emission.with_partitions(self.partitions).sources
        before_ms = to_int64(self._source_watermarks_ms or [MIN_MS] * len(sources))
        at_tick_ms = np.stack(
            [_merge_at(ticks, [maxima[number] for number in source.partitions], None) for source in sources]
        )
        self._source_watermarks_ms = at_tick_ms[:, -1].tolist()
        before_tick_ms = np.concatenate([before_ms[:, np.newaxis], at_tick_ms[:, :-1]], axis=1)
        # Sources up to a position have ticked; those after it have the watermark of the tick before.
        ticked_ms = np.minimum.accumulate(at_tick_ms, axis=0)
        waiting_ms = np.minimum.accumulate(before_tick_ms[::-1], axis=0)[::-1]
        merged_ms = np.minimum(ticked_ms, np.concatenate([waiting_ms[1:], np.full((1, len(ticks)), MAX_MS)]))
        return np.asarray(merged_ms.T.ravel())

    def _add_maxima(self, partition: str, ticks: Longs, greatest_ms: Longs) -> _PartitionMaxima:
        """Return the maxima of a partition from its last earlier maximum on, and store the new last one."""
        if (last := self._last_maxima.get(partition)) is not None:
            ticks, greatest_ms = np.append(last.tick, ticks), np.append(last.greatest_ms, greatest_ms)
        maxima_ms = np.maximum.accumulate(greatest_ms)
        if len(ticks):
            self._last_maxima[partition] = _LastMaximum(int(ticks[-1]), int(maxima_ms[-1]))
        return _PartitionMaxima.from_maxima(ticks, maxima_ms, self._delay_ms(partition))

    def _delay_ms(self, partition: str) -> int:
        """Return the delay of the source of a partition."""
        by_source = {source.name: source.strategy for source in self.emission.sources}
        return by_source.get(source_name(partition), self.emission.strategy).bound_ms


class _LastMaximum(NamedTuple):
    """The last tick that saw records of a partition, and the greatest event time at that tick."""

    tick: int
    greatest_ms: int


@dataclass(frozen=True, slots=True)
class _PartitionMaxima:
    """The ticks that see records of a partition, ascending; its watermark before the first and from each on."""

    ticks: Longs
    watermarks_ms: Longs

    @classmethod
    def from_maxima(cls, ticks: Longs, maxima_ms: Longs, delay_ms: int) -> _PartitionMaxima:
        """Return the watermarks for the greatest event time at each tick."""
        floor_ms = to_int64([MIN_MS + delay_ms + 1])
        return cls(ticks, np.concatenate([floor_ms, np.maximum(maxima_ms, floor_ms)]) - delay_ms - 1)

    def count_until(self, ticks: Longs) -> Longs:
        """Return how many ticks with data there are up to each of these ticks.

        Args:
            ticks: ascending. Every tick with data between the first and the last one is among them.
        """
        first, last = np.searchsorted(self.ticks, [ticks[0], ticks[-1] + 1])
        counts = np.bincount(np.searchsorted(ticks, self.ticks[first:last]), minlength=len(ticks))
        return np.asarray(first + np.cumsum(counts))


def _merge_at(ticks: Longs, maxima: Sequence[_PartitionMaxima], idle_after: int | None) -> Longs:
    """Return the merged watermark at each of these ticks, which is not yet a running maximum."""
    least_ms, greatest_ms = np.full(len(ticks), MAX_MS), np.full(len(ticks), MIN_MS)
    is_all_idle = np.full(len(ticks), fill_value=True)
    for partition in maxima:
        count = partition.count_until(ticks)
        watermark_ms = partition.watermarks_ms[count]
        np.maximum(greatest_ms, watermark_ms, out=greatest_ms)
        if idle_after is None:
            is_all_idle[:] = False
        else:
            last_seen = (
                np.where(count > 0, partition.ticks[count - 1], 0) if len(partition.ticks) else to_int64([0])
            )
            is_idle = ticks >= last_seen + idle_after
            watermark_ms = np.where(is_idle, MAX_MS, watermark_ms)
            is_all_idle &= is_idle
        np.minimum(least_ms, watermark_ms, out=least_ms)
    return np.where(is_all_idle, greatest_ms, least_ms)


def _data_by_partition(
    cells: pa.Table, partitions: Sequence[str], last_tick: int
) -> Iterator[tuple[str, Longs, Longs]]:
    """Yield each partition, the ticks that see its records, ascending, and the greatest event time at each."""
    # Without a dictionary, the names of many cells exceed the size of one text array.
    names = cells["source_partition"].dictionary_encode().combine_chunks()
    number_of_row = names.indices.to_numpy()
    numbers = {name: number for number, name in enumerate(names.dictionary.to_pylist())}
    ticks, event_ms = cells["block"].to_numpy() + 1, cells["event_time_ms"].to_numpy()
    for partition in partitions:
        rows = np.flatnonzero((number_of_row == numbers.get(partition, -1)) & (ticks <= last_tick))
        yield partition, *_sort_by_tick(ticks[rows], event_ms[rows])


def _sort_by_tick(ticks: Longs, event_ms: Longs) -> tuple[Longs, Longs]:
    """Return the ticks, ascending, with their event times; dense ticks keep only their greatest event time."""
    if not _is_dense(ticks):
        order = np.argsort(ticks)
        return ticks[order], event_ms[order]
    unique = sorted_unique(ticks)
    greatest_ms = np.full(int(unique[-1] - unique[0]) + 1, MIN_MS)
    np.maximum.at(greatest_ms, ticks - unique[0], event_ms)
    return unique, greatest_ms[unique - unique[0]]


def _idle_after(emission: Emission, clock: SourceClock) -> int | None:
    """Return after how many ticks without a record a partition is idle; None if it never is."""
    if not emission.strategy.idle_timeout_ms or not clock.interval_ms:
        return None
    return emission.strategy.idle_timeout_ms // clock.interval_ms + 2


def _find_changes(ticks_with_data: Sequence[Longs], idle_after: int | None) -> Longs:
    """Return every tick at which the merge can change: ticks with data, and ticks at which a timeout expires."""
    changes = [*ticks_with_data]
    for ticks in ticks_with_data if idle_after is not None else ():
        expiry = np.concatenate([to_int64([0]), ticks]) + idle_after
        next_data = np.concatenate([ticks, to_int64([MAX_MS])])
        changes.append(expiry[expiry < next_data])
    return sorted_unique(np.concatenate([to_int64([]), *changes]))


def sorted_unique(values: Longs) -> Longs:
    """Return each value once, ascending; marking or sorting is much faster than the hashing of `np.unique`."""
    if _is_dense(values):
        first = values.min()
        is_present = np.zeros(int(values.max() - first) + 1, dtype=bool)
        is_present[values - first] = True
        marked: Longs = np.flatnonzero(is_present) + first
        return marked
    ordered: Longs = np.sort(values)
    is_first = np.ones(len(ordered), dtype=bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first]


def _is_dense(values: Longs) -> bool:
    """Return whether the values are so dense that marking them is faster than sorting."""
    return len(values) > 0 and int(values.max()) - int(values.min()) < len(values) * MAX_SPREAD


def merge_micro_batches(
    cells: pa.Table, emission: Emission, clock: SourceClock, blocks: Longs
) -> WatermarkTimeline:
    """Return the watermarks of micro-batches: one maximum over all partitions, which the next batch sees.

    It is computed as if each record had arrived one block later, in one partition that is never idle.
    """
    single_partition = cells.set_column(
        cells.schema.get_field_index("source_partition"), "source_partition", pa.repeat("all", cells.num_rows)
    )
    one_block_later = single_partition.set_column(
        single_partition.schema.get_field_index("block"), "block", pa.compute.add(single_partition["block"], 1)
    )
    never_idle = replace(emission, strategy=replace(emission.strategy, idle_timeout_ms=0))
    watermark_ms, ticks = merge_maxima(one_block_later, never_idle, clock, ["all"])
    return WatermarkTimeline(watermark_ms, ticks, blocks, is_final=True)
