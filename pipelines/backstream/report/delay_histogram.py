"""Counting how long records took to arrive: two columns of the input files of a range, read as they lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from backstream.definition.model import Definition, SessionWindow
from backstream.errors import PlanError
from backstream.eventtime.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from backstream.report.formatting import count_of, duration_words
from backstream.report.run_context import DelayCounts
from backstream.report.svg import Axis, Bar, BarChart, Line
from backstream.runs.plan import Plan
from backstream.source.reader import READERS, scan_row_groups
from backstream.source.time_columns import Longs, TimeColumn
from backstream.text import share_text

MOST_RECORDS = 20_000_000
"""More than this are not counted for a report: two columns of them are some seconds and 320 MB."""


def count_delays(plan: Plan, definition: Definition) -> tuple[DelayCounts | None, str]:
    """The delays of the recorded rows whose event time lies in the range, copies included; else why not."""
    source = definition.source
    if source.arrival_time is None:
        return None, "no arrival time was recorded"
    files = sorted({plan.inputs[at].path for chunk in plan.chunks for at in chunk.files})
    rows = sum(file.rows for file in plan.inputs if file.path in files)
    if rows > MOST_RECORDS:
        return None, f"the range's files have {rows:,} rows, more than the {MOST_RECORDS:,} that a report counts"
    try:
        times = [_column(expression, plan) for expression in (source.event_time, source.arrival_time)]
        with ThreadPoolExecutor(READERS) as pool:
            found = list(pool.map(lambda path: _delays_ms(path, times, plan), files))
    except (OSError, KeyError, pa.ArrowException, ValueError, TypeError, PlanError) as error:
        return None, f"the input files cannot be read as they were: {type(error).__name__}"
    delays_ms = np.concatenate(found) if found else np.array([], dtype=np.int64)
    return (_counted(delays_ms), "") if len(delays_ms) else (None, "no record of the range was read")


def _column(expression: str, plan: Plan) -> TimeColumn:
    """The column of timestamps that an expression is: only Spark can evaluate another, and text."""
    if plan.columns.get(expression) != "timestamp":
        raise KeyError(expression)
    return TimeColumn(expression, 0, expression)


def _delays_ms(path: str, times: Sequence[TimeColumn], plan: Plan) -> Longs:
    parts = [np.array([], dtype=np.int64)]
    for rows in scan_row_groups(Path(path), [each.name for each in times]):
        known = rows.drop_null()
        if known.num_rows:
            event_ms, arrival_ms = (each.values_ms(known[each.name]) for each in times)
            is_inside = (event_ms >= plan.since_ms) & (event_ms < plan.until_ms)
            parts.append((arrival_ms - event_ms)[is_inside])
    return np.concatenate(parts)


def _counted(delays_ms: Longs) -> DelayCounts:
    steps = np.searchsorted(LADDER_MS, delays_ms, side="left")
    counts = np.bincount(steps, minlength=len(LADDER_MS) + 1)
    quantiles = np.quantile(delays_ms, QUANTILES, method="inverted_cdf")
    return DelayCounts(
        records=len(delays_ms),
        counts=tuple(int(count) for count in counts),
        quantiles_ms={share: int(value) for share, value in zip(QUANTILES, quantiles, strict=True)},
    )


LADDER_MS = (
    0,
    *(1, 10, 100),
    *(count * SECOND_MS for count in (1, 5, 15, 30)),
    *(count * MINUTE_MS for count in (1, 2, 5, 10, 20, 30)),
    *(count * HOUR_MS for count in (1, 2, 4, 8, 12)),
    *(count * DAY_MS for count in (1, 2, 7, 28, 91, 364)),
)
"""Ends of the steps: a step has the delays above the end before it, up to its own."""
QUANTILES = (0.5, 0.9, 0.99, 0.999, 1.0)

_ROOM = 13
_LOW_SHARE = 0.01  # steps at the low end that together hold less are one bar
_TOPS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)


def delay_chart(delays: DelayCounts, definition: Definition | None) -> BarChart:
    """Share of the records per step of delay; with a definition, lines where its delay and lateness end."""
    steps = _shown(delays.counts)
    shares = [
        sum(delays.counts[low:high]) / delays.records for low, high in pairwise((0, *(at + 1 for at in steps)))
    ]
    top = next(each for each in _TOPS if max(shares) <= each)
    every = 1 if len(steps) <= _ROOM else 2
    ticks = tuple((at + 0.5, _bound(steps[at])) for at in range(0, len(steps), every))
    return BarChart(
        label="Share of records by how long after their event time they arrived",
        x=Axis("arrived after event time, at most", ticks),
        y=Axis("share of records", tuple((top * at / 5, share_text(top * at / 5)) for at in range(6))),
        top=top,
        bars=tuple(
            _bar(steps[at], steps[at - 1] if at else None, share, delays.records)
            for at, share in enumerate(shares)
        ),
        marks=tuple(_marks(definition, steps)) if definition else (),
    )


def quantile_texts(delays: DelayCounts) -> tuple[tuple[str, str], ...]:
    """How many of the records had come, and by when: `half`, `2 min before their event time`."""
    names = {0.5: "half", 1.0: "all"}
    return tuple(
        (names.get(share, share_text(share)), _span(value_ms)) for share, value_ms in delays.quantiles_ms.items()
    )


def _shown(counts: Sequence[int]) -> tuple[int, ...]:
    """The steps that are bars of their own: from the first that matters to the last that holds anything.

    Delays of a clock that ticks in minutes leave the steps of seconds empty: those are part of the next step.
    """
    last = max(at for at, count in enumerate(counts) if count)
    first = next(at for at in range(last + 1) if sum(counts[: at + 1]) > sum(counts) * _LOW_SHARE)
    rest = next((at for at in range(first + 1, last + 1) if counts[at]), last)
    return (first, *(at for at in range(rest, last + 1) if at > first))


def _bound(at: int) -> str:
    if at == len(LADDER_MS):
        return "more"
    return duration_words(LADDER_MS[at]) if LADDER_MS[at] else "0 or before"


def _bar(step: int, before: int | None, share: float, records: int) -> Bar:
    above = "" if before is None else f"more than {_bound(before)}"
    upto = f"at most {_bound(step)}" if step < len(LADDER_MS) else ""
    span = ", ".join(each for each in (above, upto) if each)
    return Bar(
        (("fate-on_time", share),), f"{span}: {count_of(round(share * records), 'record')}, {share_text(share)}"
    )


def _marks(definition: Definition, steps: Sequence[int]) -> Iterator[Line]:
    """Where a record is behind a watermark that saw it come in order, and where its window is gone then."""
    delay_ms, allowed_ms = definition.watermark.delay, definition.lateness.allowed
    if isinstance(definition.window, SessionWindow) or not delay_ms:
        return
    if (at := _place(delay_ms, steps)) is not None:
        yield Line(at, "soft", f"the watermark's delay, {duration_words(delay_ms)}")
    both_ms = delay_ms + allowed_ms
    if allowed_ms and (at := _place(both_ms, steps)) is not None:
        yield Line(at, "hard", f"delay and allowed lateness, {duration_words(both_ms)}")


def _place(value_ms: int, steps: Sequence[int]) -> float | None:
    """Where a delay lies on the axis, in bars; None beyond its ends."""
    for at, (low, high) in enumerate(pairwise(steps), start=1):
        if high < len(LADDER_MS) and LADDER_MS[low] < value_ms <= LADDER_MS[high]:
            return at + (value_ms - LADDER_MS[low]) / (LADDER_MS[high] - LADDER_MS[low])
    return None


def _span(value_ms: int) -> str:
    if value_ms < 0:
        return f"{duration_words(-value_ms)} before their event time"
    return f"{duration_words(value_ms)} after it"
