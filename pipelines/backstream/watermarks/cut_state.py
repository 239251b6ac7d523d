"""Compute the state of a source at a cut of its stream, from one row per source partition and tick.

It equals the state of the reference engine (`eventtime.stream_state.StreamState`) after all records before the cut
and all ticks up to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backstream.eventtime.emission import Emission
from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.records import SourceClock
from backstream.eventtime.stream_state import SourceState, SplitState, StreamState
from backstream.eventtime.watermark_generators import generator_factory
from backstream.eventtime.watermark_sources import new_source_run
from backstream.watermarks.cells import (
    ClimbingWatermarks,
    rows_in_arrival_order,
    timeline_of_maxima,
    to_timeline,
)
from backstream.watermarks.tick_maxima import sorted_unique
from backstream.watermarks.timeline import Longs, WatermarkTimeline


def find_cut_state(
    cells: pa.Table, emission: Emission, clock: SourceClock, partitions: Sequence[str], records: int
) -> tuple[StreamState, WatermarkTimeline]:
    """Return the state at the end of a clock, and the watermarks up to there.

    Args:
        cells: the cells and markers of all records before the cut, as `compress_events` returns them.
        emission: any emission without a custom generator, in which no partition finishes.
        clock: the clock of the source; it ends at the cut.
        partitions: all partitions that the source reads, including those without records.
        records: the number of records before the cut.
    """
    emission = emission.with_partitions(partitions)
    if emission.is_mergeable and not emission.sources:
        timeline = timeline_of_maxima(cells, emission, clock, partitions)
        return _state_of_maxima(cells, emission, clock, partitions, timeline, records), timeline
    return _replay_cells_to_cut(cells, emission, clock, partitions, records)


def _replay_cells_to_cut(
    cells: pa.Table, emission: Emission, clock: SourceClock, partitions: Sequence[str], records: int
) -> tuple[StreamState, WatermarkTimeline]:
    """Run the reference over the cells, which are fewer than the records."""
    rows, cell_records = rows_in_arrival_order(cells, partitions)
    output = ClimbingWatermarks()
    run = new_source_run(emission, clock, range(len(partitions)), output=output)
    run.process(cell_records, continuing=range(len(partitions)))
    run.advance(clock.end_ms)
    rises = len(output.events) + sum(steps - 1 for steps in output.climbs.values())
    state = replace(run.snapshot(), records=records, watermarks=rises)
    blocks = sorted_unique(cells["block"].to_numpy())
    return state, to_timeline(output, rows, clock, blocks, output.climbs)


def _state_of_maxima(
    cells: pa.Table,
    emission: Emission,
    clock: SourceClock,
    partitions: Sequence[str],
    timeline: WatermarkTimeline,
    records: int,
) -> StreamState:
    """Return the state of one bounded generator per partition.

    A generator is active at the first tick that includes a record, so its watermark is that of all records that a
    tick has included. Other state depends only on the ticks with data.
    """
    merged_ms = int(timeline.watermark_ms[-1]) if len(timeline.watermark_ms) else MIN_MS
    last_rise_tick = int(timeline.visible_from[-1]) if len(timeline.visible_from) else 0
    is_included = pc.less(cells["block"], clock.last_tick)
    idle_after = emission.strategy.idle_timeout_ms // max(clock.interval_ms, 1) + 2
    # As in the reference, the last tick at which all partitions are idle decides, unless the watermark rose later.
    last_idle_tick = _last_idle_tick(cells.filter(is_included), emission, clock, idle_after)
    are_splits_idle = not last_rise_tick or last_idle_tick >= last_rise_tick
    has_timeout = emission.strategy.idle_timeout_ms > 0
    is_main_idle = not clock.last_tick or (has_timeout and clock.last_tick >= idle_after)
    new_generator = generator_factory(emission.strategy)
    source = SourceState(
        splits=tuple(_split_states(cells, is_included, emission, clock, partitions)),
        merged_ms=merged_ms,
        are_splits_idle=are_splits_idle,
        is_main_idle=is_main_idle,
        main_generator=new_generator().snapshot_state(),  # type: ignore[attr-defined] # all built-in ones have it
    )
    return StreamState(
        records=records,
        watermarks=len(timeline.watermark_ms),
        watermark_ms=merged_ms,
        is_idle=bool(clock.last_tick) and are_splits_idle and is_main_idle,
        last_tick=clock.last_tick,
        data_tick=1 + (pc.max(cells["block"]).as_py() if cells.num_rows else 0),
        sources=(source,),
    )


def _last_idle_tick(cells: pa.Table, emission: Emission, clock: SourceClock, idle_after: int) -> int:
    """Return the last tick at which no partition was active; 0 without one."""
    if not emission.strategy.idle_timeout_ms or not clock.last_tick:
        return 0
    with_data: Longs = np.concatenate([np.array([0]), sorted_unique(cells["block"].to_numpy()) + 1])
    last_quiet = np.append(with_data[1:] - 1, clock.last_tick)
    idle_ticks = last_quiet[last_quiet >= with_data + idle_after]
    return int(idle_ticks.max()) if len(idle_ticks) else 0


def _split_states(
    cells: pa.Table,
    is_included: pa.ChunkedArray,
    emission: Emission,
    clock: SourceClock,
    partitions: Sequence[str],
) -> list[SplitState]:
    timeout_ms, bound_ms = emission.strategy.idle_timeout_ms, emission.delay_ms
    every, included = _maxima(cells), _maxima(cells.filter(is_included))
    states = []
    for number, partition in enumerate(partitions):
        _, last_block = every.get(partition, (MIN_MS, -1))
        seen_ms, seen_block = included.get(partition, (MIN_MS, -1))
        quiet_ms = (clock.last_tick - seen_block - 2) * clock.interval_ms
        greatest_ms = every[partition][0] if partition in every else MIN_MS + bound_ms + 1
        states.append(
            SplitState(
                partition=number,
                watermark_ms=max(seen_ms - bound_ms - 1, MIN_MS),
                is_idle=bool(clock.last_tick) and 0 < timeout_ms < quiet_ms,
                last_data_tick=last_block + 1,
                generator={"max_event_time_ms": max(greatest_ms, MIN_MS + bound_ms + 1)},
            )
        )
    return states


def _maxima(cells: pa.Table) -> dict[str, tuple[int, int]]:
    """Return the greatest event time and the last block by partition."""
    rows = cells.group_by("source_partition").aggregate([("event_time_ms", "max"), ("block", "max")])
    columns = (rows[name].to_pylist() for name in ("source_partition", "event_time_ms_max", "block_max"))
    return {name: (event_ms, block) for name, event_ms, block in zip(*columns, strict=True)}
