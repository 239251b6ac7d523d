"""Add to each record the watermark that was in force at its arrival."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.records import SourceClock
from backstream.spark import schemas
from backstream.spark.schemas import ARRIVAL_ORDER, Step, int64_literal, integer_quotient
from backstream.spark.watermarks.compress import count_ticks_before
from backstream.watermarks.timeline import WatermarkTimeline, to_int64

_MARKER = pa.struct(
    [("time_ms", pa.int64()), ("seq", pa.int64()), ("partition", pa.string()), ("rise_ms", pa.int64())]
)
_MAX_RISES_IN_BLOCK = 1_000
"""The largest number of rises in one block that Spark compares one by one for each record."""
_MAX_LISTED_TICKS = 100_000
"""The number of ticks whose watermarks every task may get as an array (800 kB), however few have records."""
_LISTED_PER_ROW = 6
"""The number of listed watermarks that need as much memory as one row of a joined table."""


def _marker_table(timeline: WatermarkTimeline) -> pa.Table:
    """Return the rises inside of each block; the table is empty if the watermark moves only at ticks."""
    inside: dict[int, list[dict[str, int | str]]] = {}
    rises = zip(timeline.watermark_ms, timeline.visible_from, timeline.marker_positions, strict=False)
    for rise_ms, visible, position in rises:
        if position is not None:
            marker = dict(zip(_MARKER.names, (*position, int(rise_ms)), strict=True))
            inside.setdefault(int(visible) - 1, []).append(marker)
    schema = pa.schema([("block", pa.int64()), ("markers", pa.list_(_MARKER))])
    return pa.table({"block": list(inside), "markers": list(inside.values())}, schema)


def add_watermarks(spark: SparkSession, timeline: WatermarkTimeline, clock: SourceClock) -> Step:
    """Add `watermark_ms`, the watermark in force when the record arrived; by the fastest of three joins."""
    if not len(timeline.watermark_ms):
        return lambda events: events.withColumn("watermark_ms", F.lit(MIN_MS))
    if timeline.max_rises_per_tick() > _MAX_RISES_IN_BLOCK:
        return _add_watermarks_by_sort(spark, timeline, clock)
    if not any(timeline.marker_positions) and len(blocks := _listed_blocks(timeline)) <= _max_listed_ticks(
        timeline
    ):
        return _add_listed_watermarks(spark, timeline, clock, blocks)
    return _join_watermarks(spark, timeline.in_force(), _marker_table(timeline), clock)


def _listed_blocks(timeline: WatermarkTimeline) -> range:
    """Return all blocks up to the last in which a record arrived.

    The range begins at the clock's start, so that block numbers are array positions. If it would be too long, it
    begins at the first block in which a record arrived.
    """
    if not len(timeline.blocks):
        return range(0)
    stop = int(timeline.blocks[-1]) + 1
    return range(stop) if stop <= _MAX_LISTED_TICKS else range(int(timeline.blocks[0]), stop)


def _max_listed_ticks(timeline: WatermarkTimeline) -> int:
    """Return up to how many watermarks a list is small, or smaller than a table would be."""
    return max(_MAX_LISTED_TICKS, _LISTED_PER_ROW * len(timeline.blocks))


def _add_listed_watermarks(
    spark: SparkSession, timeline: WatermarkTimeline, clock: SourceClock, blocks: range
) -> Step:
    """Add `watermark_ms` from one array, the only row of a scalar subquery; this is faster than a join."""
    watermarks_ms = timeline.at_block(np.arange(blocks.start, blocks.stop, dtype=np.int64))
    watermark_by_block = schemas.table_literals(spark, {"watermark_ms": pa.array(watermarks_ms)})["watermark_ms"]
    block = count_ticks_before(clock)
    if blocks.start:
        (first,) = schemas.plan_literals(spark, blocks.start)
        block -= first
    # An unreadable record may have any arrival time, or none. Its watermark is null.
    position = block.try_cast("int")
    return lambda events: events.withColumn("watermark_ms", F.get(watermark_by_block, position))


def _join_watermarks(
    spark: SparkSession,
    in_force: pa.Table,
    markers: pa.Table,
    clock: SourceClock,
) -> Step:
    """Add `watermark_ms` from the watermark at the start of each block, and from the rises inside of it."""
    at_block = F.broadcast(spark.createDataFrame(in_force))
    inside = F.broadcast(spark.createDataFrame(markers)) if markers.num_rows else None

    def step(events: DataFrame) -> DataFrame:
        joined = events.withColumn("block", count_ticks_before(clock)).join(at_block, "block", how="left")
        begun_ms = F.coalesce("block_watermark_ms", F.lit(MIN_MS))
        if inside is None:
            return joined.withColumn("watermark_ms", begun_ms).drop("block", "block_watermark_ms")
        seen = F.transform(F.filter("markers", _precedes_record), lambda marker: marker.rise_ms)
        latest_ms = F.greatest(begun_ms, F.coalesce(F.array_max(seen), begun_ms))
        marked = joined.join(inside, "block", how="left").withColumn("watermark_ms", latest_ms)
        return marked.drop("block", "block_watermark_ms", "markers")

    return step


def _precedes_record(marker: Column) -> Column:
    """Return whether a marker is strictly before the record, which doesn't see the watermark it causes."""
    return F.struct(marker.time_ms, marker.seq, marker.partition) < F.struct(
        "arrival_time_ms", "arrival_seq", "source_partition"
    )


