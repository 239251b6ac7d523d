"""Compute two arrival positions per window: when it fires, and when its state is removed.

The watermark never falls. So two positions per window classify all its records: the first tick at which the
watermark reaches the max timestamp of the window, and the first at which it reaches the max timestamp plus the
allowed lateness. An engine compares the arrival of a record with these two numbers. It needs no watermark per
record, no join of watermarks, and no sort:

    arrival ----------|fired|--------------|cleaned up|---------->
    a record is         late and fires again          dropped
      on time

Consecutive windows often have the same positions, e.g., in a month without records. They are one stretch, so that
the memory grows with the records, and not with the windows that are possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from backstream.errors import SpecError
from backstream.eventtime.instants import HOUR_MS, MAX_MS, MIN_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import SourceClock
from backstream.eventtime.windows import FixedWindow
from backstream.source.local_times import list_local_ms
from backstream.watermarks.local_times import list_triggers_ms
from backstream.watermarks.timeline import Longs, WatermarkTimeline

_MAX_LISTED_WINDOWS = 100_000
"""The number of windows up to which each has its own positions (3 MB), however few have records."""
_LISTED_PER_STRETCH = 96
"""The number of such windows that need as much memory as one stretch in a tree."""
_MAX_LISTED_BY_CLOCK = 50_000_000
"""The number of windows that may have positions of their own, if the watermark follows the clock (2 GB)."""


@dataclass(frozen=True, slots=True)
class WindowGrid:
    """The windows that start in an interval, by number: window `n` ends at `first_end_ms + n * step_ms`."""

    window: FixedWindow
    first_end_ms: int
    count: int

    @classmethod
    def from_window(cls, window: FixedWindow, interval: Interval) -> WindowGrid:
        """Return the windows that start in the interval; cumulating windows end at every step."""
        period_ms = window.start_step_ms
        first_ms = interval.start_ms + (window.offset_ms - interval.start_ms) % period_ms
        starts = max(0, -(-(interval.end_ms - first_ms) // period_ms))
        return cls(window, first_ms + window.first_size_ms, starts * window.windows_per_start)

    @property
    def step_ms(self) -> int:
        """The distance between the ends of two consecutive windows."""
        return self.window.end_step_ms

    @property
    def ends_ms(self) -> Longs:
        """All window ends, ascending."""
        return self.list_ends_ms(np.arange(self.count, dtype=np.int64))

    def list_ends_ms(self, numbers: Longs) -> Longs:
        """Return the ends of some windows."""
        return self.first_end_ms + numbers * self.step_ms

    def list_stretches(self, *changes: Longs) -> Longs:
        """Return the first windows of all stretches, ascending; all windows if that takes less memory.

        Args:
            changes: the numbers of windows whose positions may differ from those of the window before.
        """
        inside = np.unique(np.concatenate([np.zeros(1, dtype=np.int64), *changes]))
        inside = inside[(inside >= 0) & (inside < self.count)]
        is_listed = self.count <= max(_MAX_LISTED_WINDOWS, _LISTED_PER_STRETCH * len(inside))
        return np.arange(self.count, dtype=np.int64) if is_listed else inside

    def find_numbers(self, ends_ms: Interval) -> range:
        """Return the numbers of the windows that end in an interval."""
        first, stop = (
            -((self.first_end_ms - at_ms) // self.step_ms) for at_ms in (ends_ms.start_ms, ends_ms.end_ms)
        )
        return range(min(max(first, 0), self.count), min(max(stop, 0), self.count))

    def span(self, numbers: range) -> Interval:
        """Return the event times of the windows with these numbers."""
        first_end_ms = self.first_end_ms + numbers.start * self.step_ms
        start_ms = self.window.start_of(first_end_ms)
        if not numbers:
            return Interval(start_ms, start_ms)
        return Interval(start_ms, self.first_end_ms + (numbers.stop - 1) * self.step_ms)


@dataclass(frozen=True, slots=True)
class ArrivalPositions:
    """Positions in arrival order, one per stretch of windows.

    A record is after a position if it is greater in that order.

    A tick precedes the records of its millisecond, so it has the sequence -inf. If a record moves the watermark,
    the position is that of the record. `MAX_MS` means that only the end of input is after it.
    """

    arrival_time_ms: Longs
    arrival_seq: Longs | None = None
    source_partition: Sequence[str] = ()

    @property
    def are_ticks(self) -> bool:
        """True if all positions are ticks, so that only the arrival time is compared."""
        return self.arrival_seq is None

    def part(self, part: slice) -> ArrivalPositions:
        """Return some of the positions."""
        seq = None if self.arrival_seq is None else self.arrival_seq[part]
        return ArrivalPositions(self.arrival_time_ms[part], seq, self.source_partition[part])


@dataclass(frozen=True)
class FiringTimes:
    """Arrival positions per window of a grid: when the window fires, and when its state is removed.

    `numbers` are the first windows of the stretches, ascending. The windows up to the next one, or to the end of
    the grid, have the same positions. Windows before the first stretch are unknown.
    """

    grid: WindowGrid
    numbers: Longs
    fired: ArrivalPositions
    cleaned_up: ArrivalPositions
    fires_at_end: bool = True
    """+inf at the end of input fires the windows that no watermark reached; else they stay open."""
    undecided: Mapping[int, range] = field(default_factory=dict)
    """By arrival time, the windows for which lost logs would show whether records of that time are late."""

    @classmethod
    def from_timeline(
        cls,
        timeline: WatermarkTimeline,
        grid: WindowGrid,
        clock: SourceClock,
        allowed_lateness_ms: int,
        needed: Interval | None = None,
    ) -> FiringTimes:
        """Return the firing times of the windows of a grid from the watermarks of a stream.

        Args:
            timeline: the watermarks.
            grid: the windows.
            clock: the clock of the source.
            allowed_lateness_ms: the allowed lateness.
            needed: the ends of the windows that may have records; None: all. Others may get wrong positions.

        Raises:
            SpecError: when too many windows have positions of their own.
        """
        numbers = _list_stretches(timeline, grid, allowed_lateness_ms, needed)
        trigger_ms = list_triggers_ms(grid.window.zone, grid.list_ends_ms(numbers))
        # If the sum exceeds 64 bits, only +inf removes the window.
        cleanup_ms = np.where(trigger_ms > MAX_MS - allowed_lateness_ms, MAX_MS, trigger_ms + allowed_lateness_ms)
        fired, cleaned_up = (_find_positions(timeline, at_ms, clock) for at_ms in (trigger_ms, cleanup_ms))
        return cls(grid, numbers, fired, cleaned_up, timeline.is_final)

    @property
    def are_ticks(self) -> bool:
        """True if only the arrival time decides."""
        return self.fired.are_ticks and self.cleaned_up.are_ticks

    @property
    def is_listed(self) -> bool:
        """True if each window is a stretch."""
        return not len(self.numbers) or len(self.numbers) == self.grid.count - int(self.numbers[0])

    def part(self, windows: range) -> FiringTimes:
        """Return the firing times of some windows; the grid ends with them."""
        first = max(0, int(np.searchsorted(self.numbers, windows.start, side="right")) - 1)
        part = slice(first, int(np.searchsorted(self.numbers, windows.stop, side="left")))
        return FiringTimes(
            replace(self.grid, count=windows.stop),
            np.maximum(self.numbers[part], windows.start),
            self.fired.part(part),
            self.cleaned_up.part(part),
            self.fires_at_end,
            self.undecided,
        )

    def with_undecided(self, ends_ms: Mapping[int, Interval]) -> FiringTimes:
        """Return the same with the windows of undecided records; their ends are given by arrival time."""
        # The first records of the grid are in windows before it, too: these have numbers below 0.
        before, grid = self.grid.window.size_ms // self.grid.step_ms, self.grid
        wider = replace(grid, first_end_ms=grid.first_end_ms - before * grid.step_ms, count=grid.count + before)
        found = {arrival_ms: wider.find_numbers(each) for arrival_ms, each in ends_ms.items()}
        numbers = {at_ms: range(each.start - before, each.stop - before) for at_ms, each in found.items() if each}
        return replace(self, undecided=numbers)


def _list_stretches(
    timeline: WatermarkTimeline, grid: WindowGrid, allowed_lateness_ms: int, needed: Interval | None
) -> Longs:
    """Return the first windows of the stretches of windows that the same watermarks fire and remove."""
    if timeline.steps is not None:  # the watermark follows the clock, so each window has its own position
        numbers = grid.find_numbers(needed) if needed else range(grid.count)
        if len(numbers) > _MAX_LISTED_BY_CLOCK:
            msg = (
                f"the watermark follows the clock, so each of {len(numbers):,} windows that run together fires at"
                f" another time; at most {_MAX_LISTED_BY_CLOCK:,} fit into memory"
                " (watermark.strategy, window.size)\n\n"
                "hint: set a larger window.size or a shorter backfill.chunk, and backfill.max_events_per_job to 0"
            )
            raise SpecError(msg)
        return grid.list_stretches(np.arange(numbers.start, numbers.stop + 1, dtype=np.int64))
    # The first window that a watermark does not reach. A watermark near the limits of 64 bits is beyond the grid.
    bound_ms = MAX_MS // 4
    reached_ms = timeline.watermark_ms.clip(-bound_ms, bound_ms)
    lateness_ms, zone = min(allowed_lateness_ms, bound_ms), grid.window.zone
    local_ms = (list_local_ms(zone, reached_ms - late_ms) for late_ms in (0, lateness_ms))
    changes = [(reached_ms + 1 - grid.first_end_ms) // grid.step_ms + 1 for reached_ms in local_ms]
    if zone and grid.count:
        # Around a change of clocks, a window may fire with a later one, or before it.
        for at_ms in zone.around(grid.span(range(grid.count))).changes_ms:
            near = Interval(zone.local_ms(at_ms - 1) - 3 * HOUR_MS, zone.local_ms(at_ms) + 3 * HOUR_MS)
            numbers = grid.find_numbers(near)
            changes.append(np.arange(numbers.start, numbers.stop + 1, dtype=np.int64))
    return grid.list_stretches(*changes)


def _find_positions(timeline: WatermarkTimeline, event_times_ms: Longs, clock: SourceClock) -> ArrivalPositions:
    """Return the arrival position at which the watermark first reaches each event time."""
    if not any(timeline.marker_positions):
        ticks = timeline.first_tick_at(event_times_ms)
        is_end = ticks == MAX_MS
        ticks_ms = clock.start_ms + np.where(is_end, 0, ticks) * clock.interval_ms
        return ArrivalPositions(np.where(is_end, MAX_MS, ticks_ms))
    positions = [*timeline.arrival_positions(clock), (MAX_MS, MIN_MS, "")]
    reached = [positions[rise] for rise in timeline.first_rise_at(event_times_ms).tolist()]
    times_ms, seqs, partitions = zip(*reached, strict=True)
    return ArrivalPositions(np.array(times_ms), np.array(seqs), partitions)
