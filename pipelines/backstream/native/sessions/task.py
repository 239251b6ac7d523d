"""What the tasks of sessions get.

A unit is what an island is made of: the events in time of a key within one stretch as long as the gap, or a
straggler by itself. Tasks of a stretch of time make units, and tasks of a share of the keys make sessions of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import SourceClock
from backstream.eventtime.windows import Tumbling
from backstream.native.task import Aggregate, ChunkGrid, ReadSpec, TaskOutput


@dataclass(frozen=True, slots=True)
class BlockWatermarks:
    """The watermarks that records met.

    `path` is a Parquet file with the `watermark_ms` at the beginning of each `block` in which a record arrived; a
    block is the stretch between two ticks of the clock. `blocks`, half-open, are those that a task needs.
    """

    path: str
    clock: SourceClock
    blocks: tuple[int, int]


@dataclass(frozen=True, slots=True)
class UnitTask:
    """Make the units of a stretch of event time, and count its records.

    `files` may hold events of the stretch; the stretches of all tasks tile what is read. Units go into a file for
    each share of the keys, beside `units_path`. Without `met` no record is a straggler.
    """

    number: int
    reading: ReadSpec
    gap_ms: int
    keys: Sequence[str]
    aggregates: Sequence[Aggregate]
    deduplicate_on: Sequence[str]
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
        return f"the units of sessions of {self.stretch}, out of {len(self.files)} files ({self.files[0]} ..)"


@dataclass(frozen=True, slots=True)
class SessionTask:
    """Make the sessions of a share of the keys, of the files of its units.

    Sessions that start in `owned` are written. `allowed_lateness_ms` is how long one that has fired is kept; it
    has no meaning without `panes`, which a replay has. `counts_path` gets what is to be added to the counts of
    records, which have all of them on time.
    """

    number: int
    gap_ms: int
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
