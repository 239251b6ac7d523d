"""Portions of a stream's arrivals, heard one after the other.

What the ticks of a stream hold comes to the driver. A month of 64 partitions at ticks of 200 ms can be 830 million
cells, 18 GB; so it comes in portions, of which the next needs no more of those before than a number per partition.
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

from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import SourceClock
from backstream.eventtime.watermarks import Emission
from backstream.runs.plan import InputFile
from backstream.source.arrival_index import ArrivalIndex, BucketGrid, int64_array, is_index_exact
from backstream.spark.schemas import partition_to_group_by, plan_literals, with_partition_as_text
from backstream.spark.shuffle_free import compress_files
from backstream.spark.source import EventFiles
from backstream.spark.watermarks.compress import (
    ClockColumns,
    count_ticks_before,
    is_numpy_mergeable,
    timeline_of_maxima,
)
from backstream.spark.watermarks.firing_times_from_index import idle_ticks
from backstream.spark.watermarks.tick_maxima import TickMerger, sorted_unique
from backstream.spark.watermarks.timeline import Longs, WatermarkTimeline, to_int64
from backstream.spark.watermarks.user_generators import list_partitions, timeline_of_events

Floats = npt.NDArray[np.float64]

CELL_BYTES = 32
"""About what a cell takes on its way: two numbers, and the name of a partition."""


def timeline_of_files(
    recorded: EventFiles, emission: Emission, clock: SourceClock, expected: Iterable[str]
) -> WatermarkTimeline:
    """The watermarks of recorded events, as `heard_by` finds them. Runs jobs.

    Two shares of the files may both have events of a partition and tick: the greater of their greatest event times
    holds. Where watermarks need more than greatest event times, all events are exchanged, and heard at once.
    """
    if not is_numpy_mergeable(emission):
        return timeline_of_events(recorded.all(), emission, clock, expected)
    if sum(file.rows for file in recorded.files) <= max_driver_rows(recorded.spark):
        cells = compress_files(recorded, emission, clock)
        return timeline_of_maxima(cells, emission, clock, list_partitions(expected, cells))
    return timeline_by_tick_range(recorded, emission, clock, list_partitions(expected, _delivering(recorded)))


def timeline_by_tick_range(
    recorded: EventFiles,
    emission: Emission,
    clock: SourceClock,
    partitions: Sequence[str],
    joined: Callable[[pa.Table, range], pa.Table] = lambda cells, _: cells,
) -> WatermarkTimeline:
    """The watermarks of recorded events, of as many portions as the driver needs. Runs a job for each.

    Args:
        recorded: the events.
        emission: the watermarks follow from the greatest event times alone.
        clock: when the source ticks.
        partitions: all that the source reads, also those that never delivered.
        joined: adds to the cells of some blocks what else is known of them.
    """
    merge = TickMerger(emission, clock, partitions)

    def heard_in(portion: range) -> tuple[Longs, Longs, Longs]:
        cells = compress_files(_arriving_in(recorded, portion, clock), emission, clock)
        # What arrives in a block is seen by the tick at its end.
        return *merge.advance_to(portion.stop, joined(cells, portion)), sorted_unique(cells["block"].to_numpy())

    portions = split_ticks(recorded.files, len(partitions), clock, max_driver_rows(recorded.spark))
    watermark_ms, ticks, blocks = (np.concatenate(each) for each in zip(*map(heard_in, portions), strict=True))
    return WatermarkTimeline(watermark_ms, ticks, blocks, is_final=True)


def max_driver_rows(spark: SparkSession) -> int:
    """About how many cells the driver has room for: in what Spark lets it be sent, and in a third of its heap.

    A third, since two chunks may be replayed at the same time.
    """
    sent = _bytes(spark.conf.get("spark.driver.maxResultSize", "1g") or "1g", "b")
    heap = _bytes(spark.conf.get("spark.driver.memory", "1g") or "1g", "m")
    return int(min(sent * 0.8 if sent > 0 else heap, heap / 3) / CELL_BYTES)


def _bytes(size: str, unit: str) -> int:
    """A size as Spark's settings have it, like 512m or 1gb; `unit` is that of a bare number."""
    ((number, written),) = re.findall(r"(-?\d+)([bkmgtp]?)", size.lower())
    return int(number) << 10 * "bkmgtp".index(written or unit)


