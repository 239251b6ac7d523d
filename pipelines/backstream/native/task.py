"""Define the tasks of the native engine, their results, and the types that the engine can read."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from backstream.eventtime.duplicates import Identity
from backstream.eventtime.intervals import Interval
from backstream.eventtime.time_zones import TimeZone
from backstream.runs.manifest import StagedFile
from backstream.source.arrival_index import BucketGrid
from backstream.watermarks.firing_times import FiringTimes, WindowGrid

TIMES = {"timestamp": "TIMESTAMP WITH TIME ZONE", "timestamp_ntz": "TIMESTAMP"}
INTEGERS = {"tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INTEGER", "bigint": "BIGINT"}
FLOATING = {"float": "FLOAT", "double": "DOUBLE"}
GROUPED = {**INTEGERS, "string": "VARCHAR", "date": "DATE", "boolean": "BOOLEAN"}
"""The types of columns by which records can be grouped, besides decimals."""
DECIMAL = re.compile(r"decimal\(\d+,\d+\)")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate of the whitelist: a `function` of a source column, or `count(*)` without a column."""

    name: str
    function: str
    column: str | None


def duckdb_type(type_name: str) -> str | None:
    """Return DuckDB's name of a Spark SQL type; None if the engine cannot read it."""
    names = {**TIMES, **GROUPED, **FLOATING}
    return names.get(type_name) or (type_name.upper() if DECIMAL.fullmatch(type_name) else None)


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """The columns of a source file that make up an event.

    `types` are the Spark SQL types of the columns to read. `valid` is the half-open range of event times in which
    a record is readable. With a `zone`, event times and intervals of them are local. `filter` is a column of truth
    values: windows get the records with a true one.
    """

    event_time: str
    arrival_time: str
    partition: str | None
    sequence: str | None
    types: Mapping[str, str]
    valid: Interval
    zone: TimeZone | None = None
    filter: str | None = None


@dataclass(frozen=True, slots=True)
class ChunkGrid:
    """The chunks that run together; the start of a window decides which chunk owns it."""

    start_ms: int
    length_ms: int
    count: int


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """One table that a task writes.

    `columns` are name, Iceberg type, and field id, in order. `path` is the location of the Parquet file; each
    attempt of a task adds a unique suffix to its name. With columns in `split_by`, the file is split into folders
    beside it.
    """

    path: str
    columns: Sequence[tuple[str, str, int]]
    run_id: str
    split_by: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The files of a table that a task wrote, and their total number of rows.

    The driver reads the files at `paths`. Those in `stored` are already in an object store.
    """

    paths: Sequence[str]
    rows: int
    stored: Sequence[StagedFile] = ()


@dataclass(frozen=True, slots=True)
class WindowTask:
    """A task that computes the windows of some numbers and counts the records of an interval of event time.

    `files` may contain events of the windows or of the interval `stretch`. The intervals
    of all tasks cover the event times that the chunks read, without overlaps. The chunks own windows that start in
    `owned`. With `cell_late`, counts are grouped by the position of late records.
    """

    number: int
    reading: ReadSpec
    grid: WindowGrid
    keys: Sequence[str]
    aggregates: Sequence[Aggregate]
    firing_times: FiringTimes | None
    chunks: ChunkGrid
    numbers: range
    stretch: Interval
    files: Sequence[str]
    windows: TaskOutput
    panes: TaskOutput | None
    dropped: TaskOutput | None
    owned: Interval
    published: str
    identity: Identity
    counts_path: str
    memory_mb: int
    cell_late: bool = False

    def __str__(self) -> str:
        return f"the windows of {self.stretch} in {len(self.files)} files ({', '.join(self.files[:3])} ...)"


@dataclass(frozen=True, slots=True)
class RestTask:
    """A task that counts the records that no `WindowTask` counts: unreadable ones and those outside the interval.

    `owners` maps a file to the number of the chunk that owns its unreadable records. With `quarantine`, the task
    writes these records.
    """

    number: int
    reading: ReadSpec
    interval: Interval
    files: Sequence[str]
    owners: Mapping[str, int]
    counts_path: str
    memory_mb: int
    quarantine: TaskOutput | None = None

    def __str__(self) -> str:
        return f"records outside of {self.interval} in {len(self.files)} files ({', '.join(self.files[:3])} ...)"


@dataclass(frozen=True, slots=True)
class IndexTask:
    """A task that counts the records of files in the buckets of the arrival index."""

    reading: ReadSpec
    grid: BucketGrid
    files: Sequence[str]
    memory_mb: int

    def __str__(self) -> str:
        return f"the arrival index of {len(self.files)} files ({', '.join(self.files[:3])} ...)"


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of a task on the machine `host`.

    `scanned` is the number of counted records. `counts` is the file of the counts, if there are any. `written`
    maps the suffix of a table to the files written for it.

    Tasks of sessions also set these fields: `units` is a file for each share of the keys. `in_units` is the number
    of records in these units, or read from units. `in_windows` is the number of records in the written sessions.
    `hashed_by` is the version of the hash function that made the shares.
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
    """Return a path that no other attempt of a task uses; Spark may run two attempts at the same time."""
    return path.removesuffix(".parquet") + f"-{uuid.uuid4().hex[:12]}.parquet"


def own_output(output: TaskOutput) -> TaskOutput:
    """Return an output with a path that no other attempt of a task uses."""
    return replace(output, path=own_path(output.path))


def _task_file_name(number: int, attempt: str) -> str:
    """Return the name of a task's file, with the task's number where Spark puts it."""
    return f"part-{number:05}-{attempt}.parquet"


def task_file_path(folder: Path | str, number: int, attempt: str) -> str:
    """Return the location of a task's file in a folder, on a disk or in an object store."""
    return f"{folder}/{_task_file_name(number, attempt)}"
