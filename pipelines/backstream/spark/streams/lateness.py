"""What a replay knows of its stream: when windows fired and were gone; where needed, each record's watermark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from backstream.core.arrivals import BucketGrid, IndexFolder, is_told_by_index
from backstream.core.intervals import Interval
from backstream.core.windows import Sliding
from backstream.definition.model import Definition
from backstream.spark.streams import merge
from backstream.spark.streams.arrivals import indexed
from backstream.spark.streams.generators import heard_by
from backstream.spark.streams.heard import Heard
from backstream.spark.streams.index import ArrivalIndex
from backstream.spark.streams.thresholds import JudgedBy, Thresholds, WindowGrid
from backstream.spark.windows.assignment import FixedWindow
from backstream.spark.work import Work, readable


@dataclass(frozen=True, slots=True)
class Lateness:
    """How records are judged; `heard` only where a record's own watermark is asked for."""

    judged: JudgedBy
    heard: Heard | None


def has_holes(window: FixedWindow) -> bool:
    """Whether some instants lie in no window."""
    return isinstance(window, Sliding) and window.slide_ms > window.size_ms


def lateness(work: Work, window: FixedWindow) -> Lateness | None:
    """Where in arrival order the chunk's windows fired and were gone; None in a recompute: nothing is late.

    For generators that keep a maximum the arrival index tells all. The others are played.
    """
    if not work.is_replay:
        return None
    # The halo's records are judged by their own windows, as the chunk that owns them judges them.
    grid = WindowGrid.of(window, Interval(work.interval.start_ms, work.read_until_ms))
    if is_told_by_index(work.emission) and not has_holes(window):
        return Lateness(_from_index(work, window, grid).bound(work.spark), None)
    stream = played(work)
    found = Thresholds.of(stream, grid, work.clock, work.definition.lateness.allowed)
    return Lateness(found.bound(work.spark), stream)


def played(work: Work) -> Heard:
    """The watermarks of the whole recorded stream up to the plan's cut-off.

    Every input of the plan is read, three columns of it: a watermark rests on all that arrived before.
    """
    events = readable(work, [file.path for file in work.plan.inputs])
    return heard_by(events, work.emission, work.clock, expected_partitions(work.definition))


def expected_partitions(definition: Definition) -> set[str]:
    """The source partitions that must deliver, and so hold the watermark until they do."""
    expected = definition.quality.partitions
    return set() if expected == "observed" else set(expected)


def _from_index(work: Work, window: FixedWindow, grid: WindowGrid) -> Thresholds:
    allowed_ms = work.definition.lateness.allowed
    buckets = BucketGrid.of(window, work.emission, allowed_ms)
    folder = IndexFolder.of(Path(work.plan.home), work.plan.dataset, work.definition.read_by, buckets)
    index = _index(work, folder)
    partitions = sorted(expected_partitions(work.definition) | index.partitions())
    return merge.thresholds(index, buckets, grid, work.emission, work.clock, allowed_ms, partitions)


_LAST_INDEX: dict[tuple[str, IndexFolder], ArrivalIndex] = {}
"""That of the plan whose chunks are being run: each of them asks for the same files."""


def _index(work: Work, folder: IndexFolder) -> ArrivalIndex:
    key = (work.plan.run_id, folder)
    if (known := _LAST_INDEX.get(key)) is not None:
        return known
    found = indexed(work.spark, work.definition, work.plan.inputs, folder)
    _LAST_INDEX.clear()
    _LAST_INDEX[key] = found
    return found
