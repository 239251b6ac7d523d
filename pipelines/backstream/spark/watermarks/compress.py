"""The watermarks of a stream: it is compressed by Spark, and folded small.

Within one tick of the source's clock a generator only keeps a maximum, so one row per partition and tick says
as much as all the records (`compressed`). The watermarks that follow from those rows are few; each record then
looks up the one in force (`lookup`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from backstream.errors import PlanError
from backstream.eventtime.instants import MAX_MS, MIN_MS, wrap_int64
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.eventtime.watermarks import (
    MOST_EVENTS,
    Emission,
    EmissionModel,
    Topology,
    WatermarkEvent,
    Watermarks,
    new_builtin_generator,
    run_source,
)
from backstream.spark.schemas import int64_literal, integer_quotient, partition_to_group_by, with_partition_as_text
from backstream.spark.watermarks.tick_maxima import merge_maxima, merge_micro_batches, sorted_unique
from backstream.spark.watermarks.timeline import Longs, WatermarkTimeline, to_int64

__all__ = [
    "ClockColumns",
    "Longs",
    "WatermarkTimeline",
    "compress_events",
    "is_numpy_mergeable",
    "rows_in_arrival_order",
    "timeline_of_maxima",
    "to_timeline",
]

_PERIODIC_MAXIMA = (StrategyKind.MONOTONOUS, StrategyKind.BOUNDED)


@dataclass(frozen=True, slots=True)
class ClockColumns:
    """A clock's parameters as columns: literals in a run, a row's own where many streams are played at once."""

    start_ms: Column
    interval_ms: Column
    end_ms: Column

    @classmethod
    def from_clock(cls, clock: SourceClock) -> ClockColumns:
        """The parameters of one clock as literals."""
        return cls(int64_literal(clock.start_ms), int64_literal(clock.interval_ms), int64_literal(clock.end_ms))


def count_ticks_before(clock: ClockColumns) -> Column:
    """`Clock.ticks_before` of the column `arrival_time_ms`."""
    elapsed_ms = F.least(F.col("arrival_time_ms"), clock.end_ms) - clock.start_ms
    ticks = integer_quotient(F.greatest(elapsed_ms, int64_literal(0)), clock.interval_ms)
    return F.when(clock.interval_ms == F.lit(0), int64_literal(0)).otherwise(ticks)


def compress_events(
    events: DataFrame, clock: ClockColumns, stream: Sequence[str] = (), emission: Emission | None = None
) -> DataFrame:
    """One row per partition and block, with its greatest event time and last position; markers besides.

    With an emission whose watermarks follow from the greatest event times alone, there is nothing but those.

    `events` has the columns of a normalised event, and `marker_ms` where watermarks are punctuated.
    `stream` names columns that tell several streams apart. With an `emission` per record, the records that raise
    their partition's greatest event time are kept as markers.
    """
    blocks = events.withColumn("block", count_ticks_before(clock))
    by_block = blocks.groupBy(*stream, partition_to_group_by(blocks), "block")
    greatest_ms = F.max("event_time_ms").alias("event_time_ms")
    if emission is not None and is_numpy_mergeable(emission):
        # The order within a block decides nothing: Spark would sort for it, and send it to the driver.
        return by_block.agg(greatest_ms).transform(with_partition_as_text)
    last = F.max(F.struct("arrival_time_ms", "arrival_seq"))
    cells = by_block.agg(greatest_ms, last.alias("position")).transform(with_partition_as_text)
    no_marker = int64_literal(None).alias("marker_ms")
    cells = cells.select(*stream, "source_partition", "block", "event_time_ms", "position.*", no_marker)
    if emission is not None and emission.model is EmissionModel.RECORD:
        blocks = blocks.withColumn("marker_ms", _risen_ms(emission, stream))
    elif "marker_ms" not in events.columns:
        return cells
    markers = blocks.where(F.col("marker_ms").isNotNull())
    return markers.select(*cells.columns).unionByName(cells)


def _risen_ms(emission: Emission, stream: Sequence[str]) -> Column:
    """The watermark that a record raises its partition's to, else null.

    With an idle timeout the first record of a block counts too: it may end idleness, whatever its event time.
    """
    arrived = Window.partitionBy(*stream, "source_partition").orderBy("arrival_time_ms", "arrival_seq")
    so_far = arrived.rowsBetween(Window.unboundedPreceding, -1)
    event_ms = F.col("event_time_ms")
    is_kept = event_ms > F.coalesce(F.max(event_ms).over(so_far), F.lit(MIN_MS))
    if emission.strategy.idle_timeout_ms:
        is_kept |= F.coalesce(F.lag("block").over(arrived) != F.col("block"), F.expr("true"))
    return F.when(is_kept, event_ms - F.lit(emission.delay_ms) - F.lit(1))


def timeline_of_maxima(
    cells: pa.Table, emission: Emission, clock: SourceClock, partitions: Sequence[str]
) -> WatermarkTimeline:
    """The watermarks that follow from a compressed stream.

    Args:
        cells: what `compressed` yields of all events or, where `is_merged`, of parts of them.
        emission: strategy and topology.
        clock: when the source ticks.
        partitions: all that the source reads, also those that never delivered.

    Raises:
        PlanError: when what the watermarks rest on is not in the compressed stream.
    """
    _require_kept(cells, emission)
    blocks = sorted_unique(cells["block"].to_numpy())
    strategy = emission.strategy
    if strategy.kind is StrategyKind.NONE:
        return WatermarkTimeline(to_int64([]), to_int64([]), blocks, is_final=True)
    if emission.model is EmissionModel.MICRO_BATCH:
        return merge_micro_batches(cells, emission, clock, blocks)
    if is_numpy_mergeable(emission):
        watermark_ms, ticks = merge_maxima(cells, emission, clock, partitions)
        return WatermarkTimeline(watermark_ms, ticks, blocks, is_final=True)
    return _folded(cells, emission, clock, partitions, blocks)


def is_numpy_mergeable(emission: Emission) -> bool:
    """Whether the greatest event time per partition and tick says all, so that numpy can merge them."""
    is_plain = not (emission.drops_finished_splits or emission.suppresses_final_when_idle)
    is_ticked = emission.model is EmissionModel.TICK and emission.topology is Topology.SPLITS
    return is_plain and is_ticked and emission.strategy.kind in _PERIODIC_MAXIMA


def _require_kept(cells: pa.Table, emission: Emission) -> None:
    """Compressed by ticks, a stream has lost what some emissions rest on: a partition's first record is a rise."""
    is_per_record = emission.model is EmissionModel.RECORD and cells.num_rows > 0
    has_lost = is_per_record and cells["marker_ms"].null_count == cells.num_rows
    if has_lost or emission.strategy.kind is StrategyKind.CUSTOM:
        what = "custom watermarks" if emission.strategy.kind is StrategyKind.CUSTOM else "watermarks per record"
        msg = f"{what} do not follow from a stream compressed by ticks; `generators.heard_by` keeps what they need"
        raise PlanError(msg)


