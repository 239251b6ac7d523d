"""Watermarks that follow from the greatest event time of each partition and tick alone, merged by numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from backstream.eventtime.instants import MAX_MS, MIN_MS
from backstream.eventtime.records import SourceClock
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.eventtime.watermarks import Emission
from backstream.spark.watermarks.timeline import Longs, WatermarkTimeline, to_int64

_AT_ONCE = 32_768
"""Ticks merged in one go: few enough to stay near the processor while one partition after another is looked at."""


MOST_SPREAD = 2
"""Values are marked in a list of all from the least to the greatest, if that is at most so many times as long."""


def merge_maxima(
    cells: pa.Table, emission: Emission, clock: SourceClock, partitions: Sequence[str]
) -> tuple[Longs, Longs]:
    """The rises of a whole stream, and their ticks; see `Merge`."""
    return TickMerger(emission, clock, partitions).advance_to(clock.last_tick, cells)


@dataclass(slots=True)
class TickMerger:
    """Bounded generators in one source, without a loop over records; one stretch of ticks after the other.

    Per partition the running maximum is a step function of the tick, and idleness depends only on the last
    tick with data. Both can change only at ticks with data and where a timeout runs out, so it is enough to
    evaluate the merge there. It can fall when a partition resumes, hence the running maximum at the end.

    Args:
        emission: monotonous or bounded, at ticks.
        clock: when the source ticks.
        partitions: all that the source reads, also those that never delivered, or did not yet.
    """

    emission: Emission
    clock: SourceClock
    partitions: Sequence[str]
    _ticked: int = 0
    _watermark_ms: int = MIN_MS
    _begun: dict[str, _Step] = field(default_factory=dict)

    def advance_to(self, last_tick: int, cells: pa.Table) -> tuple[Longs, Longs]:
        """The rises at the next ticks up to this one, and the ticks.

        Args:
            last_tick: no tick of the clock that comes later is heard.
            cells: what these ticks see and those before did not: rows per `source_partition` and `block`, each
                with an `event_time_ms`, of which the greatest holds.
        """
        last_tick = min(last_tick, self.clock.last_tick)
        steps = [self._steps(*each) for each in _seen(cells, self.partitions, last_tick)]
        wait = _idle_after(self.emission, self.clock)
        ticks = _changes([each.ticks for each in steps], wait)
        ticks = ticks[(ticks > self._ticked) & (ticks <= last_tick)]
        self._ticked = max(self._ticked, last_tick)
        if not len(ticks):
            return to_int64([]), to_int64([])
        pieces = (ticks[start : start + _AT_ONCE] for start in range(0, len(ticks), _AT_ONCE))
        found_ms = [_merged_at(piece, steps, wait) for piece in pieces]
        running_ms = np.maximum.accumulate(np.concatenate([to_int64([self._watermark_ms]), *found_ms]))
        self._watermark_ms = int(running_ms[-1])
        rises = running_ms[1:] > running_ms[:-1]
        return running_ms[1:][rises], ticks[rises]

    def _steps(self, partition: str, ticks: Longs, greatest_ms: Longs) -> _Steps:
        """Of a partition, beginning with its last step before; that one is noted for the ticks to come."""
        if (begun := self._begun.get(partition)) is not None:
            ticks, greatest_ms = np.append(begun.tick, ticks), np.append(begun.greatest_ms, greatest_ms)
        maxima_ms = np.maximum.accumulate(greatest_ms)
        if len(ticks):
            self._begun[partition] = _Step(int(ticks[-1]), int(maxima_ms[-1]))
        strategy = self.emission.strategy
        return _Steps.from_maxima(
            ticks, maxima_ms, strategy.delay_ms if strategy.kind is StrategyKind.BOUNDED else 0
        )


class _Step(NamedTuple):
    """The last tick that saw records of a partition, and the greatest event time seen by then."""

    tick: int
    greatest_ms: int


@dataclass(frozen=True, slots=True)
class _Steps:
    """A partition alone: ticks that see records of it, ascending, and its watermark before and from each on."""

    ticks: Longs
    watermarks_ms: Longs

    @classmethod
    def from_maxima(cls, ticks: Longs, maxima_ms: Longs, delay_ms: int) -> _Steps:
        """From the greatest event time seen by each tick."""
        floor_ms = to_int64([MIN_MS + delay_ms + 1])
        return cls(ticks, np.concatenate([floor_ms, np.maximum(maxima_ms, floor_ms)]) - delay_ms - 1)

    def positions(self, ticks: Longs) -> Longs:
        """How many steps are taken at each of these ticks: ascending, and none in between is a step."""
        first, last = np.searchsorted(self.ticks, [ticks[0], ticks[-1] + 1])
        taken = np.bincount(np.searchsorted(ticks, self.ticks[first:last]), minlength=len(ticks))
        return np.asarray(first + np.cumsum(taken))


def _merged_at(ticks: Longs, steps: Sequence[_Steps], wait: int | None) -> Longs:
    """The merge at some of the ticks at which it can change, as if nothing had come before them."""
    least_ms, greatest_ms = np.full(len(ticks), MAX_MS), np.full(len(ticks), MIN_MS)
    is_all_idle = np.full(len(ticks), fill_value=True)
    for each in steps:
        position = each.positions(ticks)
        watermark_ms = each.watermarks_ms[position]
        np.maximum(greatest_ms, watermark_ms, out=greatest_ms)
        if wait is None:
            is_all_idle[:] = False
        else:
            last_seen = np.where(position > 0, each.ticks[position - 1], 0) if len(each.ticks) else to_int64([0])
            is_idle = ticks >= last_seen + wait
            watermark_ms = np.where(is_idle, MAX_MS, watermark_ms)
            is_all_idle &= is_idle
        np.minimum(least_ms, watermark_ms, out=least_ms)
    return np.where(is_all_idle, greatest_ms, least_ms)


def _seen(cells: pa.Table, partitions: Sequence[str], last_tick: int) -> Iterator[tuple[str, Longs, Longs]]:
    """Each partition, the ticks that see records of it, ascending, and the greatest event time that each sees."""
    # Names of very many cells together are more than one array of text can hold.
    named = cells["source_partition"].dictionary_encode().combine_chunks()
    of_row, numbers = named.indices.to_numpy(), {name: at for at, name in enumerate(named.dictionary.to_pylist())}
    ticks, event_ms = cells["block"].to_numpy() + 1, cells["event_time_ms"].to_numpy()
    for partition in partitions:
        mine = np.flatnonzero((of_row == numbers.get(partition, -1)) & (ticks <= last_tick))
        yield partition, *_in_order(ticks[mine], event_ms[mine])


def _in_order(ticks: Longs, event_ms: Longs) -> tuple[Longs, Longs]:
    """Ticks, ascending, and what belongs to each; of what belongs to the same tick, perhaps the greatest alone."""
    if not _is_dense(ticks):
        order = np.argsort(ticks)
        return ticks[order], event_ms[order]
    there = sorted_unique(ticks)
    greatest_ms = np.full(int(there[-1] - there[0]) + 1, MIN_MS)
    np.maximum.at(greatest_ms, ticks - there[0], event_ms)
    return there, greatest_ms[there - there[0]]


def _idle_after(emission: Emission, clock: SourceClock) -> int | None:
    """How many ticks after the last one that saw a record a partition is idle; None: never."""
    if not emission.strategy.idle_timeout_ms or not clock.interval_ms:
        return None
    return emission.strategy.idle_timeout_ms // clock.interval_ms + 2


def _changes(seen: Sequence[Longs], wait: int | None) -> Longs:
    """Every tick at which the merge can change: ticks with data, and where a timeout runs out before the next."""
    found = [*seen]
    for each in seen if wait is not None else ():
        runs_out, following = (
            np.concatenate([to_int64([0]), each]) + wait,
            np.concatenate([each, to_int64([MAX_MS])]),
        )
        found.append(runs_out[runs_out < following])
    return sorted_unique(np.concatenate([to_int64([]), *found]))


def sorted_unique(values: Longs) -> Longs:
    """Each value once, ascending; `np.unique` hashes, which takes many times as long as to mark or to sort."""
    if _is_dense(values):
        first = values.min()
        is_there = np.zeros(int(values.max() - first) + 1, dtype=bool)
        is_there[values - first] = True
        marked: Longs = np.flatnonzero(is_there) + first
        return marked
    ordered: Longs = np.sort(values)
    is_first = np.ones(len(ordered), dtype=bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first]


def _is_dense(values: Longs) -> bool:
    """Whether the values lie so close together that it is quicker to mark each than to sort them."""
    return len(values) > 0 and int(values.max()) - int(values.min()) < len(values) * MOST_SPREAD


def merge_micro_batches(
    cells: pa.Table, emission: Emission, clock: SourceClock, blocks: Longs
) -> WatermarkTimeline:
    """One maximum over all partitions, told one batch late: as if each had arrived a block later. See `merged`."""
    together = cells.set_column(
        cells.schema.get_field_index("source_partition"), "source_partition", pa.repeat("all", cells.num_rows)
    )
    later = together.set_column(
        together.schema.get_field_index("block"), "block", pa.compute.add(together["block"], 1)
    )
    never_idle = replace(emission, strategy=replace(emission.strategy, idle_timeout_ms=0))
    watermark_ms, ticks = merge_maxima(later, never_idle, clock, ["all"])
    return WatermarkTimeline(watermark_ms, ticks, blocks, is_final=True)
