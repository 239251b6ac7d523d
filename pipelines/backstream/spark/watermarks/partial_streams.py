"""Compute the watermarks of files on Spark: at once, or one range of ticks after the other.

The driver computes watermarks from cells, one row per source partition and block. A month of 64 partitions with
ticks of 200 ms can have 830 million cells, which need 18 GB. So the driver gets the cells in ranges of ticks
(`timeline_by_tick_range`). Between two ranges it keeps only one number per partition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backstream.eventtime.emission import Emission
from backstream.eventtime.records import SourceClock
from backstream.spark.schemas import partition_to_group_by, plan_literals, with_partition_as_text
from backstream.spark.shuffle_free import compress_files
from backstream.spark.source import EventFiles
from backstream.spark.watermarks.compress import count_ticks_before
from backstream.spark.watermarks.user_generators import list_partitions, timeline_of_events
from backstream.watermarks.cells import timeline_of_maxima
from backstream.watermarks.stream_slices import split_ticks, ticks_of_file
from backstream.watermarks.tick_maxima import TickMerger, sorted_unique
from backstream.watermarks.timeline import Longs, WatermarkTimeline

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
    if not emission.is_mergeable:
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
