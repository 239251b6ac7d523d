"""Cut the windows of chunks into tasks: each task has consecutive windows of one chunk that start on one day."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.intervals import Interval
from backstream.runs.plan import Chunk, InputFile
from backstream.watermarks.firing_times import WindowGrid

TASK_ROWS = 8_000_000
"""The maximum number of records of a task, if files are sorted by time."""
MAX_READ_RATIO = 2.0
"""The maximum number of reads per record, since each task reads all files that overlap its interval."""
MIN_TASK_ROWS = 250_000
"""The number of records up to which windows are not cut."""
SMALL_DAY_ROWS = 100_000
"""The number of records per day below which a task has several days."""


@dataclass(frozen=True, slots=True)
class TaskRange:
    """Windows by number; the task counts the event times of `stretch`.

    The windows start in one chunk, on the day that begins at `day_ms`; None: in several chunks or on several days.
    """

    chunk: int
    day_ms: int | None
    numbers: range
    stretch: Interval


def cut_windows(
    grid: WindowGrid, chunks: Sequence[Chunk], read: Interval, files: Sequence[InputFile], slots: int
) -> list[TaskRange]:
    """Cut the windows of chunks that run together into ranges, each for one task.

    Args:
        grid: the windows.
        chunks: the chunks, adjacent and in order.
        read: the event times to read; the intervals of all ranges cover it without overlaps.
        files: the files of the records.
        slots: the number of tasks that run at the same time.
    """
    starts = _WindowStarts.from_grid(grid)
    bounds_ms = {chunk.start_ms for chunk in chunks} | {chunks[-1].end_ms}
    days_ms = range(chunks[0].start_ms - chunks[0].start_ms % DAY_MS, chunks[-1].end_ms, DAY_MS)
    day_edges = sorted({*map(starts.number_at, bounds_ms), *map(starts.number_at, days_ms), 0, starts.count})
    rows, day_count = sum(file.rows for file in files), len(day_edges) - 1
    is_small = day_count > 1 and rows < SMALL_DAY_ROWS * day_count
    if is_small:
        tasks = count_key_shares(rows, slots)
        edges = [day_edges[0], *(day_edges[day_count * task // tasks] for task in range(1, tasks + 1))]
    else:
        edges = day_edges[:1]
        for low, high in pairwise(day_edges):
            edges += _cut_numbers(starts.span(low, high), low, high, files, slots)
    ranges = []
    for position, (low, high) in enumerate(pairwise(edges)):
        start_ms = starts.at(low)
        begin_ms = read.start_ms if position == 0 else start_ms
        end_ms = read.end_ms if position == len(edges) - 2 else starts.at(high)
        chunk = max(number for number, chunk in enumerate(chunks) if chunk.start_ms <= start_ms)
        day_ms = None if is_small else start_ms - start_ms % DAY_MS
        numbers = range(low * starts.windows_per_start, high * starts.windows_per_start)
        ranges.append(TaskRange(chunk, day_ms, numbers, Interval(begin_ms, end_ms)))
    return ranges or [TaskRange(0, None, range(0), read)]


@dataclass(frozen=True, slots=True)
class _WindowStarts:
    """The starts of windows by number; cumulative windows share a start."""

    first_ms: int
    step_ms: int
    size_ms: int
    windows_per_start: int
    count: int

    @classmethod
    def from_grid(cls, grid: WindowGrid) -> Self:
        window = grid.window
        return cls(
            first_ms=grid.first_end_ms - window.first_size_ms,
            step_ms=window.start_step_ms,
            size_ms=window.size_ms,
            windows_per_start=window.windows_per_start,
            count=grid.count // window.windows_per_start,
        )

    def at(self, number: int) -> int:
        return self.first_ms + number * self.step_ms

    def number_at(self, instant_ms: int) -> int:
        """Return the number of the first start at or after an instant."""
        return min(max(0, -((self.first_ms - instant_ms) // self.step_ms)), self.count)

    def span(self, low: int, high: int) -> Interval:
        """Return the event times of the windows with these starts, `high` excluded."""
        return Interval(self.at(low), self.at(high - 1) + self.size_ms)


def cut_time(span: Interval, files: Sequence[InputFile], slots: int) -> list[Interval]:
    """Cut a span of event time into intervals, each for one task, by the number of records in the files.

    Args:
        span: the event times to read.
        files: the files of the records.
        slots: the number of tasks that run at the same time.
    """
    cuts = _cut_numbers(span, 0, span.end_ms - span.start_ms, files, slots)
    edges = [0, *cuts]
    return [Interval(span.start_ms + low, span.start_ms + high) for low, high in pairwise(edges)]


def count_key_shares(rows: int, slots: int) -> int:
    """Return the number of shares of the keys, each for one task, for a number of records."""
    return max(min(slots, math.ceil(rows / MIN_TASK_ROWS)), math.ceil(rows / TASK_ROWS), 1)


def _cut_numbers(span: Interval, low: int, high: int, files: Sequence[InputFile], slots: int) -> list[int]:
    """Return the window numbers at which the tasks end."""
    overlapping = [file for file in files if file.may_hold(span)]
    rows = sum(file.rows for file in overlapping)
    min_tasks = min(slots, math.ceil(rows / MIN_TASK_ROWS), high - low)
    max_tasks = min(max(min_tasks, slots * math.ceil(rows / (TASK_ROWS * slots))), high - low)
    tasks = (
        max_tasks
        if max_tasks > min_tasks and _count_read_rows(span, overlapping, max_tasks) <= rows * MAX_READ_RATIO
        else max(min_tasks, 1)
    )
    return [low + (high - low) * task // tasks for task in range(1, tasks + 1)]


def _count_read_rows(span: Interval, files: Sequence[InputFile], parts: int) -> int:
    """Return the number of rows in the files that equal parts of a span read, in total."""
    bounds = [span.start_ms + (span.end_ms - span.start_ms) * part // parts for part in range(parts + 1)]
    return sum(
        file.rows for start, end in pairwise(bounds) for file in files if file.may_hold(Interval(start, end))
    )


def group_files_by_rows(files: Sequence[InputFile], rows: int) -> list[list[str]]:
    """Group consecutive files up to a number of rows."""
    groups: list[list[str]] = []
    room = 0
    for file in files:
        if file.rows > room or not groups:
            groups.append([])
            room = rows
        groups[-1].append(file.path)
        room -= file.rows
    return groups
