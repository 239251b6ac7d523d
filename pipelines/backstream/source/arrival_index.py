"""Define the arrival index: a summary of the events of a source that is small enough to plan with.

Spark reads each input file once, when it first appears, and adds one row per source partition, event bucket and
arrival bucket. Planning derives from these rows which files have events of a range, and how many. They also
determine the idle times of partitions, and the time at which the merged watermark reached the end of a window.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backstream.eventtime.emission import Emission
from backstream.eventtime.instants import HOUR_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.watermark_generators import MAX_BASED
from backstream.eventtime.windows import FixedWindow
from backstream.runs.plan import InputFile
from backstream.storage.files import replace_file

_INDEX_VERSION = 1


@dataclass(frozen=True, slots=True)
class BucketGrid:
    """The boundaries of the event and arrival buckets.

    Event buckets are cut at each event time that makes a watermark fire a window or remove its state. These are
    `first_cut_ms + n * step_ms`, and `second_cut_ms` after each of them. So the earliest arrival of an event at or
    after a cut is exact. Arrival buckets are at most as wide as the idle timeout, so that no partition becomes
    idle within one.
    """

    step_ms: int
    first_cut_ms: int
    second_cut_ms: int
    arrival_width_ms: int

    @classmethod
    def from_window(cls, window: FixedWindow, emission: Emission, allowed_lateness_ms: int) -> BucketGrid:
        """Return the grid for these windows and watermarks.

        The bounded watermark is `max - delay - 1`, so it reaches `end - 1` with an event at `end + delay`.
        """
        step_ms = window.end_step_ms
        idle_ms = emission.strategy.idle_timeout_ms
        width_ms = min(idle_ms, HOUR_MS) if idle_ms else HOUR_MS
        first_cut_ms = (window.offset_ms + window.size_ms + index_delay_ms(emission)) % step_ms
        return cls(step_ms, first_cut_ms, allowed_lateness_ms % step_ms, width_ms)

    def bucket(self, cut_ms: int, *, is_second: bool) -> int:
        """Return the first bucket with only events at or after a cut; the cut must be one of the grid."""
        base_ms = cut_ms - self.first_cut_ms - (self.second_cut_ms if is_second else 0)
        return 2 * (base_ms // self.step_ms) + (1 if is_second else 0)


def index_delay_ms(emission: Emission) -> int:
    """Return the distance of the watermark from the maximum event time, without its one millisecond.

    If the index is exact for a union, all its sources have this distance.
    """
    strategy = emission.strategies[0]
    return strategy.bound_ms if strategy.kind in MAX_BASED else 0


@dataclass(frozen=True, slots=True)
class IndexFolder:
    """The folder of the index of one source: one Parquet file per batch of input files that were read together.

    Its name is a digest of everything that the rows depend on. So another delay or expression has another index.
    """

    path: Path
    grid: BucketGrid

    @classmethod
    def from_source(cls, home: Path, dataset: str, source: Mapping[str, Any], grid: BucketGrid) -> IndexFolder:
        """Return the folder for a dataset's source section and a grid."""
        content = {"version": _INDEX_VERSION, "source": source, "grid": asdict(grid)}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:12]
        return cls(home / "arrivals" / dataset / digest, grid)

    def batches(self) -> list[Path]:
        """Return the existing batches, sorted by name."""
        return sorted(self.path.glob("batch-*.parquet"))

    @property
    def lock(self) -> Path:
        """Lock file of the process that reads new input files."""
        return self.path / "lock"


_FILE_COLUMNS = ["path", "size_bytes", "modified_ms"]
_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("size_bytes", pa.int64()),
        ("modified_ms", pa.int64()),
        ("source_partition", pa.string()),
        ("event_bucket", pa.int64()),
        ("arrival_bucket", pa.int64()),
        ("events", pa.int64()),
        ("first_event_ms", pa.int64()),
        ("last_event_ms", pa.int64()),
        ("first_arrival_ms", pa.int64()),
        ("last_arrival_ms", pa.int64()),
    ]
)


