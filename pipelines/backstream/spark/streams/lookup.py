"""The watermark that each record met, looked up by the ticks before its arrival: an equality, no sort."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from backstream.core.instants import MIN_MS
from backstream.core.records import Clock
from backstream.spark import arrays
from backstream.spark.schemas import Step
from backstream.spark.streams.heard import Heard, Longs
from backstream.spark.streams.in_order import merged_in_order
from backstream.spark.streams.watermarks import ClockColumns, ticks_before

_MARKER = pa.struct(
    [("time_ms", pa.int64()), ("seq", pa.int64()), ("partition", pa.string()), ("rise_ms", pa.int64())]
)
_MOST_IN_BLOCK = 1_000
"""More rises than this in one block are not searched one by one."""
_MOST_LISTED = 5_000_000
"""Up to so many ticks, which are 40 MB, a watermark each is sent to every task."""
_ROW_IN_LISTED = 6
"""As many listed watermarks take the room of one row of a table that is joined."""


def in_force_table(heard: Heard, blocks: Longs | None = None) -> pa.Table:
    """The watermark at the beginning of each block; by default of all in which anything arrived."""
    wanted = heard.blocks if blocks is None else blocks
    return pa.table({"block": wanted, "block_watermark_ms": heard.at_block(wanted)})


def marker_table(heard: Heard) -> pa.Table:
    """Per block the rises inside it; empty where watermarks move only at ticks."""
    inside: dict[int, list[dict[str, int | str]]] = {}
    rises = zip(heard.watermark_ms, heard.visible_from, heard.marker_positions, strict=False)
    for rise_ms, visible, position in rises:
        if position is not None:
            marker = dict(zip(_MARKER.names, (*position, int(rise_ms)), strict=True))
            inside.setdefault(int(visible) - 1, []).append(marker)
    schema = pa.schema([("block", pa.int64()), ("markers", pa.list_(_MARKER))])
    return pa.table({"block": list(inside), "markers": list(inside.values())}, schema)


def watermarked(spark: SparkSession, heard: Heard, clock: Clock) -> Step:
    """Add `watermark_ms`, the watermark in force when the record arrived."""
    if not len(heard.watermark_ms):
        return lambda events: events.withColumn("watermark_ms", F.lit(MIN_MS))
    if heard.most_in_block() > _MOST_IN_BLOCK:
        return merged_in_order(spark, heard, clock)
    if not any(heard.marker_positions) and len(blocks := _listed_blocks(heard)) <= _most_listed(heard):
        return _listed(spark, heard, clock, blocks)
    return looked_up(spark, in_force_table(heard), marker_table(heard), ClockColumns.of(clock))


def _listed_blocks(heard: Heard) -> range:
    """All blocks from the clock's start to the last in which something arrived; of many, from the first such.

    Most lists can begin at the clock's start, and then no record's block has to be counted from another.
    """
    if not len(heard.blocks):
        return range(0)
    stop = int(heard.blocks[-1]) + 1
    return range(stop) if stop <= _MOST_LISTED else range(int(heard.blocks[0]), stop)


def _most_listed(heard: Heard) -> int:
    """A list of so many watermarks takes less room than the table would, or little."""
    return max(_MOST_LISTED, _ROW_IN_LISTED * len(heard.blocks))


def _listed(spark: SparkSession, heard: Heard, clock: Clock, blocks: range) -> Step:
    """The watermark of each block as one array, the one row of a scalar subquery: quicker than a join."""
    watermarks_ms = heard.at_block(np.arange(blocks.start, blocks.stop, dtype=np.int64))
    of_block = arrays.as_arrays(spark, {"watermark_ms": pa.array(watermarks_ms)})["watermark_ms"]
    block = ticks_before(ClockColumns.of(clock))
    if blocks.start:
        (first,) = arrays.looked_up(spark, blocks.start)
        block -= first
    # A record that cannot be read may have arrived at any time, or none; it meets nothing.
    place = block.try_cast("int")
    return lambda events: events.withColumn("watermark_ms", F.get(of_block, place))


def looked_up(
    spark: SparkSession,
    in_force: pa.Table,
    markers: pa.Table,
    clock: ClockColumns,
    stream: Sequence[str] = (),
) -> Step:
    """Add `watermark_ms` from the tables of one stream, or of several that the columns `stream` tell apart."""
    by = [*stream, "block"]
    at_block = F.broadcast(spark.createDataFrame(in_force))
    inside = F.broadcast(spark.createDataFrame(markers)) if markers.num_rows else None

    def step(events: DataFrame) -> DataFrame:
        joined = events.withColumn("block", ticks_before(clock)).join(at_block, by, how="left")
        begun_ms = F.coalesce("block_watermark_ms", F.lit(MIN_MS))
        if inside is None:
            return joined.withColumn("watermark_ms", begun_ms).drop("block", "block_watermark_ms")
        seen = F.transform(F.filter("markers", _comes_before_the_record), lambda each: each.rise_ms)
        latest_ms = F.greatest(begun_ms, F.coalesce(F.array_max(seen), begun_ms))
        marked = joined.join(inside, by, how="left").withColumn("watermark_ms", latest_ms)
        return marked.drop("block", "block_watermark_ms", "markers")

    return step


def _comes_before_the_record(marker: Column) -> Column:
    """Strictly: a record does not see the watermark it carries itself."""
    return F.struct(marker.time_ms, marker.seq, marker.partition) < F.struct(
        "arrival_time_ms", "arrival_seq", "source_partition"
    )
