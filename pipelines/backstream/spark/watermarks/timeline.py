"""The watermarks of one stream, as a run looks them up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from backstream.eventtime.instants import MAX_MS, MIN_MS
from backstream.eventtime.records import SourceClock
from backstream.eventtime.watermarks import MOST_EVENTS, too_many_watermarks_error

Longs = npt.NDArray[np.int64]


def to_int64(values: Sequence[int]) -> Longs:
    """64-bit numbers as an array."""
    return np.array(values, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class WatermarkTimeline:
    """The watermarks of a stream, as arrays of one row per rise, and the blocks in which records arrived.

    A block is the stretch between two ticks; its number is that of the ticks before it. `visible_from` is the
    first block whose records all see the rise. `marker_*` place a rise within the block before, after the record
    with that arrival time, sequence and partition; they are empty where watermarks move only at ticks.

    Where the watermark follows the clock for too long to be listed, a row is a climb: `steps` rises at as many
    ticks, each `step_ms` above the one before, of which the row holds the first.
    """

    watermark_ms: Longs
    visible_from: Longs
    blocks: Longs
    is_final: bool
    marker_positions: Sequence[tuple[int, int, str] | None] = ()
    steps: Longs | None = None
    step_ms: int = 0

    def at_block(self, blocks: Longs) -> Longs:
        """The watermark in force when each block begins; -inf before the first."""
        position = np.searchsorted(self.visible_from, blocks, side="right")
        begun_ms: Longs = np.concatenate([to_int64([MIN_MS]), self.watermark_ms])[position]
        if self.steps is None:
            return begun_ms
        first = np.concatenate([blocks[:1], self.visible_from])[position]
        most = np.concatenate([to_int64([1]), self.steps])[position] - 1
        climbed_ms: Longs = np.minimum(blocks - first, most) * self.step_ms
        return begun_ms + climbed_ms

    def slice_interval(self, blocks: range) -> WatermarkTimeline:
        """What the records of these blocks meet; which rise reaches an event time is not to be asked of it."""
        first = max(int(np.searchsorted(self.visible_from, blocks.start, side="right")) - 1, 0)
        # A rise inside a block is visible to all from the next block on.
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
        """The number of the first rise to each event time; as many as there are rises: only +inf reaches it.

        Raises:
            SpecError: when the watermark follows the clock, so that rises have no rows; ask `block_reaching`.
        """
        if self.steps is not None:
            raise too_many_watermarks_error(int(self.steps.sum()))
        return np.searchsorted(self.watermark_ms, event_times_ms, side="left")

    def first_tick_at(self, event_times_ms: Longs) -> Longs:
        """The first block whose records all see a watermark of at least that; MAX_MS: only +inf reaches it."""
        row = self._row_reaching(event_times_ms)
        return np.concatenate([self.visible_from, to_int64([MAX_MS])])[row] + self._steps_to(event_times_ms, row)

    def _row_reaching(self, event_times_ms: Longs) -> Longs:
        last_ms = self.watermark_ms if self.steps is None else self.watermark_ms + (self.steps - 1) * self.step_ms
        return np.searchsorted(last_ms, event_times_ms, side="left")

    def _steps_to(self, event_times_ms: Longs, row: Longs) -> Longs:
        """How far up its climb each event time is reached; where no climb does, 0."""
        if self.steps is None:
            return np.zeros_like(event_times_ms)
        begun_ms = np.concatenate([self.watermark_ms, to_int64([MAX_MS])])[row]
        missing_ms = np.where(begun_ms < event_times_ms, event_times_ms - begun_ms, 0)
        return -(-missing_ms // max(self.step_ms, 1))

    def max_rises_per_tick(self) -> int:
        """The greatest number of rises within one block."""
        inside = [
            visible
            for visible, position in zip(self.visible_from.tolist(), self.marker_positions, strict=False)
            if position is not None
        ]
        return max(Counter(inside).values(), default=0)

    def arrival_positions(self, clock: SourceClock) -> list[tuple[int, int, str]]:
        """Where each rise stands in arrival order; one at a tick comes before the records of its millisecond."""
        positions = self.marker_positions or [None] * len(self.watermark_ms)
        return [
            (clock.tick_ms(visible), MIN_MS, "") if position is None else position
            for visible, position in zip(self.visible_from.tolist(), positions, strict=True)
        ]

    def all_rises_ms(self) -> Longs:
        """Every rise, and +inf at the end if it arrived there.

        Raises:
            SpecError: when the watermark follows the clock for so long that its rises are too many to list.
        """
        rises_ms = self.watermark_ms if self.steps is None else self._each_of_climbs_ms(self.steps)
        ends_before = self.is_final and not (len(rises_ms) and rises_ms[-1] == MAX_MS)
        return np.concatenate([rises_ms, to_int64([MAX_MS] if ends_before else [])])

    def _each_of_climbs_ms(self, steps: Longs) -> Longs:
        count = int(steps.sum())
        if count > MOST_EVENTS:
            raise too_many_watermarks_error(count)
        return np.repeat(self.watermark_ms, steps) + self._within_climbs(steps) * self.step_ms

    @staticmethod
    def _within_climbs(steps: Longs) -> Longs:
        return np.arange(int(steps.sum())) - np.repeat(np.cumsum(steps) - steps, steps)

    def watermark_at_firing_ms(self, max_timestamps_ms: Longs) -> Longs:
        """The watermark that a window firing on time sees."""
        row = self._row_reaching(max_timestamps_ms)
        reached_ms = np.concatenate([self.watermark_ms, to_int64([MAX_MS])])[row]
        return reached_ms + self._steps_to(max_timestamps_ms, row) * self.step_ms

    def expand(self) -> WatermarkTimeline:
        """The same with a row for each rise."""
        if self.steps is None:
            return self
        numbers = np.repeat(np.arange(len(self.steps)), self.steps)
        within = self._within_climbs(self.steps)
        positions = [self.marker_positions[number] for number in numbers.tolist()]
        rises_ms, visible_from = self.all_rises_ms()[: len(numbers)], self.visible_from[numbers] + within
        return WatermarkTimeline(rises_ms, visible_from, self.blocks, self.is_final, positions)
