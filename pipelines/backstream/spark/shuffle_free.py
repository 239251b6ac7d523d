"""Frames that one task each makes, put together without an exchange.

Spark moves every row to the task of its group. Where all rows of a group lie in the same files anyway, or where it
does not matter that a group is found twice, one task reads these files and groups them where it is.
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

from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import SourceClock
from backstream.eventtime.watermarks import Emission
from backstream.eventtime.windows import Tumbling
from backstream.runs.plan import InputFile
from backstream.spark.source import EventFiles
from backstream.spark.watermarks.compress import ClockColumns, compress_events
from backstream.spark.watermarks.firing_times import GridColumns, WindowGrid
from backstream.spark.windows.assignment import FixedWindow

MOST = 64
"""Each frame is a part of the plan, and with more of them Spark plans for longer than it saves."""
LARGEST = 15_000_000
"""Events of a task; of more it would have to spill groups to disk."""

_Part = TypeVar("_Part")


def count_parts(rows: int, tasks: int) -> int:
    """Into how many parts so many rows are cut, when so many tasks run at the same time; 0: it does not pay."""
    count = tasks * math.ceil(rows / (tasks * LARGEST))
    return count if count <= MOST else 0


def union_parts(of: Sequence[_Part], frame: Callable[[_Part], DataFrame]) -> DataFrame:
    """The frames of at least one part; each is made by one task out of what `frame` reads with `coalesce(1)`."""
    with ThreadPoolExecutor() as pool:  # Spark takes a while to look at each
        first, *others = pool.map(frame, of)
    # Spark would make a single task of a union of frames that are all known to have a single partition. There is
    # still one after `coalesce(2)`, but that is not known.
    return reduce(DataFrame.unionAll, others, first.coalesce(2))


MOST_READ = 1.5
"""Times its share of all events that a task may read: reading is a fifth of the work, moving them half of it."""


def cut_time_ranges(files: Sequence[InputFile], grid: WindowGrid, tasks: int) -> list[range]:
    """The windows of a grid by number, in stretches of about as many events; none where it does not pay.

    Args:
        files: where the events are.
        grid: of tumbling windows.
        tasks: how many run at the same time.
    """
    span = grid.stretch(range(grid.count))
    held = [file for file in files if file.may_hold(span)]
    ends = sorted((file.max_event_ms, file.rows) for file in held if file.max_event_ms is not None)
    rows = sum(file.rows for file in held)
    count = count_parts(rows, tasks)
    if not rows or len(ends) < len(held) or not count:
        return []
    # The first window that begins where the files before end.
    bounds = [-((grid.first_end_ms - grid.step_ms - cut_ms) // grid.step_ms) for cut_ms in _cuts_ms(ends, count)]
    inside = sorted({bound for bound in bounds if 0 < bound < grid.count})
    found = [range(first, end) for first, end in pairwise([0, *inside, grid.count])]
    spans = [grid.stretch(numbers) for numbers in found]
    most = max(sum(file.rows for file in held if file.may_hold(each)) for each in spans)
    return found if len(found) == count and most * count <= rows * MOST_READ else []


def _cuts_ms(ends: Sequence[tuple[int, int]], count: int) -> Iterator[int]:
    """Where the files end that are nearest to a `count`-th of all rows, to two, and so on.

    Args:
        ends: of each file its last event (ms) and its rows, ascending.
        count: how many parts are wanted.
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
    """What is asked of tumbling windows, a stretch of time in a task; None for others, or where it does not pay.

    An event that is in many windows is moved once, but counted in each: there moving it is the lesser part.

    Args:
        recorded: the events.
        window: which windows.
        grid: those that are asked for.
        grouped: answers it for the windows that columns ask for, out of events that are theirs or not, without
            an exchange.
    """
    spark = recorded.spark
    if not isinstance(window, Tumbling):
        return None
    if not (found := cut_time_ranges(recorded.files, grid, spark.sparkContext.defaultParallelism)):
        return None

    def part(stretch: tuple[range, GridColumns]) -> DataFrame:
        numbers, columns = stretch
        return grouped(recorded.around(grid.stretch(numbers)).coalesce(1), columns)

    return union_parts(list(zip(found, grid.as_shared_columns(spark, found), strict=True)), part)


MANY_EVENTS = 1_000_000
"""From here on it pays to look at where events lie."""
MOST_UNEVEN = 1.5
"""How many times the mean one share may have of the events."""
MOST_SHARED = 0.5
"""Part of its arrival time that a share may have in common with those before: so much may be found twice."""


def compress_files(recorded: EventFiles, emission: Emission, clock: SourceClock) -> pa.Table:
    """`compressed`, found in shares where it pays: a partition and block that two of them hold has two rows.

    The watermarks must follow from the greatest event times alone. Runs a job.
    """
    found = share_files(recorded.files, recorded.spark.sparkContext.defaultParallelism)
    if found:
        return compress_file_groups(recorded, found, emission, clock).toArrow()
    return compress_events(recorded.all(), ClockColumns.from_clock(clock), (), emission).toArrow()


def compress_file_groups(
    recorded: EventFiles, found: Sequence[Sequence[InputFile]], emission: Emission, clock: SourceClock
) -> DataFrame:
    """`compressed` of each share for itself: a partition and block that two of them hold has two rows."""

    def cells(share: Sequence[InputFile]) -> DataFrame:
        events = recorded.read([file.path for file in share]).coalesce(1)
        return compress_events(events, ClockColumns.from_clock(clock), (), emission)

    return union_parts(found, cells)


def share_files(files: Sequence[InputFile], tasks: int) -> list[list[InputFile]]:
    """The files in shares of about as many events, in order of arrival; none where it does not pay.

    Files whose arrivals lie side by side come into one share, so that few ticks are found in two.

    Args:
        files: where the events are.
        tasks: how many run at the same time.
    """
    held = [file for file in files if file.rows]
    arrivals = {
        file.path: Interval(file.min_arrival_ms, file.max_arrival_ms + 1)
        for file in held
        if file.min_arrival_ms is not None and file.max_arrival_ms is not None
    }
    rows = sum(file.rows for file in held)
    count = count_parts(rows, tasks) if rows >= MANY_EVENTS else 0
    if not count or len(arrivals) < len(held):
        return []
    held.sort(key=lambda file: (arrivals[file.path].start_ms, file.path))
    found: list[list[InputFile]] = [[] for _ in range(count)]
    for file, end in zip(held, accumulate(file.rows for file in held), strict=True):
        found[(2 * end - file.rows) * count // (2 * rows)].append(file)  # where the middle of the file lies
    is_even = max(sum(file.rows for file in share) for share in found) * count <= rows * MOST_UNEVEN
    if not all(found) or not is_even:
        return []
    return found if _are_apart([[arrivals[file.path] for file in share] for share in found]) else []


def _are_apart(shares_of: Sequence[Sequence[Interval]]) -> bool:
    """Whether each share arrived for the most part after all those before it had arrived."""
    spans = [Interval(each[0].start_ms, max(file.end_ms for file in each)) for each in shares_of]
    reached_ms = accumulate((span.end_ms for span in spans), max)
    return all(
        min(before_ms, span.end_ms) - span.start_ms <= (span.end_ms - span.start_ms) * MOST_SHARED
        for before_ms, span in zip(reached_ms, spans[1:], strict=False)
    )
