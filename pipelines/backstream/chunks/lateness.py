"""Choose how a replay gets the watermarks of its stream, and compute them.

There are three ways. The first one that is exact for the definition is used:

1. The arrival index gives the firing times of fixed windows without reading an event (`_firing_times_from_index`).
2. The arrival index summarizes the past, and only events around an interval are read (`load_timeline`).
3. All input files of the plan are read (`load_full_timeline`), since a watermark depends on all earlier arrivals.
"""

from __future__ import annotations

from dataclasses import dataclass

from backstream.chunks.arrival_index import extend_index
from backstream.chunks.group import ChunkGroup
from backstream.eventtime.instants import MAX_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import FixedWindow
from backstream.runs.plan import Plan
from backstream.source.arrival_index import ArrivalIndex, BucketGrid, IndexFolder
from backstream.watermarks.firing_times import FiringTimes, WindowGrid
from backstream.watermarks.firing_times_from_index import compute_firing_times, list_source_partitions
from backstream.watermarks.stream_slices import StreamSlice, ticks_of_file
from backstream.watermarks.streams import (
    ArrivalBuckets,
    StreamPart,
    StreamReader,
    timeline_by_tick_range,
    timeline_of_files,
)
from backstream.watermarks.timeline import WatermarkTimeline


@dataclass(frozen=True, slots=True)
class ReplayLateness:
    """The firing times of windows, and the watermarks if the job had to compute them."""

    firing_times: FiringTimes
    timeline: WatermarkTimeline | None


def resolve_lateness(group: ChunkGroup, window: FixedWindow, reader: StreamReader) -> ReplayLateness | None:
    """Return the firing times of all windows that the chunks read; None in a recompute: no record is late."""
    if not group.is_replay:
        return None
    # A record of the halo is classified by its own windows, with the result of the chunk that owns these windows.
    grid = WindowGrid.from_window(window, Interval(group.interval.start_ms, group.halo_end_ms))
    if group.definition.is_in_index and not window.has_gaps:
        return ReplayLateness(_firing_times_from_index(group, window, grid, reader), None)
    timeline, lateness_ms = load_full_timeline(group, reader), group.definition.lateness.allowed
    needed = _find_window_ends(group, window)
    firing_times = FiringTimes.from_timeline(timeline, grid, group.clock, lateness_ms, needed)
    if given := group.emission.strategy.given:
        firing_times = firing_times.with_undecided(given.undecided)
    return ReplayLateness(firing_times, timeline)


def resolve_process_lateness(group: ChunkGroup, window: FixedWindow, reader: StreamReader) -> ReplayLateness:
    """Return firing times by which no record is dropped, since a process function gets all records."""
    grid = WindowGrid.from_window(window, Interval(group.interval.start_ms, group.halo_end_ms))
    timeline = load_full_timeline(group, reader)
    needed = _find_window_ends(group, window)
    return ReplayLateness(FiringTimes.from_timeline(timeline, grid, group.clock, MAX_MS, needed), timeline)


def _find_window_ends(group: ChunkGroup, window: FixedWindow) -> Interval | None:
    """Return the ends of all windows that the files may have records of; None if a footer has no event times."""
    spans = [(file.min_event_ms, file.max_event_ms) for file in group.plan.inputs if file.rows]
    known = [(first_ms, last_ms) for first_ms, last_ms in spans if first_ms is not None and last_ms is not None]
    if not known or len(known) < len(spans):
        return None
    first_ms, last_ms = min(first_ms for first_ms, _ in known), max(last_ms for _, last_ms in known)
    return Interval(first_ms + 1, last_ms + window.size_ms + 1)


def _firing_times_from_index(
    group: ChunkGroup, window: FixedWindow, grid: WindowGrid, reader: StreamReader
) -> FiringTimes:
    group = group.stream
    buckets = BucketGrid.from_window(window, group.emission, group.definition.lateness.allowed)
    index = _load_index(group, buckets, reader)
    return compute_firing_times(group.definition, index, buckets, grid, group.clock)


def load_full_timeline(group: ChunkGroup, reader: StreamReader) -> WatermarkTimeline:
    """Return the watermarks of the whole recorded stream up to the plan's cut-off.

    The first chunk of a job reads three columns of every input. The other chunks share the result.
    """
    group = group.stream
    part = StreamPart(group.plan.inputs, group.clock, group.emission)
    expected = group.definition.quality.named_partitions
    return group.watermarks.full_timeline(lambda: timeline_of_files(reader, part, expected))


def load_timeline(group: ChunkGroup, interval: Interval, reader: StreamReader) -> WatermarkTimeline:
    """Return the watermarks that the events of an interval of event time met.

    Watermarks in ticks without such an event may be missing or wrong.
    """
    group = group.stream
    if not (group.definition.is_in_index and group.emission.is_resumable) or _reads_all_inputs(group.plan):
        return load_full_timeline(group, reader).slice_interval(_find_arrival_ticks(group, interval))
    definition = group.definition
    grid = BucketGrid.from_window(definition.metric_windows, group.emission, definition.lateness.allowed)
    index = _load_index(group, grid, reader)
    needed = StreamSlice.from_index(index, interval, grid, group.emission, group.clock)
    files = [file for file in group.plan.inputs if file.path in needed.paths] or group.plan.inputs[:1]
    part = StreamPart(files, group.clock, group.emission, buckets=ArrivalBuckets(grid, needed.buckets))
    partitions = list_source_partitions(definition, index)
    return timeline_by_tick_range(reader, part, partitions, needed.with_prefix)


def _reads_all_inputs(plan: Plan) -> bool:
    """Return whether the chunks of the plan read every input, so that the index saves nothing."""
    return len({number for chunk in plan.chunks for number in chunk.files}) == len(plan.inputs)


def _find_arrival_ticks(group: ChunkGroup, interval: Interval) -> range:
    """Return the ticks in which events of an interval of event time may have arrived, from file footers."""
    spans = [ticks_of_file(file, group.clock) for file in group.plan.inputs if file.may_hold(interval)]
    return range(min((span.start for span in spans), default=0), max((span.stop for span in spans), default=0))


def _load_index(group: ChunkGroup, grid: BucketGrid, reader: StreamReader) -> ArrivalIndex:
    """Return the arrival index of all inputs; new files are read first."""
    plan = group.plan
    folder = IndexFolder.from_source(plan.home.path, plan.dataset, group.definition.read_by, grid)
    return group.watermarks.arrival_index(folder, lambda: extend_index(plan.inputs, folder, reader.read_index))
