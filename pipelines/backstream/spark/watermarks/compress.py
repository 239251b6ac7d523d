"""Reduce a stream on Spark to one row per source partition and tick, from which its watermarks follow.

Within one tick of the source's clock, a generator keeps only a maximum. So Spark reduces a stream to cells, one
row per partition and block (`compress_events`), and the driver computes the watermarks (`watermarks.cells`).
`join` then adds the watermark in force to each record.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from backstream.eventtime.emission import Emission
from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.records import SourceClock
from backstream.spark.schemas import int64_literal, integer_quotient, partition_to_group_by, with_partition_as_text


def count_ticks_before(clock: SourceClock) -> Column:
    """Return `SourceClock.ticks_before` of the column `arrival_time_ms`."""
    if not clock.interval_ms:
        return int64_literal(0)
    elapsed_ms = F.least(F.col("arrival_time_ms"), int64_literal(clock.end_ms)) - int64_literal(clock.start_ms)
    return integer_quotient(F.greatest(elapsed_ms, int64_literal(0)), int64_literal(clock.interval_ms))


def compress_events(events: DataFrame, clock: SourceClock, emission: Emission | None = None) -> DataFrame:
    """Return the cells of a stream, and its markers.

    A cell is one row per source partition and block, with the greatest event time and the position of the last
    record. A marker is a record that can move the watermark between two ticks: it carries a watermark, or it
    raises the greatest event time of its partition. If the emission `is_mergeable`, a cell has only
    its greatest event time, and there are no markers.

    Args:
        events: normalized events, with `marker_ms` if watermarks are punctuated.
        clock: the clock of the source.
        emission: if it emits at raises, records that raise the maximum of their partition become markers.
    """
    blocks = events.withColumn("block", count_ticks_before(clock))
    by_block = blocks.groupBy(partition_to_group_by(blocks), "block")
    greatest_ms = F.max("event_time_ms").alias("event_time_ms")
    if emission is not None and emission.is_mergeable:
        # The order within a block has no effect. Spark would have to sort for it and send it to the driver.
        return by_block.agg(greatest_ms).transform(with_partition_as_text)
    last = F.max(F.struct("arrival_time_ms", "arrival_seq"))
    cells = by_block.agg(greatest_ms, last.alias("position")).transform(with_partition_as_text)
    no_marker = int64_literal(None).alias("marker_ms")
    cells = cells.select("source_partition", "block", "event_time_ms", "position.*", no_marker)
    if emission is not None and emission.emits_at_raises:
        blocks = blocks.withColumn("marker_ms", _raised_watermark_ms(emission))
    elif "marker_ms" not in events.columns:
        return cells
    markers = blocks.where(F.col("marker_ms").isNotNull())
    return markers.select(*cells.columns).unionByName(cells)


def _raised_watermark_ms(emission: Emission) -> Column:
    """Return the new watermark of the partition if the record raises it, else null.

    With an idle timeout, the first record of a block counts too: it may end idleness with any event time. The
    operator of Flink SQL emits only for a record more than an interval ahead of all that its last emission saw.
    """
    arrived = Window.partitionBy("source_partition").orderBy("arrival_time_ms", "arrival_seq")
    so_far = arrived.rowsBetween(Window.unboundedPreceding, -1)
    event_ms = F.col("event_time_ms")
    is_marker = event_ms > F.coalesce(F.max(event_ms).over(so_far), F.lit(MIN_MS))
    if emission.is_assigner:
        period = integer_quotient(F.col("block"), int64_literal(emission.ticks_per_emission))
        periods = Window.partitionBy("source_partition").orderBy(period)
        seen_ms = F.max(event_ms).over(periods.rangeBetween(Window.unboundedPreceding, -1))
        is_marker &= event_ms > F.coalesce(seen_ms, F.lit(MIN_MS)) + F.lit(emission.strategy.interval_ms)
    elif emission.strategy.idle_timeout_ms:
        is_marker |= F.coalesce(F.lag("block").over(arrived) != F.col("block"), F.expr("true"))
    return F.when(is_marker, event_ms - F.lit(emission.delay_ms) - F.lit(1))
