"""Define the records of a recorded stream, the clock of its source, and the fates of records."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum

ONLY_PARTITION = "all"
"""Name of the only partition of a source without a partition column."""


@dataclass(frozen=True, slots=True)
class Record:
    """One event of the log. A list of records is in arrival order; the number of a record is its position.

    `marker` is for punctuated watermarks: a number is the watermark after the record, True means event time minus
    the strategy's delay. `delete_timers_ms` is for process functions. A filtered record moves the watermark only.
    """

    arrival_time_ms: int
    source_partition: int
    key: Hashable
    event_time_ms: int
    value: int = 1
    marker: int | bool | None = None
    delete_timers_ms: tuple[int, ...] = ()
    is_filtered: bool = False


@dataclass(frozen=True, slots=True)
class SourceClock:
    """The processing-time clock of the source: tick k, counted from 1, is at `start_ms + k * interval_ms`.

    A tick comes before a record that arrives at the same millisecond. No tick comes after `end_ms`. A clock with
    an interval of 0 has no ticks.
    """

    start_ms: int
    interval_ms: int
    end_ms: int

    def ticks_before(self, arrival_time_ms: int) -> int:
        """Return the number of ticks before an arrival: `floor((arrival - start) / interval)`, 0 at least."""
        if self.interval_ms == 0:
            return 0
        return max(0, (min(arrival_time_ms, self.end_ms) - self.start_ms) // self.interval_ms)

    @property
    def last_tick(self) -> int:
        """The number of the last tick, which equals the number of ticks."""
        return self.ticks_before(self.end_ms)

    def tick_ms(self, tick: int) -> int:
        """Return the time of a tick."""
        return self.start_ms + tick * self.interval_ms


class Fate(StrEnum):
    """The classification of a record that was read; the latest window of a record decides it."""

    ON_TIME = "on_time"
    """The record arrived before its window fired."""
    LATE = "late"
    """The record arrived after its window fired, within allowed lateness: the window fired again."""
    DROPPED = "dropped"
    """The record arrived after the state of its window was removed; it is in the side output."""
    UNASSIGNED = "unassigned"
    """The event time is in a gap between windows (slide > size)."""
    FILTERED = "filtered"
    """The record does not meet `[filter]`: it has moved the watermark, and no window gets it."""
    UNDECIDED_COUNTED = "undecided_counted"
    """Lost logs of a job would show whether the record was late for a window; its latest window counts it."""
    UNDECIDED_DROPPED = "undecided_dropped"
    """Lost logs of a job would show whether the record was late for a window; it is in the side output."""
    DUPLICATE = "duplicate"
    """The record arrived earlier in another row."""
    QUARANTINED = "quarantined"
    """The record could not be normalized; it is kept with the reason."""
    HALO = "halo"
    """The record is part of the halo: another chunk owns it."""


TIMING_BY_FATE = {
    Fate.ON_TIME: Fate.ON_TIME,
    Fate.LATE: Fate.LATE,
    Fate.DROPPED: Fate.DROPPED,
    Fate.UNDECIDED_COUNTED: Fate.ON_TIME,
    Fate.UNDECIDED_DROPPED: Fate.DROPPED,
}
"""By fate of a record that belongs to a window: how its latest window counts it."""
UNDECIDED = (Fate.UNDECIDED_COUNTED, Fate.UNDECIDED_DROPPED)
"""The fates of records that lost logs do not decide."""
SIDE_OUTPUT = (Fate.DROPPED, Fate.UNDECIDED_DROPPED)
"""The fates of records in the side output."""


def count_without_fate(events_read: int, fates: Mapping[str, int]) -> int:
    """Return the number of records without a fate (negative: with several); 0 in a correct run."""
    return events_read - sum(fates.values())