def split_ticks(files: Sequence[InputFile], partitions: int, clock: SourceClock, most: int) -> list[range]:
    """All blocks of a clock in portions, each of about so many cells as may come to the driver at a time.

    A portion has no more cells than events, and no more than one for each block and partition. Events are taken to
    arrive evenly between the first and the last arrival of their file; of files where nearly all arrive at once, a
    portion has more. Where a footer does not tell, all events may have arrived at once.
    """
    stop = clock.last_tick + 1
    if sum(file.rows for file in files) <= most:
        return [range(stop)]
    held = [file for file in files if file.rows]
    is_told = all(file.min_arrival_ms is not None and file.max_arrival_ms is not None for file in held)
    blocks, events = _arrived(held, clock)
    dense = max(1, most // max(1, partitions))
    starts = [0]
    while (start := starts[-1]) < stop:
        enough = np.interp(start, blocks, events) + most
        sparse = int(np.interp(enough, events, blocks, right=stop)) if is_told else start
        starts.append(min(stop, max(start + dense, sparse)))
    return [range(*each) for each in pairwise(starts)]


def ticks_of_file(file: InputFile, clock: SourceClock) -> range:
    """The blocks in which events of a file arrived; all, where the footer does not tell."""
    if file.min_arrival_ms is None or file.max_arrival_ms is None:
        return range(clock.last_tick + 1)
    return range(clock.ticks_before(file.min_arrival_ms), clock.ticks_before(file.max_arrival_ms) + 1)


def _arrived(files: Sequence[InputFile], clock: SourceClock) -> tuple[Longs, Floats]:
    """Some blocks, ascending, and about how many events had arrived when each began."""
    spans = [ticks_of_file(file, clock) for file in files]
    blocks = sorted_unique(to_int64([block for span in spans for block in (span.start, span.stop)]))
    events = np.zeros(len(blocks))
    for file, span in zip(files, spans, strict=True):
        events += np.clip((blocks - span.start) / len(span), 0, 1) * file.rows
    return blocks, events


def _arriving_in(recorded: EventFiles, portion: range, clock: SourceClock) -> EventFiles:
    """The events that arrived in some blocks, and the files that may hold such."""
    if len(portion) > clock.last_tick:
        return recorded
    held = [(ticks_of_file(file, clock), file) for file in recorded.files if file.rows]
    files = [file for span, file in held if span.start < portion.stop and portion.start < span.stop]
    start, stop = plan_literals(recorded.spark, portion.start, portion.stop)
    block = count_ticks_before(ClockColumns.from_clock(clock))
    is_inside = (block >= start) & (block < stop)
    # Where no file holds any, one is read all the same: nothing of it is inside.
    return EventFiles(
        recorded.spark, files or recorded.files[:1], lambda paths: recorded.read(paths).where(is_inside)
    )


def _delivering(recorded: EventFiles) -> pa.Table:
    """The `source_partition`s of which there are events. Runs a job."""
    events = recorded.all()
    found = events.groupBy(partition_to_group_by(events)).agg(F.count(F.lit(1)))
    return found.transform(with_partition_as_text).toArrow()


def is_resumable_from_index(emission: Emission) -> bool:
    """Whether the past of these watermarks is a maximum per partition, and the index has it."""
    return is_numpy_mergeable(emission) and is_index_exact(emission)


@dataclass(frozen=True)
class StreamSlice:
    """A part of a stream: the arrival buckets to read, and the files that hold what arrived in them.

    `before` stands for all others: cells as `watermarks.compressed` yields them, two per partition and bucket.
    """

    buckets: Longs
    paths: frozenset[str]
    prefix_rows: pa.Table

    @classmethod
    def from_index(
        cls, index: ArrivalIndex, interval: Interval, buckets: BucketGrid, emission: Emission, clock: SourceClock
    ) -> StreamSlice:
        """What must be read to know the watermarks that the events of an interval of event time met.

        Args:
            index: of every input file up to the plan's cut-off.
            interval: the events; a bucket that may hold one of them is read.
            buckets: how the index is cut.
            emission: as `is_carried` accepts it.
            clock: when the source ticks.
        """
        rows = index.rows.filter(pc.is_valid(index.rows["source_partition"]))
        arrived = int64_array(rows["arrival_bucket"])
        is_asked = (int64_array(rows["first_event_ms"]) < interval.end_ms) & (
            int64_array(rows["last_event_ms"]) >= interval.start_ms
        )
        asked = np.unique(np.concatenate([arrived[is_asked], _turns(index, buckets, emission, clock)]))
        # What a record meets is as of the last tick, which may lie in a bucket before; that one is read, too.
        behind = -(-clock.interval_ms // buckets.arrival_width_ms)
        wanted = np.unique(asked[:, np.newaxis] - np.arange(behind + 1))
        is_wanted = np.isin(arrived, wanted)
        paths = frozenset(rows["path"].filter(pa.array(is_wanted)).unique().to_pylist())
        return cls(wanted, paths, _told(rows.filter(pa.array(~is_wanted)), clock))

    def with_prefix(self, cells: pa.Table, blocks: range) -> pa.Table:
        """The cells of these blocks that were read, and those that stand for all others in them.

        Of a partition and block in which both have a cell, the greater holds.
        """
        is_there = pc.and_(
            pc.greater_equal(self.prefix_rows["block"], blocks.start),
            pc.less(self.prefix_rows["block"], blocks.stop),
        )
        before = self.prefix_rows.filter(is_there)
        # Spark says of some columns that they are never null, and Arrow takes that for another schema.
        read = cells.select(before.column_names).cast(before.schema)
        return pa.concat_tables([read, before])


def _turns(index: ArrivalIndex, buckets: BucketGrid, emission: Emission, clock: SourceClock) -> Longs:
    """The arrival buckets in which a partition falls silent or wakes."""
    if not emission.strategy.idle_timeout_ms:
        return np.array([], dtype=np.int64)
    # A partition that never delivers falls silent when the stream has just begun.
    turns = [np.array([emission.strategy.idle_timeout_ms // clock.interval_ms + 2])]
    for mine in index.delivered.values():
        turns += idle_ticks(mine, emission, clock)
    ticks = np.concatenate(turns)
    instants_ms = clock.start_ms + ticks[ticks <= clock.last_tick] * clock.interval_ms
    return instants_ms // buckets.arrival_width_ms


def _told(rows: pa.Table, clock: SourceClock) -> pa.Table:
    """Two cells per partition and bucket: the first record, raising nothing; and with the last the greatest."""
    by_bucket = rows.group_by(["source_partition", "arrival_bucket"]).aggregate(
        [("first_arrival_ms", "min"), ("last_arrival_ms", "max"), ("last_event_ms", "max")]
    )
    begun = _cells(by_bucket, by_bucket["first_arrival_ms_min"], pa.repeat(MIN_MS, by_bucket.num_rows), clock)
    ended = _cells(by_bucket, by_bucket["last_arrival_ms_max"], by_bucket["last_event_ms_max"], clock)
    return pa.concat_tables([begun, ended])


def _cells(
    by_bucket: pa.Table, arrivals_ms: pa.ChunkedArray, event_time_ms: pa.Array, clock: SourceClock
) -> pa.Table:
    elapsed_ms = np.minimum(int64_array(arrivals_ms), clock.end_ms) - clock.start_ms
    blocks = np.maximum(elapsed_ms, 0) // clock.interval_ms
    return pa.table(
        {"source_partition": by_bucket["source_partition"], "block": blocks, "event_time_ms": event_time_ms}
    )
