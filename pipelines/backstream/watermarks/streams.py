"""Compute the watermarks of recorded files: at once, or one range of ticks after the other.

The driver computes watermarks from cells, one row per source partition and block. A month of 64 partitions with
ticks of 200 ms can have 830 million cells, which need 18 GB. So the driver gets the cells in ranges of ticks
(`timeline_by_tick_range`). Between two ranges it keeps only one number per partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from backstream.eventtime.emission import Emission
from backstream.eventtime.records import SourceClock
from backstream.eventtime.union import complete_partitions
from backstream.eventtime.watermark_generators import GivenWatermarks
from backstream.runs.plan import InputFile
from backstream.source.arrival_index import BucketGrid
from backstream.watermarks.cells import timeline_of_maxima
from backstream.watermarks.stream_slices import split_ticks, ticks_of_file
from backstream.watermarks.tick_maxima import TickMerger, sorted_unique
from backstream.watermarks.timeline import Longs, WatermarkTimeline

CELL_BYTES = 32
"""The approximate size of a cell on its way to the driver: two numbers and the name of a partition."""


@dataclass(frozen=True, slots=True)
class ArrivalBuckets:
    """Some arrival buckets of a grid, ascending."""

    grid: BucketGrid
    numbers: Longs


@dataclass(frozen=True, slots=True)
class StreamPart:
    """The events of some files, of which only those of some blocks or arrival buckets are read."""

    files: Sequence[InputFile]
    clock: SourceClock
    emission: Emission
    blocks: range | None = None
    buckets: ArrivalBuckets | None = None

    def in_blocks(self, blocks: range) -> StreamPart:
        """Return the events that arrived in a range of blocks, from the files that may have some."""
        if len(blocks) > self.clock.last_tick:
            return self
        spans = [(ticks_of_file(file, self.clock), file) for file in self.files if file.rows]
        files = [file for span, file in spans if span.start < blocks.stop and blocks.start < span.stop]
        # At least one file is read. If none has such an event, the blocks remove all rows of this one.
        return replace(self, files=files or self.files[:1], blocks=blocks)


class StreamReader(Protocol):
    """The recorded events of a stream, as an engine reads them for their watermarks."""

    @property
    def max_rows(self) -> int:
        """About how many cells fit into the driver."""

    def read_index(self, files: Sequence[InputFile], grid: BucketGrid) -> pa.Table:
        """Return the rows of the arrival index for some files."""

    def read_cells(self, part: StreamPart) -> pa.Table:
        """Return `source_partition`, `block`, and the greatest event time of each cell of a mergeable emission.

        A partition and block may have several cells; the greatest event time is used.
        """

    def read_partitions(self, part: StreamPart) -> pa.Table:
        """Return the source partitions that have events, as the column `source_partition`."""

    def read_timeline(self, part: StreamPart, expected: Iterable[str]) -> WatermarkTimeline:
        """Return the watermarks of any emission; `expected` are partitions that may have no events."""


def list_partitions(expected: Iterable[str], cells: pa.Table, emission: Emission) -> list[str]:
    """Return all partitions that a stream reads, sorted: expected ones, and those with records."""
    return complete_partitions(emission.source_names, [*expected, *cells["source_partition"].unique().to_pylist()])


def timeline_of_files(reader: StreamReader, part: StreamPart, expected: Iterable[str]) -> WatermarkTimeline:
    """Return the watermarks of recorded events.

    Args:
        reader: reads the events.
        part: the events.
        expected: source partitions that the source reads even if they have no records.
    """
    if given := part.emission.strategy.given:
        return _timeline_of_job(given, part.clock)
    if not part.emission.is_mergeable:
        return reader.read_timeline(part, expected)
    if sum(file.rows for file in part.files) <= reader.max_rows:
        cells = reader.read_cells(part)
        partitions = list_partitions(expected, cells, part.emission)
        return timeline_of_maxima(cells, part.emission, part.clock, partitions)
    partitions = list_partitions(expected, reader.read_partitions(part), part.emission)
    return timeline_by_tick_range(reader, part, partitions)


def _timeline_of_job(given: GivenWatermarks, clock: SourceClock) -> WatermarkTimeline:
    """Return the watermarks that a job wrote down; no event is read, and no +inf follows."""
    columns = (given.at_ms, given.watermark_ms, given.arrivals_ms)
    at_ms, watermark_ms, arrivals_ms = (np.frombuffer(values, dtype=np.int64) for values in columns)
    blocks = np.unique(
        np.maximum(0, (np.minimum(arrivals_ms, clock.end_ms) - clock.start_ms) // clock.interval_ms)
    )
    ticks = np.maximum(1, -((clock.start_ms - at_ms) // clock.interval_ms))
    is_last = np.append(ticks[1:] != ticks[:-1], True) if len(ticks) else np.zeros(0, dtype=bool)
    return WatermarkTimeline(watermark_ms[is_last], ticks[is_last], blocks, is_final=False)


def timeline_by_tick_range(
    reader: StreamReader,
    part: StreamPart,
    partitions: Sequence[str],
    joined: Callable[[pa.Table, range], pa.Table] = lambda cells, _: cells,
) -> WatermarkTimeline:
    """Return the watermarks of recorded events, one range of ticks after the other; each fits into memory.

    Args:
        reader: reads the events.
        part: the events; their watermarks depend only on the greatest event times.
        partitions: all partitions that the source reads, including those without records.
        joined: adds the cells of unread events to the cells of a range of blocks.
    """
    merger = TickMerger(part.emission, part.clock, partitions)

    def advance(tick_range: range) -> tuple[Longs, Longs, Longs]:
        cells = reader.read_cells(part.in_blocks(tick_range))
        # The tick at the end of a block sees the records of the block.
        rises_ms, ticks = merger.advance_to(tick_range.stop, joined(cells, tick_range))
        return rises_ms, ticks, sorted_unique(cells["block"].to_numpy())

    tick_ranges = split_ticks(part.files, len(partitions), part.clock, reader.max_rows)
    results = zip(*map(advance, tick_ranges), strict=True)
    watermark_ms, ticks, blocks = (np.concatenate(arrays) for arrays in results)
    return WatermarkTimeline(watermark_ms, ticks, blocks, is_final=True)
