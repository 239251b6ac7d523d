"""The arrival index: what a source has delivered, in a table small enough to plan by.

Each input file is read once, when it first appears, and leaves one row per source partition, event bucket and
arrival bucket. From these rows alone follow which files hold the events of a range, how many there are, when
partitions were silent, and when the merged watermark reached the end of any window.
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

from backstream.eventtime.instants import HOUR_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.eventtime.watermarks import Emission, EmissionModel, Topology
from backstream.eventtime.windows import Cumulate, Sliding, Tumbling
from backstream.runs.home import replace_file
from backstream.runs.plan import InputFile

FixedWindow = Tumbling | Sliding | Cumulate

INDEX_VERSION = 1


@dataclass(frozen=True, slots=True)
class BucketGrid:
    """How event and arrival times are put into buckets.

    Event buckets are cut wherever a watermark may have to pass for a window to fire or to be forgotten: at
    `first_cut_ms + n * step_ms`, and `second_cut_ms` after each of these. So the earliest arrival among the events
    from a cut on is exact. Arrival buckets are no wider than the idle timeout, so that within one no partition can
    become idle.
    """

    step_ms: int
    first_cut_ms: int
    second_cut_ms: int
    arrival_width_ms: int

    @classmethod
    def from_window(cls, window: FixedWindow, emission: Emission, allowed_lateness_ms: int) -> BucketGrid:
        """The grid that answers for these windows and watermarks.

        The bounded watermark is `max - delay - 1`, so it reaches `end - 1` with an event at `end + delay`.
        """
        step_ms = window_end_step_ms(window)
        idle_ms = emission.strategy.idle_timeout_ms
        width_ms = min(idle_ms, HOUR_MS) if idle_ms else HOUR_MS
        first_cut_ms = (window.offset_ms + window.size_ms + index_delay_ms(emission)) % step_ms
        return cls(step_ms, first_cut_ms, allowed_lateness_ms % step_ms, width_ms)

    def bucket(self, cut_ms: int, *, is_second: bool) -> int:
        """The first bucket whose events all lie at or after a cut; the cut must be one of the grid's."""
        base_ms = cut_ms - self.first_cut_ms - (self.second_cut_ms if is_second else 0)
        return 2 * (base_ms // self.step_ms) + (1 if is_second else 0)


def window_end_step_ms(window: FixedWindow) -> int:
    """How far apart windows end."""
    if isinstance(window, Tumbling):
        return window.size_ms
    return window.slide_ms if isinstance(window, Sliding) else window.step_ms


def index_delay_ms(emission: Emission) -> int:
    """By how much a watermark stays behind the greatest event time, besides its one millisecond."""
    return emission.strategy.delay_ms if emission.strategy.kind is StrategyKind.BOUNDED else 0


def is_index_exact(emission: Emission) -> bool:
    """Whether the index says all that these watermarks depend on."""
    strategy = emission.strategy
    is_plain = (
        not emission.drops_finished_splits and emission.model is EmissionModel.TICK and strategy.interval_ms > 0
    )
    # Behind a gate a partition that wakes is left out until it has caught up, which no index row tells.
    is_merged_simply = emission.topology is not Topology.SUBTASKS or not strategy.idle_timeout_ms
    return is_plain and is_merged_simply and strategy.kind in (StrategyKind.MONOTONOUS, StrategyKind.BOUNDED)


@dataclass(frozen=True, slots=True)
class IndexFolder:
    """Where the index of one source lies: one Parquet file per batch of input files that were read together.

    Its name says all that the rows depend on, so another delay or another expression is another index.
    """

    path: Path
    grid: BucketGrid

    @classmethod
    def from_source(cls, home: Path, dataset: str, source: Mapping[str, Any], grid: BucketGrid) -> IndexFolder:
        """The folder for a dataset's source section and a grid."""
        content = {"version": INDEX_VERSION, "source": source, "grid": asdict(grid)}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:12]
        return cls(home / "arrivals" / dataset / digest, grid)

    def batches(self) -> list[Path]:
        """The files that are there, oldest name first."""
        return sorted(self.path.glob("batch-*.parquet"))

    @property
    def lock(self) -> Path:
        """Held by whoever is reading new input files."""
        return self.path / "lock"


