"""Reading the arrival index. No Spark: planning asks it too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backstream.core.arrivals import IndexFolder
from backstream.core.folders import replacing
from backstream.core.intervals import Interval
from backstream.core.plan import InputFile

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
    def of(cls, folder: IndexFolder, inputs: Sequence[InputFile]) -> ArrivalIndex:
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
    with replacing(folder.path / f"batch-{name}.parquet") as draft:
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


def longs(column: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """A column of 64-bit integers as an array."""
    return np.asarray(column.to_numpy(), dtype=np.int64)
