"""Define the tasks that compute sessions.

A unit is a building block of sessions: the events of a key ahead of the watermark in one time slice as long as the
gap, or a single event behind the watermark. Tasks of an interval of time make units. Tasks of a share of the keys
then make sessions of these units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backstream.eventtime.duplicates import Identity
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import SourceClock
from backstream.eventtime.windows import Session, Tumbling
from backstream.native.task import Aggregate, ChunkGrid, ReadSpec, TaskOutput


@dataclass(frozen=True, slots=True)
class BlockWatermarks:
    """The watermarks at the arrival of records.

    `path` is a Parquet file with the `watermark_ms` at the start of each `block` in which a record arrived. A
    block is the time between two ticks of the clock. `blocks`, half-open, are those that a task needs.
    """

    path: str
    clock: SourceClock
    blocks: tuple[int, int]


@dataclass(frozen=True, slots=True)
class UnitTask:
    """A task that makes the units of an interval of event time and counts its records.

    `files` may contain events of the interval `stretch`. The intervals of all tasks cover the event times to read,
    without overlaps. Units are written into a file for each share of the keys, beside `units_path`. Without
    `watermarks`, no record is behind the watermark.
    """

    number: int
    reading: ReadSpec
    window: Session
    keys: Sequence[str]
    aggregates: Sequence[Aggregate]
    identity: Identity
    watermarks: BlockWatermarks | None
    stretch: Interval
    files: Sequence[str]
    cells: Tumbling
    chunks: ChunkGrid
    shares: int
    units_path: str
    counts_path: str
    memory_mb: int

    def __str__(self) -> str:
        return f"the units of sessions of {self.stretch} in {len(self.files)} files ({self.files[0]} ...)"


@dataclass(frozen=True, slots=True)
class SessionTask:
    """A task that makes the sessions of a share of the keys from the files of their units.

    Sessions that start in `owned` are written. `allowed_lateness_ms` is the time for which a fired session is
    kept; only replays, which have `panes`, use it. `counts_path` is for corrections of the counts of records, in
    which all records are on time.
    """

    number: int
    window: Session
    allowed_lateness_ms: int
    keys: Sequence[str]
    aggregates: Sequence[Aggregate]
    units: Sequence[str]
    cells: Tumbling
    chunks: ChunkGrid
    owned: Interval
    windows: TaskOutput
    panes: TaskOutput | None
    dropped: TaskOutput | None
    published: str
    counts_path: str
    memory_mb: int

    def __str__(self) -> str:
        return f"the sessions that start in {self.owned}, share {self.number} of the keys"
