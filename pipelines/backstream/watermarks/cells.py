"""Compute the watermarks of a stream from its cells: one row per source partition and block.

A block is the time between two ticks of the source's clock. Within a block, a generator keeps only a maximum, so a
month of records becomes a table that fits into the driver:

    records of partition a        block 0           block 1      block 2
    event time                    10:02 10:05 10:01   (none)      10:09 10:07
    cells of partition a          (0, 10:05)                      (2, 10:09)

Three ways lead from the cells to the watermarks. NumPy merges maxima (`tick_maxima`). Micro-batches are one
maximum over all partitions. For all else the reference runs over cells and markers, as if they were the records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from backstream.errors import PlanError
from backstream.eventtime.emission import Emission, EmissionModel
from backstream.eventtime.instants import wrap_int64
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.eventtime.watermark_sources import run_source
from backstream.eventtime.watermarks import MAX_WATERMARK_EVENTS, WatermarkEvent, Watermarks
from backstream.watermarks.tick_maxima import merge_maxima, merge_micro_batches, sorted_unique
from backstream.watermarks.timeline import Longs, WatermarkTimeline, to_int64


def timeline_of_maxima(
    cells: pa.Table, emission: Emission, clock: SourceClock, partitions: Sequence[str]
) -> WatermarkTimeline:
    """Return the watermarks of a stream from its cells and markers.

    Args:
        cells: the result of `compress_events`. If the emission `is_mergeable`, a partition and block
            may have several cells, and the greatest event time is used.
        emission: the watermark strategy, the emission model, and the topology.
        clock: the clock of the source.
        partitions: all partitions that the source reads, including those without records.

    Raises:
        PlanError: when the cells lack the data that the watermarks depend on.
    """
    _require_markers(cells, emission)
    blocks = sorted_unique(cells["block"].to_numpy())
    strategy = emission.strategy
    if strategy.kind is StrategyKind.NONE:
        return WatermarkTimeline(to_int64([]), to_int64([]), blocks, is_final=True)
    if emission.model is EmissionModel.MICRO_BATCH:
        return merge_micro_batches(cells, emission, clock, blocks)
    if emission.is_mergeable:
        watermark_ms, ticks = merge_maxima(cells, emission, clock, partitions)
        return WatermarkTimeline(watermark_ms, ticks, blocks, is_final=True)
    return _replay_cells(cells, emission, clock, partitions, blocks)


def _require_markers(cells: pa.Table, emission: Emission) -> None:
    """Check that the cells have the markers that the emission needs.

    Raises:
        PlanError: when they don't. The first record of a partition raises its watermark, so an emission per record
            has at least one marker.
    """
    is_per_record = emission.model is EmissionModel.RECORD and cells.num_rows > 0
    lacks_markers = is_per_record and cells["marker_ms"].null_count == cells.num_rows
    if lacks_markers or emission.strategy.kind is StrategyKind.CUSTOM:
        what = "custom watermarks" if emission.strategy.kind is StrategyKind.CUSTOM else "watermarks per record"
        msg = f"cannot compute {what} from one row per tick; use `user_generators.timeline_of_events`"
        raise PlanError(msg)


@dataclass(slots=True)
class ClimbingWatermarks(Watermarks):
    """Watermark events with one event per climb, at its last tick."""

    climbs: dict[int, int] = field(default_factory=dict)
    """The number of rises of a climb, by the number of its event."""

    def climb(self, ticks: range, clock: SourceClock, delay_ms: int) -> None:
        """Emit the watermark of the last tick, and store the number of ticks."""
        self.at(self._after, clock.tick_ms(ticks[-1]))
        self.emit(wrap_int64(self._at_ms - delay_ms))
        self.climbs[len(self.events) - 1] = len(ticks)


def _replay_cells(
    cells: pa.Table, emission: Emission, clock: SourceClock, partitions: Sequence[str], blocks: Longs
) -> WatermarkTimeline:
    """Return the watermarks of any other strategy or topology, by running the reference over the cells."""
    rows, records = rows_in_arrival_order(cells, partitions)
    watermarks = ClimbingWatermarks()
    emission = emission.with_partitions(partitions)
    run_source(records, emission, clock, range(len(partitions)), output=watermarks)
    return to_timeline(watermarks, rows, clock, blocks, watermarks.climbs)


def rows_in_arrival_order(cells: pa.Table, partitions: Sequence[str]) -> tuple[list[dict[str, Any]], list[Record]]:
    """Return cells and markers in arrival order, and one record for each."""
    numbers = {partition: number for number, partition in enumerate(partitions)}
    # A cell comes after a marker of the same position: it represents the last record of its block.
    rows = sorted(cells.to_pylist(), key=_sort_key)
    records = [
        Record(
            row["arrival_time_ms"],
            numbers[row["source_partition"]],
            "",
            row["event_time_ms"],
            1,
            row["marker_ms"],
        )
        for row in rows
    ]
    return rows, records


def to_timeline(
    played: Watermarks,
    rows: Sequence[dict[str, Any]],
    clock: SourceClock,
    blocks: Longs,
    climbs: Mapping[int, int] | None = None,
) -> WatermarkTimeline:
    """Convert the watermarks of a reference run over cells and markers.

    Args:
        played: the watermarks; their `after` is an index of `rows`.
        rows: the cells and markers, in arrival order.
        clock: the clock of the source.
        blocks: the blocks in which records arrived, ascending.
        climbs: the number of rises of a climb, by the number of its event; None if the run has no climbs.
    """
    climbs_by_event = climbs or {}
    rises = [
        _rise(event, climbs_by_event.get(number, 1), rows, clock)
        for number, event in enumerate(played.events[: played.before_end])
    ]
    timeline = WatermarkTimeline(
        to_int64([rise.first_ms for rise in rises]),
        to_int64([rise.visible_from for rise in rises]),
        blocks,
        is_final=played.is_final,
        marker_positions=[rise.marker_position for rise in rises],
        steps=to_int64([rise.steps for rise in rises]) if climbs else None,
        step_ms=clock.interval_ms,
    )
    return timeline.expand() if sum(rise.steps for rise in rises) <= MAX_WATERMARK_EVENTS else timeline


class _Rise(NamedTuple):
    """One row of a timeline."""

    first_ms: int
    visible_from: int
    marker_position: tuple[int, int, str] | None
    steps: int


def _rise(event: WatermarkEvent, steps: int, rows: Sequence[dict[str, Any]], clock: SourceClock) -> _Rise:
    first_ms = event.watermark_ms - (steps - 1) * clock.interval_ms
    if _has_marker(event, rows):
        row = rows[event.after]
        return _Rise(first_ms, row["block"] + 1, _sort_key(row)[1:4], steps)
    return _Rise(first_ms, clock.ticks_before(event.at_ms) - steps + 1, None, steps)


def _has_marker(event: WatermarkEvent, rows: Sequence[dict[str, Any]]) -> bool:
    """Return whether a marker emitted the watermark, and not a tick.

    A tick precedes the records of its millisecond, so only a marker emits at the arrival time of its record.
    """
    if event.after < 0:
        return False
    row = rows[event.after]
    return row["marker_ms"] is not None and row["arrival_time_ms"] == event.at_ms


def _sort_key(row: dict[str, Any]) -> tuple[int, int, int, str, bool]:
    """Return the key that sorts cells and markers in arrival order."""
    return (
        row["block"],
        row["arrival_time_ms"],
        row["arrival_seq"],
        row["source_partition"],
        row["marker_ms"] is None,
    )
