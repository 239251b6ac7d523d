"""What a replay knows of its stream: when windows fired and were gone; where needed, each record's watermark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backstream.definition.model import Definition
from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import Sliding
from backstream.runs.plan import Plan
from backstream.source.arrival_index import ArrivalIndex, BucketGrid, IndexFolder, is_index_exact
from backstream.spark.arrival_index import arrival_bucket_column, extend_index
from backstream.spark.chunk_group import ChunkGroup, is_readable_record
from backstream.spark.schemas import Step
from backstream.spark.source import EventFiles
from backstream.spark.watermarks import firing_times_from_index
from backstream.spark.watermarks.firing_times import FiringTimeColumns, FiringTimes, WindowGrid
from backstream.spark.watermarks.partial_streams import (
    StreamSlice,
    is_resumable_from_index,
    ticks_of_file,
    timeline_by_tick_range,
    timeline_of_files,
)
from backstream.spark.watermarks.timeline import WatermarkTimeline
from backstream.spark.windows.assignment import FixedWindow


@dataclass(frozen=True, slots=True)
class ReplayLateness:
    """How records are judged; `heard` only where a record's own watermark is asked for."""

    firing_times: FiringTimeColumns
    timeline: WatermarkTimeline | None


def has_gaps(window: FixedWindow) -> bool:
    """Whether some instants lie in no window."""
    return isinstance(window, Sliding) and window.slide_ms > window.size_ms


def resolve_lateness(work: ChunkGroup, window: FixedWindow) -> ReplayLateness | None:
    """Where in arrival order the chunk's windows fired and were gone; None in a recompute: nothing is late.

    For generators that keep a maximum the arrival index tells all. The others are played.
    """
    if not work.is_replay:
        return None
    # The halo's records are judged by their own windows, as the chunk that owns them judges them.
    grid = WindowGrid.from_window(window, Interval(work.interval.start_ms, work.halo_end_ms))
    if is_index_exact(work.emission) and not has_gaps(window):
        return ReplayLateness(_from_index(work, window, grid).as_columns(work.spark), None)
    stream = load_full_timeline(work)
    found = FiringTimes.from_timeline(stream, grid, work.clock, work.definition.lateness.allowed)
    return ReplayLateness(found.as_columns(work.spark), stream)


def load_full_timeline(work: ChunkGroup) -> WatermarkTimeline:
    """The watermarks of the whole recorded stream up to the plan's cut-off.

    Every input of the plan is read, three columns of it, since a watermark rests on all that arrived before; once
    for all chunks that an application runs.
    """
    with _ONE_PLAYS:
        if (known := _LAST_PLAYED.get(work.plan.run_id)) is None:
            known = timeline_of_files(
                work.recorded, work.emission, work.clock, list_expected_partitions(work.definition)
            )
            _LAST_PLAYED.clear()
            _LAST_PLAYED[work.plan.run_id] = known
        return known


_LAST_PLAYED: dict[str, WatermarkTimeline] = {}
"""Those of the plan whose chunks are being run."""
_ONE_PLAYS = Lock()
"""Chunks that run at the same time wait for the first instead of reading everything, too."""


def load_timeline(work: ChunkGroup, interval: Interval) -> WatermarkTimeline:
    """Watermarks, true to the stream wherever an event of this interval of event time arrived.

    Where the arrival index tells what came before, only the events that arrived around these are read.
    """
    if not is_resumable_from_index(work.emission) or _reads_everything(work.plan):
        return load_full_timeline(work).slice_interval(_arrivals(work, interval))
    definition = work.definition
    buckets = BucketGrid.from_window(definition.metric_windows, work.emission, definition.lateness.allowed)
    index = _index(work, buckets)
    part = StreamSlice.from_index(index, interval, buckets, work.emission, work.clock)
    partitions = sorted(list_expected_partitions(definition) | index.partitions())
    files = [file for file in work.plan.inputs if file.path in part.paths] or work.plan.inputs[:1]
    arrived = _arrived_in(work.spark, part, buckets)
    around = EventFiles(work.spark, files, lambda paths: is_readable_record(work, paths).transform(arrived))
    return timeline_by_tick_range(around, work.emission, work.clock, partitions, part.with_prefix)


def _arrivals(work: ChunkGroup, interval: Interval) -> range:
    """The blocks in which events of this interval of event time may have arrived."""
    held = [ticks_of_file(file, work.clock) for file in work.plan.inputs if file.may_hold(interval)]
    return range(min((span.start for span in held), default=0), max((span.stop for span in held), default=0))


def _reads_everything(plan: Plan) -> bool:
    """Whether the plan's chunks read every input: then nothing is saved by an index of what else there is."""
    return len({number for chunk in plan.chunks for number in chunk.files}) == len(plan.inputs)


def _arrived_in(spark: SparkSession, part: StreamSlice, buckets: BucketGrid) -> Step:
    """The events that arrived in the buckets that a part reads."""
    read = F.broadcast(spark.createDataFrame(pa.table({"bucket": part.buckets})))
    is_read = arrival_bucket_column(F.col("arrival_time_ms"), buckets) == F.col("bucket")
    return lambda events: events.join(read, is_read, how="leftsemi")


def list_expected_partitions(definition: Definition) -> set[str]:
    """The source partitions that must deliver, and so hold the watermark until they do."""
    expected = definition.quality.expected_partitions
    return set() if expected == "observed" else set(expected)


def _from_index(work: ChunkGroup, window: FixedWindow, grid: WindowGrid) -> FiringTimes:
    allowed_ms = work.definition.lateness.allowed
    buckets = BucketGrid.from_window(window, work.emission, allowed_ms)
    index = _index(work, buckets)
    partitions = sorted(list_expected_partitions(work.definition) | index.partitions())
    return firing_times_from_index.firing_times_from_index(
        index, buckets, grid, work.emission, work.clock, allowed_ms, partitions
    )


_LAST_INDEX: dict[tuple[str, IndexFolder], ArrivalIndex] = {}
"""That of the plan whose chunks are being run: each of them asks for the same files."""


def _index(work: ChunkGroup, buckets: BucketGrid) -> ArrivalIndex:
    folder = IndexFolder.from_source(Path(work.plan.home), work.plan.dataset, work.definition.read_by, buckets)
    key = (work.plan.run_id, folder)
    if (known := _LAST_INDEX.get(key)) is not None:
        return known
    found = extend_index(work.spark, work.definition, work.plan.inputs, folder, work.schema)
    _LAST_INDEX.clear()
    _LAST_INDEX[key] = found
    return found
