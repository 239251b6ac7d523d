"""Shares of the arrivals, one for each task: what its ticks hold is then found without an exchange."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pyarrow as pa
from pyspark.sql import DataFrame

from backstream.core.intervals import Interval
from backstream.core.plan import InputFile
from backstream.core.records import Clock
from backstream.core.watermarks import Emission
from backstream.spark import apart
from backstream.spark.recorded import Recorded
from backstream.spark.streams.watermarks import ClockColumns, compressed

MANY_EVENTS = 1_000_000
"""From here on it pays to look at where events lie."""
MOST_UNEVEN = 1.5
"""How many times the mean one share may have of the events."""
MOST_SHARED = 0.5
"""Part of its arrival time that a share may have in common with those before: so much may be found twice."""


def cells_of(recorded: Recorded, emission: Emission, clock: Clock) -> pa.Table:
    """`compressed`, found in shares where it pays: a partition and block that two of them hold has two rows.

    The watermarks must follow from the greatest event times alone. Runs a job.
    """
    found = shares(recorded.files, recorded.spark.sparkContext.defaultParallelism)
    if found:
        return compressed_apart(recorded, found, emission, clock).toArrow()
    return compressed(recorded.all(), ClockColumns.of(clock), (), emission).toArrow()


def compressed_apart(
    recorded: Recorded, found: Sequence[Sequence[InputFile]], emission: Emission, clock: Clock
) -> DataFrame:
    """`compressed` of each share for itself: a partition and block that two of them hold has two rows."""

    def cells(share: Sequence[InputFile]) -> DataFrame:
        events = recorded.read([file.path for file in share]).coalesce(1)
        return compressed(events, ClockColumns.of(clock), (), emission)

    return apart.united(found, cells)


def shares(files: Sequence[InputFile], tasks: int) -> list[list[InputFile]]:
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
    count = apart.parts(rows, tasks) if rows >= MANY_EVENTS else 0
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
