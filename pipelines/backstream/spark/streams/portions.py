"""Portions of a stream's arrivals, heard one after the other.

What the ticks of a stream hold comes to the driver. A month of 64 partitions at ticks of 200 ms can be 830 million
cells, 18 GB; so it comes in portions, of which the next needs no more of those before than a number per partition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backstream.core.plan import InputFile
from backstream.core.records import Clock
from backstream.core.watermarks import Emission
from backstream.spark.arrays import looked_up
from backstream.spark.recorded import Recorded
from backstream.spark.schemas import partition_to_group_by, with_partition_as_text
from backstream.spark.streams.generators import heard_by, partitions_of
from backstream.spark.streams.heard import Heard, Longs, longs
from backstream.spark.streams.maxima import Merge, distinct
from backstream.spark.streams.shares import cells_of
from backstream.spark.streams.watermarks import ClockColumns, heard, is_merged, ticks_before

Floats = npt.NDArray[np.float64]

CELL_BYTES = 32
"""About what a cell takes on its way: two numbers, and the name of a partition."""


def heard_of(recorded: Recorded, emission: Emission, clock: Clock, expected: Iterable[str]) -> Heard:
    """The watermarks of recorded events, as `heard_by` finds them. Runs jobs.

    Two shares of the files may both have events of a partition and tick: the greater of their greatest event times
    holds. Where watermarks need more than greatest event times, all events are exchanged, and heard at once.
    """
    if not is_merged(emission):
        return heard_by(recorded.all(), emission, clock, expected)
    if sum(file.rows for file in recorded.files) <= most_cells(recorded.spark):
        cells = cells_of(recorded, emission, clock)
        return heard(cells, emission, clock, partitions_of(expected, cells))
    return heard_in_portions(recorded, emission, clock, partitions_of(expected, _delivering(recorded)))


def heard_in_portions(
    recorded: Recorded,
    emission: Emission,
    clock: Clock,
    partitions: Sequence[str],
    joined: Callable[[pa.Table, range], pa.Table] = lambda cells, _: cells,
) -> Heard:
    """The watermarks of recorded events, of as many portions as the driver needs. Runs a job for each.

    Args:
        recorded: the events.
        emission: the watermarks follow from the greatest event times alone.
        clock: when the source ticks.
        partitions: all that the source reads, also those that never delivered.
        joined: adds to the cells of some blocks what else is known of them.
    """
    merge = Merge(emission, clock, partitions)

    def heard_in(portion: range) -> tuple[Longs, Longs, Longs]:
        cells = cells_of(_arriving_in(recorded, portion, clock), emission, clock)
        # What arrives in a block is seen by the tick at its end.
        return *merge.until(portion.stop, joined(cells, portion)), distinct(cells["block"].to_numpy())

    portions = cut(recorded.files, len(partitions), clock, most_cells(recorded.spark))
    watermark_ms, ticks, blocks = (np.concatenate(each) for each in zip(*map(heard_in, portions), strict=True))
    return Heard(watermark_ms, ticks, blocks, is_final=True)


def most_cells(spark: SparkSession) -> int:
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


def cut(files: Sequence[InputFile], partitions: int, clock: Clock, most: int) -> list[range]:
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


def blocks_of(file: InputFile, clock: Clock) -> range:
    """The blocks in which events of a file arrived; all, where the footer does not tell."""
    if file.min_arrival_ms is None or file.max_arrival_ms is None:
        return range(clock.last_tick + 1)
    return range(clock.ticks_before(file.min_arrival_ms), clock.ticks_before(file.max_arrival_ms) + 1)


def _arrived(files: Sequence[InputFile], clock: Clock) -> tuple[Longs, Floats]:
    """Some blocks, ascending, and about how many events had arrived when each began."""
    spans = [blocks_of(file, clock) for file in files]
    blocks = distinct(longs([block for span in spans for block in (span.start, span.stop)]))
    events = np.zeros(len(blocks))
    for file, span in zip(files, spans, strict=True):
        events += np.clip((blocks - span.start) / len(span), 0, 1) * file.rows
    return blocks, events


def _arriving_in(recorded: Recorded, portion: range, clock: Clock) -> Recorded:
    """The events that arrived in some blocks, and the files that may hold such."""
    if len(portion) > clock.last_tick:
        return recorded
    held = [(blocks_of(file, clock), file) for file in recorded.files if file.rows]
    files = [file for span, file in held if span.start < portion.stop and portion.start < span.stop]
    start, stop = looked_up(recorded.spark, portion.start, portion.stop)
    block = ticks_before(ClockColumns.of(clock))
    is_inside = (block >= start) & (block < stop)
    # Where no file holds any, one is read all the same: nothing of it is inside.
    return Recorded(
        recorded.spark, files or recorded.files[:1], lambda paths: recorded.read(paths).where(is_inside)
    )


def _delivering(recorded: Recorded) -> pa.Table:
    """The `source_partition`s of which there are events. Runs a job."""
    events = recorded.all()
    found = events.groupBy(partition_to_group_by(events)).agg(F.count(F.lit(1)))
    return found.transform(with_partition_as_text).toArrow()