_FILE = ["path", "size_bytes", "modified_ms"]
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
    """The rows of some input files. Records that cannot be read are a row of their file without buckets."""

    rows: pa.Table

    @classmethod
    def from_folder(cls, folder: IndexFolder, inputs: Sequence[InputFile]) -> ArrivalIndex:
        """What the index knows of these files. One that two batches hold counts once."""
        wanted, tables = {_identity(file) for file in inputs}, []
        known: set[tuple[str, int, int]] = set()
        for batch in folder.batches():
            table = pq.read_table(batch, schema=_SCHEMA)
            fresh = _files_of(table) & wanted - known
            tables.append(_only(table, fresh))
            known |= fresh
        return cls(pa.concat_tables(tables)) if tables else cls.empty()

    @classmethod
    def empty(cls) -> ArrivalIndex:
        """Knows no file."""
        return cls(_SCHEMA.empty_table())

    def missing(self, inputs: Iterable[InputFile]) -> list[InputFile]:
        """The files that the index does not know."""
        known = _files_of(self.rows)
        return [file for file in inputs if file.rows and _identity(file) not in known]

    def partitions(self) -> set[str]:
        """The source partitions that delivered."""
        return {each for each in self.rows["source_partition"].unique().to_pylist() if each is not None}

    @cached_property
    def delivered(self) -> Mapping[str, pa.Table]:
        """The rows of each source partition, taken apart once for all chunks that ask."""
        placed = self.rows.filter(pc.is_valid(self.rows["source_partition"]))
        return {name: placed.filter(pc.equal(placed["source_partition"], name)) for name in self.partitions()}

    def unplaced(self) -> set[str]:
        """Paths of the files with records that lie at no known time."""
        rows = self.rows.filter(pc.is_null(self.rows["source_partition"]))
        return set(rows["path"].to_pylist())

    def spans(self) -> dict[str, Interval]:
        """File path to the span from its first event that can be read to just after its last."""
        of_files = self.rows.filter(pc.is_valid(self.rows["source_partition"])).group_by("path")
        sums = of_files.aggregate([("first_event_ms", "min"), ("last_event_ms", "max")])
        columns = (sums[name].to_pylist() for name in ("path", "first_event_ms_min", "last_event_ms_max"))
        return {path: Interval(first_ms, last_ms + 1) for path, first_ms, last_ms in zip(*columns, strict=True)}

    def events_in(self, interval: Interval) -> dict[str, int]:
        """File path to the number of its events that may lie in an interval of event time; none of no events."""
        rows = self.rows
        if not rows.num_rows:
            return {}
        is_inside = pc.and_(
            pc.less(rows["first_event_ms"], interval.end_ms),
            pc.greater_equal(rows["last_event_ms"], interval.start_ms),
        )
        sums = rows.filter(is_inside).group_by("path").aggregate([("events", "sum")])
        return dict(zip(sums["path"].to_pylist(), sums["events_sum"].to_pylist(), strict=True))

    def arrival_bounds(self) -> tuple[int, int] | None:
        """First and last arrival; None when nothing readable has arrived."""
        if not self.rows.num_rows:
            return None
        low, high = pc.min(self.rows["first_arrival_ms"]).as_py(), pc.max(self.rows["last_arrival_ms"]).as_py()
        return None if low is None else (low, high)


def write_batch(folder: IndexFolder, rows: pa.Table, name: str) -> None:
    """Add a batch by atomic rename."""
    with replace_file(folder.path / f"batch-{name}.parquet") as draft:
        pq.write_table(rows.select(_SCHEMA.names).cast(_SCHEMA), draft)


def _identity(file: InputFile) -> tuple[str, int, int]:
    return file.path, file.size_bytes, file.modified_ms


def _files_of(table: pa.Table) -> set[tuple[str, int, int]]:
    files = table.select(_FILE).group_by(_FILE).aggregate([])
    return set(zip(*(files[name].to_pylist() for name in _FILE), strict=True))


def _only(table: pa.Table, files: set[tuple[str, int, int]]) -> pa.Table:
    if files == _files_of(table):
        return table
    columns = [table[name].to_pylist() for name in _FILE]
    return table.filter(pa.array([row in files for row in zip(*columns, strict=True)], pa.bool_()))


def int64_array(column: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """A column of 64-bit integers as an array."""
    return np.asarray(column.to_numpy(), dtype=np.int64)
