"""Watermarks that follow from the greatest event time of each partition and tick alone, merged by numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from backstream.core.generators import StrategyKind
from backstream.core.instants import MAX_MS, MIN_MS
from backstream.core.records import Clock
from backstream.core.watermarks import Emission
from backstream.spark.streams.heard import Heard, Longs, longs

_AT_ONCE = 32_768
"""Ticks merged in one go: few enough to stay near the processor while one partition after another is looked at."""


MOST_SPREAD = 2
"""Values are marked in a list of all from the least to the greatest, if that is at most so many times as long."""


def merged(cells: pa.Table, emission: Emission, clock: Clock, partitions: Sequence[str]) -> tuple[Longs, Longs]:
    """Bounded generators in one source, without a loop over records: the rises and their ticks.

    Per partition the running maximum is a step function of the tick, and idleness depends only on the last
    tick with data. Both can change only at ticks with data and where a timeout runs out, so it is enough to
    evaluate the merge there. It can fall when a partition resumes, hence the running maximum at the end.

    Args:
        cells: rows per `source_partition` and `block`, each with an `event_time_ms`: the greatest one holds.
        emission: monotonous or bounded, at ticks.
        clock: when the source ticks.
        partitions: all that the source reads, also those that never delivered.
    """
    delay_ms = emission.strategy.delay_ms if emission.strategy.kind is StrategyKind.BOUNDED else 0
    steps = [_Steps.of(seen, maxima_ms, delay_ms) for seen, maxima_ms in _seen(cells, partitions, clock)]
    wait = _idle_after(emission, clock)
    ticks = _changes([each.ticks for each in steps], wait, clock)
    if not len(ticks):
        return longs([]), longs([])
    pieces = (ticks[start : start + _AT_ONCE] for start in range(0, len(ticks), _AT_ONCE))
    running_ms = np.maximum.accumulate(np.concatenate([_merged_at(piece, steps, wait) for piece in pieces]))
    rises = running_ms > np.concatenate([longs([MIN_MS]), running_ms[:-1]])
    return running_ms[rises], ticks[rises]


@dataclass(frozen=True, slots=True)
class _Steps:
    """A partition alone: ticks that see records of it, ascending, and its watermark before and from each on."""

    ticks: Longs
    watermarks_ms: Longs

    @classmethod
    def of(cls, ticks: Longs, maxima_ms: Longs, delay_ms: int) -> _Steps:
        """From the greatest event time seen by each tick."""
        floor_ms = longs([MIN_MS + delay_ms + 1])
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
            last_seen = np.where(position > 0, each.ticks[position - 1], 0) if len(each.ticks) else longs([0])
            is_idle = ticks >= last_seen + wait
            watermark_ms = np.where(is_idle, MAX_MS, watermark_ms)
            is_all_idle &= is_idle
        np.minimum(least_ms, watermark_ms, out=least_ms)
    return np.where(is_all_idle, greatest_ms, least_ms)


def _seen(cells: pa.Table, partitions: Sequence[str], clock: Clock) -> Iterator[tuple[Longs, Longs]]:
    """Per partition the ticks that see records of it, ascending, and the greatest event time seen by each."""
    named = cells["source_partition"].combine_chunks().dictionary_encode()
    of_row, numbers = named.indices.to_numpy(), {name: at for at, name in enumerate(named.dictionary.to_pylist())}
    ticks, event_ms = cells["block"].to_numpy() + 1, cells["event_time_ms"].to_numpy()
    for partition in partitions:
        mine = np.flatnonzero((of_row == numbers.get(partition, -1)) & (ticks <= clock.last_tick))
        ordered, greatest_ms = _in_order(ticks[mine], event_ms[mine])
        yield ordered, np.maximum.accumulate(greatest_ms)


def _in_order(ticks: Longs, event_ms: Longs) -> tuple[Longs, Longs]:
    """Ticks, ascending, and what belongs to each; of what belongs to the same tick, perhaps the greatest alone."""
    if not _is_dense(ticks):
        order = np.argsort(ticks)
        return ticks[order], event_ms[order]
    there = distinct(ticks)
    greatest_ms = np.full(int(there[-1] - there[0]) + 1, MIN_MS)
    np.maximum.at(greatest_ms, ticks - there[0], event_ms)
    return there, greatest_ms[there - there[0]]


def _idle_after(emission: Emission, clock: Clock) -> int | None:
    """How many ticks after the last one that saw a record a partition is idle; None: never."""
    if not emission.strategy.idle_timeout_ms or not clock.interval_ms:
        return None
    return emission.strategy.idle_timeout_ms // clock.interval_ms + 2


def _changes(seen: Sequence[Longs], wait: int | None, clock: Clock) -> Longs:
    """Every tick at which the merge can change: ticks with data, and where a timeout runs out before the next."""
    found = [*seen]
    for each in seen if wait is not None else ():
        runs_out, following = np.concatenate([longs([0]), each]) + wait, np.concatenate([each, longs([MAX_MS])])
        found.append(runs_out[runs_out < following])
    ticks = distinct(np.concatenate([longs([]), *found]))
    return ticks[ticks <= clock.last_tick]


def distinct(values: Longs) -> Longs:
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


def batched(cells: pa.Table, emission: Emission, clock: Clock, blocks: Longs) -> Heard:
    """One maximum over all partitions, told one batch late: as if each had arrived a block later. See `merged`."""
    together = cells.set_column(
        cells.schema.get_field_index("source_partition"), "source_partition", pa.repeat("all", cells.num_rows)
    )
    later = together.set_column(
        together.schema.get_field_index("block"), "block", pa.compute.add(together["block"], 1)
    )
    never_idle = replace(emission, strategy=replace(emission.strategy, idle_timeout_ms=0))
    watermark_ms, ticks = merged(later, never_idle, clock, ["all"])
    return Heard(watermark_ms, ticks, blocks, is_final=True)
