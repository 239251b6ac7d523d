"""Cutting the windows of chunks into tasks: each gets a stretch of windows of one chunk, that start on one day."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import Cumulate, Sliding
from backstream.native.task import TaskGrid
from backstream.runs.plan import Chunk, InputFile

TASK_ROWS = 8_000_000
"""Records of a task at most, where files lie in order of time."""
MOST_READ = 2.0
"""How often the tasks of a piece may read a record; each reads the files that overlap its stretch."""
FEW_ROWS = 250_000
"""So few records are not cut."""
SMALL_DAY_ROWS = 100_000
"""Days with fewer records are put together into tasks."""


@dataclass(frozen=True, slots=True)
class TaskRange:
    """Windows by number, half-open; `stretch` are the event times that it counts.

    They start in one chunk, on the day that begins at `day_ms`; None: in several chunks, or on several days.
    """

    chunk: int
    day_ms: int | None
    numbers: tuple[int, int]
    stretch: Interval


def cut_windows(
    grid: TaskGrid, chunks: Sequence[Chunk], read: Interval, files: Sequence[InputFile], slots: int
) -> list[TaskRange]:
    """Cut the windows of chunks that run together into pieces, each for one task.

    Args:
        grid: their windows.
        chunks: side by side, in order.
        read: the event times that they read; the stretches of all pieces tile it.
        files: what holds the records.
        slots: how many tasks run at the same time.
    """
    window = grid.window
    per_start = window.size_ms // window.step_ms if isinstance(window, Cumulate) else 1
    every_ms = window.slide_ms if isinstance(window, Sliding) else window.size_ms
    starts = grid.count // per_start
    first_ms = grid.first_end_ms - (window.step_ms if isinstance(window, Cumulate) else window.size_ms)

    def place(at_ms: int) -> int:
        """Return the place of the first window that starts at an instant or later."""
        return min(max(0, -((first_ms - at_ms) // every_ms)), starts)

    bounds_ms = {chunk.start_ms for chunk in chunks} | {chunks[-1].end_ms}
    days = range(chunks[0].start_ms - chunks[0].start_ms % DAY_MS, chunks[-1].end_ms, DAY_MS)
    whole = sorted({*map(place, bounds_ms), *map(place, days), 0, starts})
    spans = [
        Interval(first_ms + low * every_ms, first_ms + (high - 1) * every_ms + window.size_ms)
        for low, high in pairwise(whole)
    ]
    rows = sum(file.rows for file in files)
    is_small = len(spans) > 1 and rows < SMALL_DAY_ROWS * len(spans)
    edges = whole[:1]
    if is_small:
        tasks = count_key_shares(rows, slots)
        edges += [whole[len(spans) * part // tasks] for part in range(1, tasks + 1)]
    else:
        for (low, high), span in zip(pairwise(whole), spans, strict=True):
            edges += _cuts(span, low, high, files, slots)
    found = []
    for position, (low, high) in enumerate(pairwise(edges)):
        start_ms = first_ms + low * every_ms
        begin_ms = read.start_ms if position == 0 else start_ms
        end_ms = read.end_ms if position == len(edges) - 2 else first_ms + high * every_ms
        chunk = max(number for number, each in enumerate(chunks) if each.start_ms <= start_ms)
        day_ms = None if is_small else start_ms - start_ms % DAY_MS
        found.append(TaskRange(chunk, day_ms, (low * per_start, high * per_start), Interval(begin_ms, end_ms)))
    return found or [TaskRange(0, None, (0, 0), read)]


def cut_time(span: Interval, files: Sequence[InputFile], slots: int) -> list[Interval]:
    """Cut a span of event time into stretches, each for one task, by how many records the files hold.

    Args:
        span: what is read.
        files: what holds the records.
        slots: how many tasks run at the same time.
    """
    cuts = _cuts(span, 0, span.end_ms - span.start_ms, files, slots)
    edges = [0, *cuts]
    return [Interval(span.start_ms + low, span.start_ms + high) for low, high in pairwise(edges)]


def count_key_shares(rows: int, slots: int) -> int:
    """Return into how many shares the keys of so many records are cut, each for one task."""
    return max(min(slots, math.ceil(rows / FEW_ROWS)), math.ceil(rows / TASK_ROWS), 1)


def _cuts(span: Interval, low: int, high: int, files: Sequence[InputFile], slots: int) -> list[int]:
    """Return where windows are cut, the last of them the end."""
    held = [file for file in files if file.may_hold(span)]
    rows = sum(file.rows for file in held)
    fewest = min(slots, math.ceil(rows / FEW_ROWS), high - low)
    most = min(max(fewest, slots * math.ceil(rows / (TASK_ROWS * slots))), high - low)
    wanted = most if most > fewest and _read(span, held, most) <= rows * MOST_READ else max(fewest, 1)
    return [low + (high - low) * part // wanted for part in range(1, wanted + 1)]


def _read(span: Interval, held: Sequence[InputFile], parts: int) -> int:
    """Return how many records lie in the files that so many equal parts of a span read."""
    bounds = [span.start_ms + (span.end_ms - span.start_ms) * part // parts for part in range(parts + 1)]
    return sum(
        file.rows for start, end in pairwise(bounds) for file in held if file.may_hold(Interval(start, end))
    )


def group_files_by_rows(files: Sequence[InputFile], rows: int) -> list[list[str]]:
    """Put files together until they have so many rows."""
    found: list[list[str]] = []
    room = 0
    for file in files:
        if file.rows > room or not found:
            found.append([])
            room = rows
        found[-1].append(file.path)
        room -= file.rows
    return found
