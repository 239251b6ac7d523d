"""Choose how a replay gets the watermarks of its stream, and compute them.

There are three ways. The first one that is exact for the definition is used:

1. The arrival index gives the firing times of fixed windows without reading an event (`_firing_times_from_index`).
2. The arrival index summarizes the past, and only events around an interval are read (`load_timeline`).
3. All input files of the plan are read (`load_full_timeline`), since a watermark depends on all earlier arrivals.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backstream.eventtime.instants import MAX_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import FixedWindow
from backstream.runs.plan import Plan
from backstream.source.arrival_index import ArrivalIndex, BucketGrid, IndexFolder
from backstream.spark.arrival_index import arrival_bucket_column, extend_index
from backstream.spark.chunk_group import ChunkGroup, load_readable_events
from backstream.spark.schemas import Step
from backstream.spark.source import EventFiles
from backstream.spark.watermarks.firing_time_columns import FiringTimeColumns
from backstream.spark.watermarks.partial_streams import timeline_by_tick_range, timeline_of_files
from backstream.watermarks.firing_times import FiringTimes, WindowGrid
from backstream.watermarks.firing_times_from_index import compute_firing_times, list_source_partitions
from backstream.watermarks.stream_slices import StreamSlice, ticks_of_file
from backstream.watermarks.timeline import WatermarkTimeline


@dataclass(frozen=True, slots=True)
class ReplayLateness:
    """The firing times of windows, and the watermarks if the job had to compute them."""

    firing_times: FiringTimeColumns
    timeline: WatermarkTimeline | None


def resolve_lateness(group: ChunkGroup, window: FixedWindow) -> ReplayLateness | None:
    """Return the firing times of all windows that the chunks read; None in a recompute: no record is late."""
    if not group.is_replay:
        return None
    # A record of the halo is classified by its own windows, with the result of the chunk that owns these windows.
    grid = WindowGrid.from_window(window, Interval(group.interval.start_ms, group.halo_end_ms))
    if group.emission.is_in_index and not window.has_gaps:
        firing_times = _firing_times_from_index(group, window, grid)
        return ReplayLateness(FiringTimeColumns(group.spark, firing_times), None)
    timeline = load_full_timeline(group)
    lateness_ms, needed = group.definition.lateness.allowed, _find_window_ends(group, window)
    firing_times = FiringTimes.from_timeline(timeline, grid, group.clock, lateness_ms, needed)
    return ReplayLateness(FiringTimeColumns(group.spark, firing_times), timeline)


def resolve_process_lateness(group: ChunkGroup, window: FixedWindow) -> ReplayLateness:
    """Return firing times by which no record is dropped, since a process function gets all records."""
    grid = WindowGrid.from_window(window, Interval(group.interval.start_ms, group.halo_end_ms))
    timeline = load_full_timeline(group)
    needed = _find_window_ends(group, window)
    firing_times = FiringTimes.from_timeline(timeline, grid, group.clock, MAX_MS, needed)
    return ReplayLateness(FiringTimeColumns(group.spark, firing_times), timeline)


def _find_window_ends(group: ChunkGroup, window: FixedWindow) -> Interval | None:
    """Return the ends of all windows that the files may have records of; None if a footer has no event times."""
    spans = [(file.min_event_ms, file.max_event_ms) for file in group.plan.inputs if file.rows]
    known = [(first_ms, last_ms) for first_ms, last_ms in spans if first_ms is not None and last_ms is not None]
    if not known or len(known) < len(spans):
        return None
    first_ms, last_ms = min(first_ms for first_ms, _ in known), max(last_ms for _, last_ms in known)
    return Interval(first_ms + 1, last_ms + window.size_ms + 1)


def _firing_times_from_index(group: ChunkGroup, window: FixedWindow, grid: WindowGrid) -> FiringTimes:
    group = group.stream
    buckets = BucketGrid.from_window(window, group.emission, group.definition.lateness.allowed)
    return compute_firing_times(group.definition, _load_index(group, buckets), buckets, grid, group.clock)


def load_full_timeline(group: ChunkGroup) -> WatermarkTimeline:
    """Return the watermarks of the whole recorded stream up to the plan's cut-off.

    The first chunk of a job reads three columns of every input. The other chunks share the result.
    """
    group = group.stream
    return group.watermarks.full_timeline(
        lambda: timeline_of_files(
            group.event_files, group.emission, group.clock, group.definition.quality.named_partitions
        )
    )


def load_timeline(group: ChunkGroup, interval: Interval) -> WatermarkTimeline:
    """Return the watermarks that the events of an interval of event time met.

    Watermarks in ticks without such an event may be missing or wrong.
    """
    group = group.stream
    if not group.emission.is_resumable or _reads_all_inputs(group.plan):
        return load_full_timeline(group).slice_interval(_find_arrival_ticks(group, interval))
    definition = group.definition
    buckets = BucketGrid.from_window(definition.metric_windows, group.emission, definition.lateness.allowed)
    index = _load_index(group, buckets)
    part = StreamSlice.from_index(index, interval, buckets, group.emission, group.clock)
    partitions = list_source_partitions(definition, index)
    files = [file for file in group.plan.inputs if file.path in part.paths] or group.plan.inputs[:1]
    keep_buckets = _keep_buckets(group.spark, part, buckets)
    events = EventFiles(
        group.spark, files, lambda paths: load_readable_events(group, paths).transform(keep_buckets)
    )
    return timeline_by_tick_range(events, group.emission, group.clock, partitions, part.with_prefix)


def _reads_all_inputs(plan: Plan) -> bool:
    """Return whether the chunks of the plan read every input, so that the index saves nothing."""
    return len({number for chunk in plan.chunks for number in chunk.files}) == len(plan.inputs)


def _find_arrival_ticks(group: ChunkGroup, interval: Interval) -> range:
    """Return the ticks in which events of an interval of event time may have arrived, from file footers."""
    spans = [ticks_of_file(file, group.clock) for file in group.plan.inputs if file.may_hold(interval)]
    return range(min((span.start for span in spans), default=0), max((span.stop for span in spans), default=0))


def _keep_buckets(spark: SparkSession, part: StreamSlice, buckets: BucketGrid) -> Step:
    """Keep the events that arrived in the buckets of a stream slice."""
    kept = F.broadcast(spark.createDataFrame(pa.table({"bucket": part.buckets})))
    is_kept = arrival_bucket_column(F.col("arrival_time_ms"), buckets) == F.col("bucket")
    return lambda events: events.join(kept, is_kept, how="leftsemi")


def _load_index(group: ChunkGroup, buckets: BucketGrid) -> ArrivalIndex:
    """Return the arrival index of all inputs; new files are read first."""
    plan = group.plan
    folder = IndexFolder.from_source(plan.home.path, plan.dataset, group.definition.read_by, buckets)
    return group.watermarks.arrival_index(
        folder, lambda: extend_index(group.spark, group.definition, plan.inputs, folder, group.schema)
    )
