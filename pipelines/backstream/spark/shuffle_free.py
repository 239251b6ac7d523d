"""Aggregate files without a shuffle, and union the DataFrames that one task each computes.

Spark's aggregation shuffles every row to the task of its group. If all rows of a group are in the same files, or
if a group may have several rows in the result, one task can read these files and aggregate them without a shuffle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from itertools import accumulate, pairwise
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame

from backstream.eventtime.emission import Emission
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import SourceClock
from backstream.eventtime.windows import FixedWindow
from backstream.runs.plan import InputFile
from backstream.spark.source import EventFiles
from backstream.spark.watermarks.compress import compress_events
from backstream.spark.watermarks.firing_time_columns import GridColumns
from backstream.watermarks.firing_times import WindowGrid

MAX_PARTS = 64
"""The largest number of frames: with more, Spark's planning takes longer than the shuffle."""
LARGEST = 15_000_000
"""The largest number of events per task; with more, it would spill groups to disk."""

_Part = TypeVar("_Part")


def _count_parts(rows: int, tasks: int) -> int:
    """Return the number of parts for these rows and parallel tasks; 0 if a shuffle is faster."""
    count = tasks * math.ceil(rows / (tasks * LARGEST))
    return count if count <= MAX_PARTS else 0


def _union_parts(parts: Sequence[_Part], frame: Callable[[_Part], DataFrame]) -> DataFrame:
    """Return the union of the frames of at least one part. One task computes each frame.

    Args:
        parts: the parts.
        frame: returns the frame of a part, which ends in `coalesce(1)`.
    """
    with ThreadPoolExecutor() as pool:  # Spark needs some time to analyze each frame
        first, *others = pool.map(frame, parts)
    # Spark computes a union in one task if all its frames have a single Spark partition. `coalesce(2)` hides this:
    # the frame still has one partition, but Spark can't rely on it.
    return reduce(DataFrame.unionAll, others, first.coalesce(2))


MAX_READ_RATIO = 1.5
"""The largest number of events that a task may read, relative to its part of all events. Reading is a fifth of the
work, and the shuffle half of it."""


