"""Compute watermarks from parts of a stream: in ranges of ticks, or from an interval of it.

The driver computes watermarks from cells, one row per source partition and block. A month of 64 partitions with
ticks of 200 ms can have 830 million cells, which need 18 GB. So the driver gets the cells in ranges of ticks
(`timeline_by_tick_range`). Between two ranges it keeps only one number per partition.

If the watermarks of an interval are needed, the arrival index summarizes all earlier events (`StreamSlice`): for
watermarks based on a maximum per partition, one number per partition replaces the past.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backstream.eventtime.emission import Emission
from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import SourceClock
from backstream.runs.plan import InputFile
from backstream.source.arrival_index import ArrivalIndex, BucketGrid, int64_array, is_index_exact
from backstream.spark.schemas import partition_to_group_by, plan_literals, with_partition_as_text
from backstream.spark.shuffle_free import compress_files
from backstream.spark.source import EventFiles
from backstream.spark.watermarks.compress import (
    count_ticks_before,
    is_numpy_mergeable,
    timeline_of_maxima,
)
from backstream.spark.watermarks.firing_times_from_index import idle_ticks
from backstream.spark.watermarks.tick_maxima import TickMerger, sorted_unique
from backstream.spark.watermarks.timeline import Longs, WatermarkTimeline, to_int64
from backstream.spark.watermarks.user_generators import list_partitions, timeline_of_events

_Floats = npt.NDArray[np.float64]

CELL_BYTES = 32
"""The approximate size of a cell on its way to the driver: two numbers and the name of a partition."""


def timeline_of_files(
    recorded: EventFiles, emission: Emission, clock: SourceClock, expected: Iterable[str]
) -> WatermarkTimeline:
    """Return the watermarks of recorded events. Runs jobs.

    If watermarks need more than greatest event times, Spark shuffles all events, and computes all watermarks at
    once. Otherwise two file groups may both have a cell of the same partition and block; the greater event time is
    used.
    """
    if not is_numpy_mergeable(emission):
        return timeline_of_events(recorded.all(), emission, clock, expected)
    if sum(file.rows for file in recorded.files) <= max_driver_rows(recorded.spark):
        cells = compress_files(recorded, emission, clock)
        return timeline_of_maxima(cells, emission, clock, list_partitions(expected, cells, emission))
    partitions = list_partitions(expected, _load_partitions(recorded), emission)
    return timeline_by_tick_range(recorded, emission, clock, partitions)


def timeline_by_tick_range(
    recorded: EventFiles,
    emission: Emission,
    clock: SourceClock,
    partitions: Sequence[str],
    joined: Callable[[pa.Table, range], pa.Table] = lambda cells, _: cells,
) -> WatermarkTimeline:
    """Return the watermarks of recorded events, one range of ticks after the other.

    Each range fits into the driver, and runs a job.

    Args:
        recorded: the events.
        emission: an emission whose watermarks depend only on the greatest event times.
        clock: the clock of the source.
        partitions: all partitions that the source reads, including those without records.
        joined: adds the cells of unread events to the cells of a range of blocks.
    """
    merger = TickMerger(emission, clock, partitions)

    def advance(tick_range: range) -> tuple[Longs, Longs, Longs]:
        cells = compress_files(_select_ticks(recorded, tick_range, clock), emission, clock)
        # The tick at the end of a block sees the records of the block.
        rises_ms, ticks = merger.advance_to(tick_range.stop, joined(cells, tick_range))
        return rises_ms, ticks, sorted_unique(cells["block"].to_numpy())

    tick_ranges = split_ticks(recorded.files, len(partitions), clock, max_driver_rows(recorded.spark))
    results = zip(*map(advance, tick_ranges), strict=True)
    watermark_ms, ticks, blocks = (np.concatenate(arrays) for arrays in results)
    return WatermarkTimeline(watermark_ms, ticks, blocks, is_final=True)


def max_driver_rows(spark: SparkSession) -> int:
    """Return about how many cells fit into the driver: into Spark's maximum result size, and a third of the heap.

    A third, since two chunk groups may run at the same time.
    """
    max_result = _parse_bytes(spark.conf.get("spark.driver.maxResultSize", "1g") or "1g", "b")
    heap = _parse_bytes(spark.conf.get("spark.driver.memory", "1g") or "1g", "m")
    return int(min(max_result * 0.8 if max_result > 0 else heap, heap / 3) / CELL_BYTES)


def _parse_bytes(size: str, unit: str) -> int:
    """Return the bytes of a size in Spark's notation, e.g., 512m or 1gb; `unit` is the unit of a bare number."""
    ((number, suffix),) = re.findall(r"(-?\d+)([bkmgtp]?)", size.lower())
    return int(number) << 10 * "bkmgtp".index(suffix or unit)


