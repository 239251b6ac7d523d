"""The watermark that each record met, looked up by the ticks before its arrival: an equality, no sort."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.records import SourceClock
from backstream.spark import schemas
from backstream.spark.schemas import ARRIVAL_ORDER, Step, int64_literal, integer_quotient
from backstream.spark.watermarks.compress import ClockColumns, count_ticks_before
from backstream.spark.watermarks.timeline import Longs, WatermarkTimeline, to_int64

_MARKER = pa.struct(
    [("time_ms", pa.int64()), ("seq", pa.int64()), ("partition", pa.string()), ("rise_ms", pa.int64())]
)
_MOST_IN_BLOCK = 1_000
"""More rises than this in one block are not searched one by one."""
_MOST_LISTED = 5_000_000
"""Up to so many ticks, which are 40 MB, a watermark each is sent to every task."""
_ROW_IN_LISTED = 6
"""As many listed watermarks take the room of one row of a table that is joined."""


def in_force_table(heard: WatermarkTimeline, blocks: Longs | None = None) -> pa.Table:
    """The watermark at the beginning of each block; by default of all in which anything arrived."""
    wanted = heard.blocks if blocks is None else blocks
    return pa.table({"block": wanted, "block_watermark_ms": heard.at_block(wanted)})


def marker_table(heard: WatermarkTimeline) -> pa.Table:
    """Per block the rises inside it; empty where watermarks move only at ticks."""
    inside: dict[int, list[dict[str, int | str]]] = {}
    rises = zip(heard.watermark_ms, heard.visible_from, heard.marker_positions, strict=False)
    for rise_ms, visible, position in rises:
        if position is not None:
            marker = dict(zip(_MARKER.names, (*position, int(rise_ms)), strict=True))
            inside.setdefault(int(visible) - 1, []).append(marker)
    schema = pa.schema([("block", pa.int64()), ("markers", pa.list_(_MARKER))])
    return pa.table({"block": list(inside), "markers": list(inside.values())}, schema)


def add_watermarks(spark: SparkSession, heard: WatermarkTimeline, clock: SourceClock) -> Step:
    """Add `watermark_ms`, the watermark in force when the record arrived."""
    if not len(heard.watermark_ms):
        return lambda events: events.withColumn("watermark_ms", F.lit(MIN_MS))
    if heard.max_rises_per_tick() > _MOST_IN_BLOCK:
        return add_watermarks_by_sort(spark, heard, clock)
    if not any(heard.marker_positions) and len(blocks := _listed_blocks(heard)) <= _most_listed(heard):
        return _listed(spark, heard, clock, blocks)
    return join_watermarks(spark, in_force_table(heard), marker_table(heard), ClockColumns.from_clock(clock))


def _listed_blocks(heard: WatermarkTimeline) -> range:
    """All blocks from the clock's start to the last in which something arrived; of many, from the first such.

    Most lists can begin at the clock's start, and then no record's block has to be counted from another.
    """
    if not len(heard.blocks):
        return range(0)
    stop = int(heard.blocks[-1]) + 1
    return range(stop) if stop <= _MOST_LISTED else range(int(heard.blocks[0]), stop)


def _most_listed(heard: WatermarkTimeline) -> int:
    """A list of so many watermarks takes less room than the table would, or little."""
    return max(_MOST_LISTED, _ROW_IN_LISTED * len(heard.blocks))


def _listed(spark: SparkSession, heard: WatermarkTimeline, clock: SourceClock, blocks: range) -> Step:
    """The watermark of each block as one array, the one row of a scalar subquery: quicker than a join."""
    watermarks_ms = heard.at_block(np.arange(blocks.start, blocks.stop, dtype=np.int64))
    of_block = schemas.table_literals(spark, {"watermark_ms": pa.array(watermarks_ms)})["watermark_ms"]
    block = count_ticks_before(ClockColumns.from_clock(clock))
    if blocks.start:
        (first,) = schemas.plan_literals(spark, blocks.start)
        block -= first
    # A record that cannot be read may have arrived at any time, or none; it meets nothing.
    place = block.try_cast("int")
    return lambda events: events.withColumn("watermark_ms", F.get(of_block, place))


def join_watermarks(
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
        joined = events.withColumn("block", count_ticks_before(clock)).join(at_block, by, how="left")
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


_PLACE = pa.struct([("time_ms", pa.int64()), ("seq", pa.int64()), ("partition", pa.string())])
_STRETCHES = 4_096
"""Stretches of time that are sorted each on its own."""


def add_watermarks_by_sort(spark: SparkSession, heard: WatermarkTimeline, clock: SourceClock) -> Step:
    """Add `watermark_ms`: rises and records are sorted together, stretch of time by stretch."""
    rises = pa.table(
        {
            "place": pa.array(
                [dict(zip(_PLACE.names, each, strict=True)) for each in heard.arrival_positions(clock)], _PLACE
            ),
            "rise_ms": heard.watermark_ms,
        }
    )
    first_ms, last_ms = rises["place"][0]["time_ms"].as_py(), rises["place"][-1]["time_ms"].as_py()
    width_ms = (last_ms - first_ms) // _STRETCHES + 1
    stretches = np.arange((last_ms - first_ms) // width_ms + 1)

    def stretch(time_ms: Column) -> Column:
        """Before the first rise and behind the last one time goes on."""
        number = integer_quotient(
            F.greatest(time_ms - int64_literal(first_ms), int64_literal(0)), int64_literal(width_ms)
        )
        return F.least(number, int64_literal(len(stretches) - 1))

    times_ms = np.array([place[0] for place in heard.arrival_positions(clock)])
    risen = np.searchsorted(times_ms, first_ms + stretches * width_ms, side="left")
    begun_ms = np.concatenate([to_int64([MIN_MS]), heard.watermark_ms])[risen]
    before = pa.array([(MIN_MS, MIN_MS, "")] * len(stretches), _PLACE)
    begun = spark.createDataFrame(pa.table({"place": before, "rise_ms": begun_ms, "stretch": stretches}))
    inside = spark.createDataFrame(rises).withColumn("stretch", stretch(F.col("place.time_ms")))
    # A record does not see the watermark it carries, so it comes first where the two are in one place.
    in_order = Window.partitionBy("stretch").orderBy("place", F.col("event").isNull())
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)

    def step(events: DataFrame) -> DataFrame:
        place = F.struct(
            *(F.col(name).alias(part) for name, part in zip(ARRIVAL_ORDER, _PLACE.names, strict=True))
        )
        placed = events.select(
            F.struct(*events.columns).alias("event"),
            place.alias("place"),
            stretch(F.col("arrival_time_ms")).alias("stretch"),
        )
        both = placed.unionByName(inside.unionByName(begun), allowMissingColumns=True)
        met = both.withColumn("watermark_ms", F.max("rise_ms").over(so_far)).where(F.col("event").isNotNull())
        return met.select("event.*", "watermark_ms")

    return step
