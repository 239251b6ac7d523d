"""Store the watermarks of one stream for lookups by tick and by event time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from backstream.eventtime.instants import MAX_MS, MIN_MS
from backstream.eventtime.records import SourceClock
from backstream.eventtime.watermarks import MAX_WATERMARK_EVENTS, too_many_watermarks_error

Longs = npt.NDArray[np.int64]


def to_int64(values: Sequence[int]) -> Longs:
    """Return the values as an array of 64-bit integers."""
    return np.array(values, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class WatermarkTimeline:
    """The rises of a stream's watermark in ascending order, and the blocks in which records arrived.

    A rise is one advance of the watermark. A block is the time between two ticks; its number is the number of
    ticks before it. `watermark_ms` and `visible_from` have one row per rise. All records of block `visible_from`
    and of later blocks see the rise.

    A rise inside a block has an entry in `marker_positions`: the arrival time, sequence, and partition of the
    record that caused it. It is visible to later records of the same block, and `visible_from` is the next block.
    The sequence is empty if the watermark moves only at ticks.

    If the watermark follows the clock for too long to store every rise, one row is a climb: `steps` rises at
    consecutive ticks, `step_ms` apart. The row has the watermark and the block of the first rise of the climb.
    """

    watermark_ms: Longs
    visible_from: Longs
    blocks: Longs
    is_final: bool
    marker_positions: Sequence[tuple[int, int, str] | None] = ()
    steps: Longs | None = None
    step_ms: int = 0

    def at_block(self, blocks: Longs) -> Longs:
        """Return the watermark in force at the start of each block; -inf before the first rise."""
        position = np.searchsorted(self.visible_from, blocks, side="right")
        row_ms: Longs = np.concatenate([to_int64([MIN_MS]), self.watermark_ms])[position]
        if self.steps is None:
            return row_ms
        row_start = np.concatenate([blocks[:1], self.visible_from])[position]
        max_steps = np.concatenate([to_int64([1]), self.steps])[position] - 1
        climbed_ms: Longs = np.minimum(blocks - row_start, max_steps) * self.step_ms
        return row_ms + climbed_ms

    def in_force(self, blocks: Longs | None = None) -> pa.Table:
        """Return the watermark at the start of each block; by default of all blocks in which a record arrived."""
        blocks = self.blocks if blocks is None else blocks
        return pa.table({"block": blocks, "block_watermark_ms": self.at_block(blocks)})

    def slice_interval(self, blocks: range) -> WatermarkTimeline:
        """Return the part that the records of these blocks see.

        `at_block` is right for these blocks only, and lookups by event time are wrong.
        """
        first = max(int(np.searchsorted(self.visible_from, blocks.start, side="right")) - 1, 0)
        # A rise inside a block has the number of the next block in `visible_from`.
        rises = slice(first, int(np.searchsorted(self.visible_from, blocks.stop, side="right")))
        return replace(
            self,
            watermark_ms=self.watermark_ms[rises],
            visible_from=self.visible_from[rises],
            blocks=self.blocks[slice(*np.searchsorted(self.blocks, [blocks.start, blocks.stop]))],
            marker_positions=self.marker_positions[rises],
            steps=None if self.steps is None else self.steps[rises],
        )

    def first_rise_at(self, event_times_ms: Longs) -> Longs:
        """Return the number of the first rise that reaches each event time.

        The number of rises is returned where only +inf, the end of input, reaches the event time.

        Raises:
            SpecError: when the timeline has climbs, whose rises have no rows; use `first_tick_at`.
        """
        if self.steps is not None:
            raise too_many_watermarks_error(int(self.steps.sum()))
        return np.searchsorted(self.watermark_ms, event_times_ms, side="left")

    def first_tick_at(self, event_times_ms: Longs) -> Longs:
        """Return the first block whose records all see a watermark of at least each event time.

        `MAX_MS` is returned where only +inf, the end of input, reaches the event time.
        """
        row = self._find_row_at(event_times_ms)
        blocks = np.concatenate([self.visible_from, to_int64([MAX_MS])])[row]
        return blocks + self._count_steps_to(event_times_ms, row)

    def _find_row_at(self, event_times_ms: Longs) -> Longs:
        """Return the first row whose last rise reaches each event time."""
        last_ms = self.watermark_ms if self.steps is None else self.watermark_ms + (self.steps - 1) * self.step_ms
        return np.searchsorted(last_ms, event_times_ms, side="left")

    def _count_steps_to(self, event_times_ms: Longs, row: Longs) -> Longs:
        """Return how many steps of its climb each row needs to reach the event time; 0 without climbs."""
        if self.steps is None:
            return np.zeros_like(event_times_ms)
        row_ms = np.concatenate([self.watermark_ms, to_int64([MAX_MS])])[row]
        lag_ms = np.where(row_ms < event_times_ms, event_times_ms - row_ms, 0)
        return -(-lag_ms // max(self.step_ms, 1))

    def max_rises_per_tick(self) -> int:
        """Return the largest number of rises inside one block."""
        inside = [
            visible
            for visible, position in zip(self.visible_from.tolist(), self.marker_positions, strict=False)
            if position is not None
        ]
        return max(Counter(inside).values(), default=0)

    def arrival_positions(self, clock: SourceClock) -> list[tuple[int, int, str]]:
        """Return the position of each row in arrival order; a tick precedes the records of its millisecond."""
        positions = self.marker_positions or [None] * len(self.watermark_ms)
        return [
            (clock.tick_ms(visible), MIN_MS, "") if position is None else position
            for visible, position in zip(self.visible_from.tolist(), positions, strict=True)
        ]

    def all_rises_ms(self) -> Longs:
        """Return every rise, with +inf at the end if the stream ended with it.

        Raises:
            SpecError: when the rises of climbs are too many to list.
        """
        rises_ms = self.watermark_ms if self.steps is None else self._list_climb_rises_ms(self.steps)
        lacks_end = self.is_final and not (len(rises_ms) and rises_ms[-1] == MAX_MS)
        return np.concatenate([rises_ms, to_int64([MAX_MS] if lacks_end else [])])

    def expand(self) -> WatermarkTimeline:
        """Return the same timeline with one row per rise."""
        if self.steps is None:
            return self
        rows = np.repeat(np.arange(len(self.steps)), self.steps)
        positions = [self.marker_positions[row] for row in rows.tolist()]
        visible_from = self.visible_from[rows] + _step_numbers(self.steps)
        return WatermarkTimeline(
            self.all_rises_ms()[: len(rows)], visible_from, self.blocks, self.is_final, positions
        )

    def _list_climb_rises_ms(self, steps: Longs) -> Longs:
        count = int(steps.sum())
        if count > MAX_WATERMARK_EVENTS:
            raise too_many_watermarks_error(count)
        return np.repeat(self.watermark_ms, steps) + _step_numbers(steps) * self.step_ms


def _step_numbers(steps: Longs) -> Longs:
    """Return for each rise its number within its climb, from 0."""
    return np.arange(int(steps.sum())) - np.repeat(np.cumsum(steps) - steps, steps)
