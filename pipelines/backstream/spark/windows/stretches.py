"""Stretches of event time, each read and grouped by one task, so that no event is exchanged between tasks.

Most of what windows cost is moving every event to the task of its key. A task that reads a stretch of time has all
events of the windows in it, whatever their keys: none has to move, and no key can be too large for one task. The
price is that a file with events of several stretches is read several times, so this is for files that lie in order
of time, as those of an archive do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from itertools import pairwise

from pyspark.sql import DataFrame

from backstream.core.plan import InputFile
from backstream.core.windows import Tumbling
from backstream.spark.recorded import Recorded
from backstream.spark.streams.thresholds import WindowGrid
from backstream.spark.windows.values import Grouping

MOST = 64
"""Each stretch is a part of the plan, and with more of them Spark plans for longer than it saves."""
LARGEST = 15_000_000
"""Events: the groups of more would not fit into the memory of a task."""
_MOST_READ = 1.5
"""How many times the events may be read: reading is a fifth of the work, moving them half of it."""


def stretches(files: Sequence[InputFile], grid: WindowGrid, cores: int) -> list[range]:
    """The windows of a grid by number, in stretches of about as many events; none where it does not pay.

    Args:
        files: where the events are.
        grid: of tumbling windows.
        cores: how many tasks run at the same time.
    """
    span = grid.stretch(range(grid.count))
    held = [file for file in files if file.may_hold(span)]
    ends = sorted((file.max_event_ms, file.rows) for file in held if file.max_event_ms is not None)
    rows = sum(file.rows for file in held)
    count = cores * math.ceil(rows / (cores * LARGEST))
    if not rows or len(ends) < len(held) or count > MOST:
        return []
    # The first window that begins where the files before end.
    bounds = [-((grid.first_end_ms - grid.step_ms - cut_ms) // grid.step_ms) for cut_ms in _cuts_ms(ends, count)]
    inside = sorted({bound for bound in bounds if 0 < bound < grid.count})
    found = [range(first, end) for first, end in pairwise([0, *inside, grid.count])]
    spans = [grid.stretch(numbers) for numbers in found]
    read = sum(file.rows for each in spans for file in held if file.may_hold(each))
    return found if len(found) >= cores and read <= rows * _MOST_READ else []


def _cuts_ms(ends: Sequence[tuple[int, int]], count: int) -> Iterator[int]:
    """Where the files end of each of `count` parts with about as many rows; `ends`: of each file, and its rows."""
    rows, before = sum(each for _, each in ends), 0
    for end_ms, each in ends:
        after = before + each
        if before * count // rows < after * count // rows < count:
            yield end_ms + 1
        before = after


def in_stretches(
    recorded: Recorded,
    grid: WindowGrid,
    grouping: Grouping,
    grouped: Callable[[DataFrame, Grouping], DataFrame],
) -> DataFrame | None:
    """What is asked of tumbling windows, a stretch of time in a task; None for others, or where it does not pay.

    An event that is in many windows is moved once, but counted in each: there moving it is the lesser part.

    Args:
        recorded: the events.
        grid: the windows that are asked for.
        grouping: what is asked of them.
        grouped: answers it for the windows that a grid asks for, out of events that are theirs or not.
    """
    if not isinstance(grouping.window, Tumbling):
        return None
    spark = recorded.spark
    found = stretches(recorded.files, grid, spark.sparkContext.defaultParallelism)

    def part(numbers: range) -> DataFrame:
        events = recorded.around(grid.stretch(numbers)).coalesce(1)
        # Spark makes one task of a union of frames with a single partition each. Two are asked for; there is one.
        return grouped(events, replace(grouping, grid=grid.bound(spark, numbers))).coalesce(2)

    with ThreadPoolExecutor() as pool:  # Spark takes a while to look at each
        parts = list(pool.map(part, found))
    return reduce(DataFrame.unionAll, parts) if parts else None
