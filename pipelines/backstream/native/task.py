"""Types and aggregates that the native engine knows, by their Spark SQL names."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import Cumulate, Sliding, Tumbling
from backstream.source.arrival_index import BucketGrid

TIMES = {"timestamp": "TIMESTAMP WITH TIME ZONE", "timestamp_ntz": "TIMESTAMP"}
INTEGERS = {"tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INTEGER", "bigint": "BIGINT"}
FLOATING = {"float": "FLOAT", "double": "DOUBLE"}
GROUPED = {**INTEGERS, "string": "VARCHAR", "date": "DATE", "boolean": "BOOLEAN"}
"""What records may be grouped by, besides decimals."""
DECIMAL = re.compile(r"decimal\(\d+,\d+\)")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate of the whitelist: `function` of a source column; of none, `count(*)`."""

    name: str
    function: str
    column: str | None


def duckdb_type(kind: str) -> str | None:
    """Return DuckDB's name of a Spark SQL type; None for one that the engine does not read."""
    known = {**TIMES, **GROUPED, **FLOATING}
    return known.get(kind) or (kind.upper() if DECIMAL.fullmatch(kind) else None)


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """How a row of a source file is read as an event.

    `types` are the Spark SQL types of the columns that are read. `valid` is the half-open range of event times in
    which a record is readable.
    """

    event_time: str
    arrival_time: str
    partition: str | None
    sequence: str | None
    types: Mapping[str, str]
    valid: Interval


@dataclass(frozen=True, slots=True)
class TaskGrid:
    """The windows of chunks that run together, by number: number `n` ends at `first_end_ms + n * step_ms`."""

    window: Tumbling | Sliding | Cumulate
    first_end_ms: int
    step_ms: int
    count: int


@dataclass(frozen=True, slots=True)
class TaskThresholds:
    """From which place in arrival order on a window has fired, and is gone; one of each per number.

    `first` is the number of the first window in the lists. Without `seq` the places are ticks.
    """

    first: int
    fired: TaskPositions
    gone: TaskPositions

    @property
    def are_ticks(self) -> bool:
        """Whether the arrival time alone decides."""
        return not len(self.fired.seq) and not len(self.gone.seq)


@dataclass(frozen=True, slots=True)
class TaskPositions:
    """Places in arrival order, as columns."""

    time_ms: Sequence[int]
    seq: Sequence[int] = ()
    partition: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ChunkGrid:
    """The chunks that run together: which one answers for the windows that start at an instant."""

    start_ms: int
    length_ms: int
    count: int


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """One table that a task writes.

    `columns` are name, Iceberg type and field id, in order. `path` is the Parquet file; each try of a task adds a
    part of its own to its name. Where there are columns to split by, it is split into folders beside it.
    """

    path: str
    columns: Sequence[tuple[str, str, int]]
    run_id: str
    split_by: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The files of a table that a task wrote, and their rows in all."""

    paths: Sequence[str]
    rows: int


@dataclass(frozen=True, slots=True)
class WindowTask:
    """Compute the windows of some numbers, and count the records of a stretch of event time.

    `files` may hold events of the windows or of the stretch; `numbers` is half-open. The stretches of all tasks
    tile what the chunks read. The chunks answer for windows that start in `owned`. `cell_late` says that
    counts are kept apart by the place of late records.
    """

    number: int
    reading: ReadSpec
    grid: TaskGrid
    keys: Sequence[str]
    aggregates: Sequence[Aggregate]
    thresholds: TaskThresholds | None
    chunks: ChunkGrid
    numbers: tuple[int, int]
    stretch: Interval
    files: Sequence[str]
    windows: TaskOutput
    panes: TaskOutput | None
    dropped: TaskOutput | None
    owned: Interval
    published: str
    deduplicate_on: Sequence[str]
    counts_path: str
    memory_mb: int
    cell_late: bool = False

    def __str__(self) -> str:
        return f"the windows of {self.stretch}, out of {len(self.files)} files ({', '.join(self.files[:3])} ..)"


@dataclass(frozen=True, slots=True)
class RestTask:
    """Count the records that no `WindowTask` counts: those outside of what is read, and unreadable ones.

    `owners` maps a file to the number of the chunk that answers for its unreadable records.
    """

    number: int
    reading: ReadSpec
    interval: Interval
    files: Sequence[str]
    owners: Mapping[str, int]
    counts_path: str
    memory_mb: int

    def __str__(self) -> str:
        return f"records outside of {self.interval} in {len(self.files)} files ({', '.join(self.files[:3])} ..)"


@dataclass(frozen=True, slots=True)
class IndexTask:
    """Put the records of files into the buckets of the arrival index."""

    reading: ReadSpec
    grid: BucketGrid
    files: Sequence[str]
    memory_mb: int

    def __str__(self) -> str:
        return f"the arrival index of {len(self.files)} files ({', '.join(self.files[:3])} ..)"


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task did: `host` names its machine.

    `scanned` are the records that it counted. `counts` is the file of these counts, if there are any. `written`
    maps the suffix of a table to what was written for it, if anything.

    Of sessions: `units` is a file for each share of the keys, `in_units` the records that went into units, or came
    out of them, `in_windows` those of the sessions that were written, and `hashed_by` whose hash made the shares.
    """

    number: int
    host: str
    scanned: int
    counts: str | None
    written: Mapping[str, WrittenFiles] = field(default_factory=dict)
    units: Mapping[int, str] = field(default_factory=dict)
    in_units: int = 0
    in_windows: int = 0
    hashed_by: str = ""


def own_path(path: str) -> str:
    """Return a path that no other try of a task writes to: Spark may have two of them at work."""
    return path.removesuffix(".parquet") + f"-{uuid.uuid4().hex[:12]}.parquet"


def own_output(output: TaskOutput) -> TaskOutput:
    """Return an output with a path that no other try of a task writes to."""
    return replace(output, path=own_path(output.path))


def task_file_name(number: int, attempt: str) -> str:
    """Return the name of a task's file, with the task's number where Spark has it."""
    return f"part-{number:05}-{attempt}.parquet"


def task_file_path(folder: Path, number: int, attempt: str) -> str:
    """Return where a task writes its file."""
    return str(folder / task_file_name(number, attempt))
