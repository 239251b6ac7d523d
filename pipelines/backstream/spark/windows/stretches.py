"""Stretches of event time, each read and grouped by one task, so that no event is exchanged between tasks.

Most of what tumbling windows cost is moving every event to the task of its key. A task that reads a stretch of
time has all events of the windows in it, whatever their keys: none has to move, and no key can be too large for a
task. The price is that a file with events of several stretches is read for each, so this is for files that lie in
order of time, as those of an archive do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise

from pyspark.sql import DataFrame

from backstream.core.plan import InputFile
from backstream.core.windows import Tumbling
from backstream.spark import apart
from backstream.spark.recorded import Recorded
from backstream.spark.streams.thresholds import GridColumns, WindowGrid
from backstream.spark.windows.assignment import FixedWindow

MOST_READ = 1.5
"""Times its share of all events that a task may read: reading is a fifth of the work, moving them half of it."""


def stretches(files: Sequence[InputFile], grid: WindowGrid, tasks: int) -> list[range]:
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
    count = apart.parts(rows, tasks)
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


def in_stretches(
    recorded: Recorded,
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
    if not (found := stretches(recorded.files, grid, spark.sparkContext.defaultParallelism)):
        return None

    def part(stretch: tuple[range, GridColumns]) -> DataFrame:
        numbers, columns = stretch
        return grouped(recorded.around(grid.stretch(numbers)).coalesce(1), columns)

    return apart.united(list(zip(found, grid.bound_apart(spark, found), strict=True)), part)
