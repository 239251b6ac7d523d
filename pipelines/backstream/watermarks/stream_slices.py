"""Replace the past of a stream by a summary from the arrival index, and cut its ticks into ranges.

For watermarks based on a maximum per partition, one number per partition replaces all earlier records. So if the
watermarks of an interval are needed, only the arrivals around it are read, and the index summarizes all others:

    arrival      |== summary ==|-- read --|== summary ==|-- read --|
    needed                      ^ event of the interval  ^ a partition becomes idle
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backstream.eventtime.emission import Emission
from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import SourceClock
from backstream.runs.plan import InputFile
from backstream.source.arrival_index import ArrivalIndex, BucketGrid, int64_array
from backstream.watermarks.firing_times_from_index import idle_ticks
from backstream.watermarks.tick_maxima import sorted_unique
from backstream.watermarks.timeline import Longs, to_int64

_Floats = npt.NDArray[np.float64]


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
            emission: an emission that `is_resumable`.
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
