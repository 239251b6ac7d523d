"""Records of a recorded stream, in arrival order, and the clock that ticks while they arrive."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum

ONLY_PARTITION = "all"
"""What the one partition of a source that names none is called."""


@dataclass(frozen=True, slots=True)
class Record:
    """One event as the log holds it. A list of records is in arrival order; its positions number them.

    `marker` is for punctuated watermarks: a number is the watermark that follows the record, True means
    event time minus the strategy's delay. `delete_timers_ms` is for process functions.
    """

    arrival_time_ms: int
    source_partition: int
    key: Hashable
    event_time_ms: int
    value: int = 1
    marker: int | bool | None = None
    delete_timers_ms: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceClock:
    """Processing time of the stream's source: tick k, counted from 1, happens at `start_ms + k * interval_ms`.

    A tick comes before a record that arrives at the same millisecond; none happens after `end_ms`.
    An interval of 0 means that the clock never ticks.
    """

    start_ms: int
    interval_ms: int
    end_ms: int

    def ticks_before(self, arrival_time_ms: int) -> int:
        """How many ticks happened when a record arrives: `floor((arrival - start) / interval)`, 0 at least."""
        if self.interval_ms == 0:
            return 0
        return max(0, (min(arrival_time_ms, self.end_ms) - self.start_ms) // self.interval_ms)

    @property
    def last_tick(self) -> int:
        """Number of the last tick, which is also how many there are."""
        return self.ticks_before(self.end_ms)

    def tick_ms(self, tick: int) -> int:
        """When a tick happens."""
        return self.start_ms + tick * self.interval_ms


class Fate(StrEnum):
    """What became of one record that was read. A record of several windows is judged by its latest one."""

    ON_TIME = "on_time"
    """Arrived before its window fired."""
    LATE = "late"
    """Arrived after its window fired, within allowed lateness: the window fired again."""
    DROPPED = "dropped"
    """Arrived when its window was gone: the side output."""
    UNASSIGNED = "unassigned"
    """Fell into a hole between windows (slide > size)."""
    DUPLICATE = "duplicate"
    """Arrived before, as another row."""
    QUARANTINED = "quarantined"
    """Could not be normalised; kept with the reason."""
    HALO = "halo"
    """Read as halo: another chunk owns it."""


def count_without_fate(events_read: int, fates: Mapping[str, int]) -> int:
    """How many records read have no fate (negative: more than one); 0 in a run that can be trusted."""
    return events_read - sum(fates.values())