def split_ticks(files: Sequence[InputFile], partitions: int, clock: SourceClock, most: int) -> list[range]:
    """Split the blocks of a clock into ranges of at most about `most` cells.

    A range has at most one cell per event, and at most one per block and partition. Events are assumed to arrive
    evenly between the first and the last arrival of their file. If nearly all events of a file arrive at once, a
    range has more cells. If a footer has no arrival times, all events may have arrived at once.
    """
    stop = clock.last_tick + 1
    files = [file for file in files if file.rows and not file.is_unreadable]
    if sum(file.rows for file in files) <= most:
        return [range(stop)]
    has_arrival_times = all(file.min_arrival_ms is not None and file.max_arrival_ms is not None for file in files)
    blocks, events = _estimate_arrivals(files, clock)
    dense_blocks = max(1, most // max(1, partitions))
    starts = [0]
    while (start := starts[-1]) < stop:
        max_events = np.interp(start, blocks, events) + most
        sparse_stop = int(np.interp(max_events, events, blocks, right=stop)) if has_arrival_times else start
        starts.append(min(stop, max(start + dense_blocks, sparse_stop)))
    return [range(*bounds) for bounds in pairwise(starts)]


def ticks_of_file(file: InputFile, clock: SourceClock) -> range:
    """Return the blocks in which events of a file arrived; all blocks if its footer has no arrival times."""
    if file.min_arrival_ms is None or file.max_arrival_ms is None:
        return range(clock.last_tick + 1)
    return range(clock.ticks_before(file.min_arrival_ms), clock.ticks_before(file.max_arrival_ms) + 1)


def _estimate_arrivals(files: Sequence[InputFile], clock: SourceClock) -> tuple[Longs, _Floats]:
    """Return some blocks, ascending, and about how many events had arrived at the start of each."""
    spans = [ticks_of_file(file, clock) for file in files]
    blocks = sorted_unique(to_int64([block for span in spans for block in (span.start, span.stop)]))
    events = np.zeros(len(blocks))
    for file, span in zip(files, spans, strict=True):
        events += np.clip((blocks - span.start) / len(span), 0, 1) * file.rows
    return blocks, events


def _select_ticks(recorded: EventFiles, tick_range: range, clock: SourceClock) -> EventFiles:
    """Return the events that arrived in a range of blocks, from the files that may have some."""
    if len(tick_range) > clock.last_tick:
        return recorded
    spans = [(ticks_of_file(file, clock), file) for file in recorded.files if file.rows]
    files = [file for span, file in spans if span.start < tick_range.stop and tick_range.start < span.stop]
    start, stop = plan_literals(recorded.spark, tick_range.start, tick_range.stop)
    block = count_ticks_before(clock)
    is_inside = (block >= start) & (block < stop)
    # `EventFiles` needs at least one file. If no file has such an event, the filter removes all rows of this one.
    return EventFiles(
        recorded.spark, files or recorded.files[:1], lambda paths: recorded.read(paths).where(is_inside)
    )


def _load_partitions(recorded: EventFiles) -> pa.Table:
    """Return the source partitions that have events, as a table. Runs a job."""
    events = recorded.all()
    partitions = events.groupBy(partition_to_group_by(events)).agg(F.count(F.lit(1)))
    return partitions.transform(with_partition_as_text).toArrow()


def is_resumable_from_index(emission: Emission) -> bool:
    """Return whether the past of the watermarks is a maximum per partition that the arrival index has."""
    return is_numpy_mergeable(emission) and is_index_exact(emission)


@dataclass(frozen=True)
class StreamSlice:
    """The part of a stream that must be read, and a summary of all other events.

    `buckets` are the arrival buckets to read, and `paths` the files that have their events. `prefix_rows` are
    cells, as `compress_events` returns them: two per partition and bucket that isn't read.
    """

    buckets: Longs
    paths: frozenset[str]
    prefix_rows: pa.Table

    @classmethod
    def from_index(
        cls, index: ArrivalIndex, interval: Interval, buckets: BucketGrid, emission: Emission, clock: SourceClock
    ) -> StreamSlice:
        """Return the part that is needed for the watermarks at the events of an interval.

        Args:
            index: the index of all input files up to the plan's cut-off.
            interval: the event times; every bucket that may have such an event is read.
            buckets: the buckets of the index.
            emission: an emission that `is_resumable_from_index` accepts.
            clock: the clock of the source.
        """
        rows = index.rows.filter(pc.is_valid(index.rows["source_partition"]))
        arrival_buckets = int64_array(rows["arrival_bucket"])
        may_hold_event = (int64_array(rows["first_event_ms"]) < interval.end_ms) & (
            int64_array(rows["last_event_ms"]) >= interval.start_ms
        )
        transitions = _find_idle_transitions(index, buckets, emission, clock)
        needed = np.unique(np.concatenate([arrival_buckets[may_hold_event], transitions]))
        # A record sees the watermark of the last tick. Its bucket may be an earlier one, which is also read.
        buckets_per_tick = -(-clock.interval_ms // buckets.arrival_width_ms)
        read = np.unique(needed[:, np.newaxis] - np.arange(buckets_per_tick + 1))
        is_read = np.isin(arrival_buckets, read)
        paths = frozenset(rows["path"].filter(pa.array(is_read)).unique().to_pylist())
        return cls(read, paths, _summarize_buckets(rows.filter(pa.array(~is_read)), clock))

    def with_prefix(self, cells: pa.Table, blocks: range) -> pa.Table:
        """Return the cells that were read in these blocks, and the cells that summarize unread events in them.

        If a partition and block has several cells, the greatest event time is used.
        """
        is_inside = pc.and_(
            pc.greater_equal(self.prefix_rows["block"], blocks.start),
            pc.less(self.prefix_rows["block"], blocks.stop),
        )
        prefix = self.prefix_rows.filter(is_inside)
        # Spark marks some columns as never null, which is another schema for Arrow.
        read = cells.select(prefix.column_names).cast(prefix.schema)
        return pa.concat_tables([read, prefix])


def _find_idle_transitions(
    index: ArrivalIndex, buckets: BucketGrid, emission: Emission, clock: SourceClock
) -> Longs:
    """Return the arrival buckets in which a partition becomes idle or active."""
    if not emission.strategy.idle_timeout_ms:
        return np.array([], dtype=np.int64)
    # A partition without records becomes idle one timeout after the start of the stream.
    transitions = [np.array([emission.strategy.idle_timeout_ms // clock.interval_ms + 2])]
    for partition in index.rows_by_partition.values():
        transitions += idle_ticks(partition, emission, clock)
    ticks = np.concatenate(transitions)
    instants_ms = clock.start_ms + ticks[ticks <= clock.last_tick] * clock.interval_ms
    return instants_ms // buckets.arrival_width_ms


def _summarize_buckets(rows: pa.Table, clock: SourceClock) -> pa.Table:
    """Return two cells per partition and bucket.

    The first cell, at the first arrival, has the event time -inf and only ends idleness. The second cell, at the
    last arrival, has the greatest event time of the bucket.
    """
    by_bucket = rows.group_by(["source_partition", "arrival_bucket"]).aggregate(
        [("first_arrival_ms", "min"), ("last_arrival_ms", "max"), ("last_event_ms", "max")]
    )
    first = _cells(by_bucket, by_bucket["first_arrival_ms_min"], pa.repeat(MIN_MS, by_bucket.num_rows), clock)
    last = _cells(by_bucket, by_bucket["last_arrival_ms_max"], by_bucket["last_event_ms_max"], clock)
    return pa.concat_tables([first, last])


def _cells(
    by_bucket: pa.Table, arrivals_ms: pa.ChunkedArray, event_time_ms: pa.Array, clock: SourceClock
) -> pa.Table:
    elapsed_ms = np.minimum(int64_array(arrivals_ms), clock.end_ms) - clock.start_ms
    blocks = np.maximum(elapsed_ms, 0) // clock.interval_ms
    return pa.table(
        {"source_partition": by_bucket["source_partition"], "block": blocks, "event_time_ms": event_time_ms}
    )