def cut_time_ranges(files: Sequence[InputFile], grid: WindowGrid, tasks: int) -> list[range]:
    """Return ranges of window numbers with about as many events each; empty if a shuffle is faster.

    Args:
        files: the files with the events.
        grid: tumbling windows.
        tasks: the number of parallel tasks.
    """
    interval = grid.span(range(grid.count))
    files = [file for file in files if file.may_hold(interval)]
    ends = sorted((file.max_event_ms, file.rows) for file in files if file.max_event_ms is not None)
    rows = sum(file.rows for file in files)
    count = _count_parts(rows, tasks)
    if not rows or len(ends) < len(files) or not count:
        return []
    # The first window that begins at or after each cut.
    bounds = [
        -((grid.first_end_ms - grid.step_ms - cut_ms) // grid.step_ms) for cut_ms in _find_cuts_ms(ends, count)
    ]
    inside = sorted({bound for bound in bounds if 0 < bound < grid.count})
    ranges = [range(first, end) for first, end in pairwise([0, *inside, grid.count])]
    intervals = [grid.span(numbers) for numbers in ranges]
    max_rows = max(sum(file.rows for file in files if file.may_hold(interval)) for interval in intervals)
    return ranges if len(ranges) == count and max_rows * count <= rows * MAX_READ_RATIO else []


def _find_cuts_ms(ends: Sequence[tuple[int, int]], count: int) -> Iterator[int]:
    """Yield the times at which files end, closest to equal parts of all rows.

    Args:
        ends: the last event in ms and the number of rows of each file, ascending.
        count: the number of parts.
    """
    rows_until = list(accumulate(rows for _, rows in ends))
    for part in range(1, count):
        off_by = [abs(rows - rows_until[-1] * part / count) for rows in rows_until]
        yield ends[off_by.index(min(off_by))][0] + 1


def aggregate_by_time_range(
    recorded: EventFiles,
    window: FixedWindow,
    grid: WindowGrid,
    grouped: Callable[[DataFrame, GridColumns], DataFrame],
) -> DataFrame | None:
    """Return the aggregates of tumbling windows, computed in one range of time per task.

    None for other windows, or if a shuffle is faster. In overlapping windows, an event is shuffled once but
    aggregated several times, so the shuffle is less of the work.

    Args:
        recorded: the events.
        window: the windows.
        grid: the requested windows.
        grouped: aggregates the windows that grid columns request without a shuffle; its events may be of other
            windows, too.
    """
    spark = recorded.spark
    if window.has_overlaps:
        return None
    if not (ranges := cut_time_ranges(recorded.files, grid, spark.sparkContext.defaultParallelism)):
        return None

    def aggregate(part: tuple[range, GridColumns]) -> DataFrame:
        numbers, columns = part
        return grouped(recorded.around(grid.span(numbers)).coalesce(1), columns)

    return _union_parts(list(zip(ranges, GridColumns.from_ranges(spark, grid, ranges), strict=True)), aggregate)


MANY_EVENTS = 1_000_000
"""The number of events from which file groups can be faster than a shuffle."""
_MAX_SKEW = 1.5
"""The largest number of events of a file group, relative to the mean."""
MAX_SHARED_TIME = 0.5
"""The largest part of its arrival time that a file group may share with earlier groups."""


def compress_files(recorded: EventFiles, emission: Emission, clock: SourceClock) -> pa.Table:
    """Return the cells of all events, computed in file groups if this is faster. Runs a job.

    A partition and block in two file groups has two cells. Watermarks must depend only on greatest event times.
    """
    groups = share_files(recorded.files, recorded.spark.sparkContext.defaultParallelism)
    if groups:
        return compress_file_groups(recorded, groups, emission, clock).toArrow()
    return compress_events(recorded.all(), clock, emission).toArrow()


def compress_file_groups(
    recorded: EventFiles, groups: Sequence[Sequence[InputFile]], emission: Emission, clock: SourceClock
) -> DataFrame:
    """Return the cells of each file group; a partition and block in two groups has two cells."""

    def cells(group: Sequence[InputFile]) -> DataFrame:
        events = recorded.read([file.path for file in group]).coalesce(1)
        return compress_events(events, clock, emission)

    return _union_parts(groups, cells)


def share_files(files: Sequence[InputFile], tasks: int) -> list[list[InputFile]]:
    """Return groups of files with about as many events each, in order of arrival; empty if a shuffle is faster.

    Files with adjacent arrival times are in one group, so that few ticks are in two groups.

    Args:
        files: the files with the events.
        tasks: the number of parallel tasks.
    """
    files = [file for file in files if file.rows and not file.is_unreadable]
    arrivals = {
        file.path: Interval(file.min_arrival_ms, file.max_arrival_ms + 1)
        for file in files
        if file.min_arrival_ms is not None and file.max_arrival_ms is not None
    }
    rows = sum(file.rows for file in files)
    count = _count_parts(rows, tasks) if rows >= MANY_EVENTS else 0
    if not count or len(arrivals) < len(files):
        return []
    files.sort(key=lambda file: (arrivals[file.path].start_ms, file.path))
    groups: list[list[InputFile]] = [[] for _ in range(count)]
    for file, end in zip(files, accumulate(file.rows for file in files), strict=True):
        groups[(2 * end - file.rows) * count // (2 * rows)].append(file)  # by the middle of the file's rows
    is_even = max(sum(file.rows for file in group) for group in groups) * count <= rows * _MAX_SKEW
    if not all(groups) or not is_even:
        return []
    return groups if _have_little_overlap([[arrivals[file.path] for file in group] for group in groups]) else []


def _have_little_overlap(groups: Sequence[Sequence[Interval]]) -> bool:
    """Return whether most of the arrival time of each group is after the last arrival of all earlier groups."""
    spans = [Interval(group[0].start_ms, max(file.end_ms for file in group)) for group in groups]
    max_end_ms = accumulate((span.end_ms for span in spans), max)
    return all(
        min(earlier_end_ms, span.end_ms) - span.start_ms <= (span.end_ms - span.start_ms) * MAX_SHARED_TIME
        for earlier_end_ms, span in zip(max_end_ms, spans[1:], strict=False)
    )