@dataclass(frozen=True)
class ArrivalIndex:
    """The index rows of input files.

    Records that cannot be read are one row of their file, without buckets.
    """

    rows: pa.Table

    @classmethod
    def from_folder(cls, folder: IndexFolder, inputs: Sequence[InputFile]) -> ArrivalIndex:
        """Load the rows of these files; a file in two batches counts once."""
        wanted, tables = {_identity(file) for file in inputs}, []
        loaded: set[tuple[str, int, int]] = set()
        for batch in folder.batches():
            table = pq.read_table(batch, schema=_SCHEMA)
            files = _file_identities(table) & wanted - loaded
            tables.append(_filter_files(table, files))
            loaded |= files
        return cls(pa.concat_tables(tables)) if tables else cls.empty()

    @classmethod
    def empty(cls) -> ArrivalIndex:
        """Return an index without files."""
        return cls(_SCHEMA.empty_table())

    def list_unindexed(self, inputs: Iterable[InputFile]) -> list[InputFile]:
        """Return the files that are not in the index."""
        indexed = _file_identities(self.rows)
        return [file for file in inputs if file.rows and _identity(file) not in indexed]

    def partitions(self) -> set[str]:
        """Return the source partitions with events."""
        return {name for name in self.rows["source_partition"].unique().to_pylist() if name is not None}

    @cached_property
    def rows_by_partition(self) -> Mapping[str, pa.Table]:
        """The rows of each source partition, split once for all chunks."""
        readable = self.rows.filter(pc.is_valid(self.rows["source_partition"]))
        return {name: readable.filter(pc.equal(readable["source_partition"], name)) for name in self.partitions()}

    def paths_without_times(self) -> set[str]:
        """Return the paths of files with records whose time cannot be read."""
        rows = self.rows.filter(pc.is_null(self.rows["source_partition"]))
        return set(rows["path"].to_pylist())

    def spans(self) -> dict[str, Interval]:
        """Return the interval by file path from its first readable event to just after its last."""
        readable = self.rows.filter(pc.is_valid(self.rows["source_partition"])).group_by("path")
        bounds = readable.aggregate([("first_event_ms", "min"), ("last_event_ms", "max")])
        columns = (bounds[name].to_pylist() for name in ("path", "first_event_ms_min", "last_event_ms_max"))
        return {path: Interval(first_ms, last_ms + 1) for path, first_ms, last_ms in zip(*columns, strict=True)}

    def events_in(self, interval: Interval) -> dict[str, int]:
        """Return the number of events by path that may be in an interval of event time.

        Files without such events are left out.
        """
        rows = self.rows
        if not rows.num_rows:
            return {}
        is_inside = pc.and_(
            pc.less(rows["first_event_ms"], interval.end_ms),
            pc.greater_equal(rows["last_event_ms"], interval.start_ms),
        )
        sums = rows.filter(is_inside).group_by("path").aggregate([("events", "sum")])
        return dict(zip(sums["path"].to_pylist(), sums["events_sum"].to_pylist(), strict=True))


def join_index_rows(files: Sequence[InputFile], rows: pa.Table) -> pa.Table:
    """Return index rows with the columns that identify their file; a file without records has one row."""
    indexed = pa.table({name: [getattr(file, name) for file in files] for name in _FILE_COLUMNS})
    return indexed.join(rows, "path", join_type="left outer")


def write_index_batch(folder: IndexFolder, rows: pa.Table, name: str) -> None:
    """Add a batch by atomic rename."""
    with replace_file(folder.path / f"batch-{name}.parquet") as draft:
        pq.write_table(rows.select(_SCHEMA.names).cast(_SCHEMA), draft)


def _identity(file: InputFile) -> tuple[str, int, int]:
    return file.path, file.size_bytes, file.modified_ms


def _file_identities(table: pa.Table) -> set[tuple[str, int, int]]:
    files = table.select(_FILE_COLUMNS).group_by(_FILE_COLUMNS).aggregate([])
    return set(zip(*(files[name].to_pylist() for name in _FILE_COLUMNS), strict=True))


def _filter_files(table: pa.Table, files: set[tuple[str, int, int]]) -> pa.Table:
    if files == _file_identities(table):
        return table
    columns = [table[name].to_pylist() for name in _FILE_COLUMNS]
    return table.filter(pa.array([row in files for row in zip(*columns, strict=True)], pa.bool_()))


def int64_array(column: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return a column of 64-bit integers as an array."""
    return np.asarray(column.to_numpy(), dtype=np.int64)