@dataclass(slots=True)
class _Climbing(Watermarks):
    """Watermarks that follow the clock, noted by where each climb ends."""

    climbs: dict[int, int] = field(default_factory=dict)
    """Number of an event to how many rises it ends."""

    def climb(self, ticks: range, clock: SourceClock, delay_ms: int) -> None:
        """Note the last tick, and how many came before it."""
        self.at(self._after, clock.tick_ms(ticks[-1]))
        self.emit(wrap_int64(self._at_ms - delay_ms))
        self.climbs[len(self.events) - 1] = len(ticks)


def _folded(
    cells: pa.Table, emission: Emission, clock: SourceClock, partitions: Sequence[str], blocks: Longs
) -> WatermarkTimeline:
    """Every other strategy and topology: the reference plays the compressed stream."""
    rows, records = rows_in_arrival_order(cells, partitions)
    heard = _Climbing()
    new = new_builtin_generator(emission)
    run_source(records, emission, clock, range(len(partitions)), lambda _: new(), heard=heard)
    return to_timeline(heard, rows, clock, blocks, heard.climbs)


def rows_in_arrival_order(cells: pa.Table, partitions: Sequence[str]) -> tuple[list[dict[str, Any]], list[Record]]:
    """Compressed rows in arrival order, and the records that stand for them."""
    names = {partition: number for number, partition in enumerate(partitions)}
    # A cell stands behind a marker of the same position: it is the partition's last word in its block.
    rows = sorted(cells.to_pylist(), key=_position)
    return rows, [
        Record(
            row["arrival_time_ms"],
            names[row["source_partition"]],
            "",
            row["event_time_ms"],
            1,
            row["marker_ms"],
        )
        for row in rows
    ]


def to_timeline(
    played: Watermarks,
    rows: Sequence[dict[str, Any]],
    clock: SourceClock,
    blocks: Longs,
    climbs: Mapping[int, int] | None = None,
) -> WatermarkTimeline:
    """What was heard while compressed rows were played, as records meet it."""
    rises: list[WatermarkEvent] = []
    visible_from: list[int] = []
    positions: list[tuple[int, int, str] | None] = []
    steps: list[int] = []
    for number, event in enumerate(played.events):
        row = rows[event.after] if event.after >= 0 else None
        count = (climbs or {}).get(number, 1)
        # A tick comes before the records of its millisecond, so only a marker emits at its record's arrival.
        if row and row["marker_ms"] is not None and row["arrival_time_ms"] == event.at_ms:
            visible_from.append(row["block"] + 1)
            positions.append(_position(row)[1:4])
        elif event.watermark_ms == MAX_MS:
            continue  # the end of input, which no record sees
        else:
            visible_from.append(clock.ticks_before(event.at_ms) - count + 1)
            positions.append(None)
        rises.append(event)
        steps.append(count)
    first_ms = [
        event.watermark_ms - (count - 1) * clock.interval_ms for event, count in zip(rises, steps, strict=True)
    ]
    heard = WatermarkTimeline(
        to_int64(first_ms),
        to_int64(visible_from),
        blocks,
        is_final=played.is_final,
        marker_positions=positions,
        steps=to_int64(steps) if climbs else None,
        step_ms=clock.interval_ms,
    )
    return heard.expand() if sum(steps) <= MOST_EVENTS else heard


def _position(row: dict[str, Any]) -> tuple[int, int, int, str, bool]:
    """Where a compressed row stands in arrival order."""
    return (
        row["block"],
        row["arrival_time_ms"],
        row["arrival_seq"],
        row["source_partition"],
        row["marker_ms"] is None,
    )
