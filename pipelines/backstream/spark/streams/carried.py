"""The watermarks that a part of a stream met, without reading all that arrived before.

A watermark rests on the whole past, but for a maximum per partition the past is one number. The arrival index has
it per arrival bucket: the greatest event time, and the first and the last arrival, which say who was idle. So only
those buckets are read whose records are asked for, and those in which a partition fell silent or woke: there the
merged watermark may rise and fall again, and what stays is its highest. In every other bucket the same partitions
are active from its first tick to its last, the merged watermark only rises, and ends where the maxima end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backstream.core.arrivals import BucketGrid, is_told_by_index
from backstream.core.instants import MIN_MS
from backstream.core.intervals import Interval
from backstream.core.records import Clock
from backstream.core.watermarks import Emission
from backstream.spark.streams.heard import Longs
from backstream.spark.streams.index import ArrivalIndex, longs
from backstream.spark.streams.merge import silences
from backstream.spark.streams.watermarks import is_merged


def is_carried(emission: Emission) -> bool:
    """Whether the past of these watermarks is a maximum per partition, and the index has it."""
    return is_merged(emission) and is_told_by_index(emission)


@dataclass(frozen=True)
class Part:
    """A part of a stream: the arrival buckets to read, and the files that hold what arrived in them.

    `before` stands for all others: cells as `watermarks.compressed` yields them, two per partition and bucket.
    """

    buckets: Longs
    paths: frozenset[str]
    before: pa.Table

    @classmethod
    def of(
        cls, index: ArrivalIndex, interval: Interval, buckets: BucketGrid, emission: Emission, clock: Clock
    ) -> Part:
        """What must be read to know the watermarks that the events of an interval of event time met.

        Args:
            index: of every input file up to the plan's cut-off.
            interval: the events; a bucket that may hold one of them is read.
            buckets: how the index is cut.
            emission: as `is_carried` accepts it.
            clock: when the source ticks.
        """
        rows = index.rows.filter(pc.is_valid(index.rows["source_partition"]))
        arrived = longs(rows["arrival_bucket"])
        is_asked = (longs(rows["first_event_ms"]) < interval.end_ms) & (
            longs(rows["last_event_ms"]) >= interval.start_ms
        )
        asked = np.unique(np.concatenate([arrived[is_asked], _turns(index, buckets, emission, clock)]))
        # What a record meets is as of the last tick, which may lie in a bucket before; that one is read, too.
        behind = -(-clock.interval_ms // buckets.arrival_width_ms)
        wanted = np.unique(asked[:, np.newaxis] - np.arange(behind + 1))
        is_wanted = np.isin(arrived, wanted)
        paths = frozenset(rows["path"].filter(pa.array(is_wanted)).unique().to_pylist())
        return cls(wanted, paths, _told(rows.filter(pa.array(~is_wanted)), clock))

    def joined(self, cells: pa.Table, blocks: range) -> pa.Table:
        """The cells of these blocks that were read, and those that stand for all others in them.

        Of a partition and block in which both have a cell, the greater holds.
        """
        is_there = pc.and_(
            pc.greater_equal(self.before["block"], blocks.start), pc.less(self.before["block"], blocks.stop)
        )
        before = self.before.filter(is_there)
        # Spark says of some columns that they are never null, and Arrow takes that for another schema.
        read = cells.select(before.column_names).cast(before.schema)
        return pa.concat_tables([read, before])


def _turns(index: ArrivalIndex, buckets: BucketGrid, emission: Emission, clock: Clock) -> Longs:
    """The arrival buckets in which a partition falls silent or wakes."""
    if not emission.strategy.idle_timeout_ms:
        return np.array([], dtype=np.int64)
    # A partition that never delivers falls silent when the stream has just begun.
    turns = [np.array([emission.strategy.idle_timeout_ms // clock.interval_ms + 2])]
    for mine in index.delivered.values():
        turns += silences(mine, emission, clock)
    ticks = np.concatenate(turns)
    instants_ms = clock.start_ms + ticks[ticks <= clock.last_tick] * clock.interval_ms
    return instants_ms // buckets.arrival_width_ms


def _told(rows: pa.Table, clock: Clock) -> pa.Table:
    """Two cells per partition and bucket: the first record, raising nothing; and with the last the greatest."""
    by_bucket = rows.group_by(["source_partition", "arrival_bucket"]).aggregate(
        [("first_arrival_ms", "min"), ("last_arrival_ms", "max"), ("last_event_ms", "max")]
    )
    begun = _cells(by_bucket, by_bucket["first_arrival_ms_min"], pa.repeat(MIN_MS, by_bucket.num_rows), clock)
    ended = _cells(by_bucket, by_bucket["last_arrival_ms_max"], by_bucket["last_event_ms_max"], clock)
    return pa.concat_tables([begun, ended])


def _cells(by_bucket: pa.Table, arrivals_ms: pa.ChunkedArray, event_time_ms: pa.Array, clock: Clock) -> pa.Table:
    elapsed_ms = np.minimum(longs(arrivals_ms), clock.end_ms) - clock.start_ms
    blocks = np.maximum(elapsed_ms, 0) // clock.interval_ms
    return pa.table(
        {"source_partition": by_bucket["source_partition"], "block": blocks, "event_time_ms": event_time_ms}
    )