_POSITION = pa.struct([("time_ms", pa.int64()), ("seq", pa.int64()), ("partition", pa.string())])
_MAX_SLICES = 4_096
"""The largest number of time slices that Spark sorts separately."""


def _add_watermarks_by_sort(spark: SparkSession, timeline: WatermarkTimeline, clock: SourceClock) -> Step:
    """Add `watermark_ms` by sorting rises and records together, in slices of arrival time."""
    positions = timeline.arrival_positions(clock)
    rows = [dict(zip(_POSITION.names, position, strict=True)) for position in positions]
    rises = pa.table({"position": pa.array(rows, _POSITION), "rise_ms": timeline.watermark_ms})
    first_ms, last_ms = positions[0][0], positions[-1][0]
    width_ms = (last_ms - first_ms) // _MAX_SLICES + 1
    slices = np.arange((last_ms - first_ms) // width_ms + 1)

    def slice_number(time_ms: Column) -> Column:
        """Return the number of the slice; the first and the last one are unbounded."""
        elapsed_ms = F.greatest(time_ms - int64_literal(first_ms), int64_literal(0))
        number = integer_quotient(elapsed_ms, int64_literal(width_ms))
        return F.least(number, int64_literal(len(slices) - 1))

    # Each slice begins with a row that has the watermark of the slice before.
    times_ms = np.array([position[0] for position in positions])
    rises_before = np.searchsorted(times_ms, first_ms + slices * width_ms, side="left")
    start_ms = np.concatenate([to_int64([MIN_MS]), timeline.watermark_ms])[rises_before]
    minimum = pa.array([(MIN_MS, MIN_MS, "")] * len(slices), _POSITION)
    starts = spark.createDataFrame(pa.table({"position": minimum, "rise_ms": start_ms, "slice": slices}))
    inside = spark.createDataFrame(rises).withColumn("slice", slice_number(F.col("position.time_ms")))
    # A record doesn't see the watermark it causes, so it precedes a rise with the same position.
    in_order = Window.partitionBy("slice").orderBy("position", F.col("event").isNull())
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)

    def step(events: DataFrame) -> DataFrame:
        names = zip(ARRIVAL_ORDER, _POSITION.names, strict=True)
        records = events.select(
            F.struct(*events.columns).alias("event"),
            F.struct(*(F.col(name).alias(field) for name, field in names)).alias("position"),
            slice_number(F.col("arrival_time_ms")).alias("slice"),
        )
        rows = records.unionByName(inside.unionByName(starts), allowMissingColumns=True)
        rows = rows.withColumn("watermark_ms", F.max("rise_ms").over(so_far))
        return rows.where(F.col("event").isNotNull()).select("event.*", "watermark_ms")

    return step
