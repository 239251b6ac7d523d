"""Count the arrival delays of a range from two columns of its input files, and chart them as a histogram."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pyarrow as pa

from backstream.charts.svg import Axis, Bar, BarChart, Line
from backstream.definition.model import Definition
from backstream.definition.result_sections import SessionWindow
from backstream.errors import PlanError
from backstream.eventtime.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from backstream.eventtime.time_zones import find_zone
from backstream.formatting import count_of, duration_words
from backstream.report.run_context import DelayCounts
from backstream.runs.plan import Plan
from backstream.source.local_times import list_local_ms
from backstream.source.reader import READERS, scan_row_groups
from backstream.source.time_columns import Longs, TimeColumn
from backstream.text import share_text

_MAX_RECORDS = 20_000_000
"""Limit for a report: two columns of so many records need 320 MB and some seconds."""


def count_delays(plan: Plan, definition: Definition) -> tuple[DelayCounts | None, str]:
    """Return the arrival delays of the range, duplicates included; or None and the reason."""
    source = definition.source
    if source.arrival_time is None:
        return None, "the source has no arrival time"
    files = sorted({plan.inputs[index].path for chunk in plan.chunks for index in chunk.files})
    rows = sum(file.rows for file in plan.inputs if file.path in files)
    if rows > _MAX_RECORDS:
        return None, f"the input files have {rows:,} rows, a report counts at most {_MAX_RECORDS:,}"
    try:
        times = [_column(expression, plan) for expression in (source.event_time, source.arrival_time)]
        with ThreadPoolExecutor(READERS) as pool:
            parts = list(pool.map(lambda path: _scan_delays_ms(path, times, plan), files))
    except (OSError, KeyError, pa.ArrowException, ValueError, TypeError, PlanError) as error:
        return None, f"the input files cannot be read: {type(error).__name__}"
    delays_ms = np.concatenate(parts) if parts else np.array([], dtype=np.int64)
    return (_count_by_step(delays_ms), "") if len(delays_ms) else (None, "the range has no records")


def _column(expression: str, plan: Plan) -> TimeColumn:
    """Return the timestamp column of an expression; only Spark can evaluate other expressions, and text."""
    if plan.columns.get(expression) != "timestamp":
        raise KeyError(expression)
    return TimeColumn(expression, 0, expression)


def _scan_delays_ms(path: str, times: Sequence[TimeColumn], plan: Plan) -> Longs:
    parts = [np.array([], dtype=np.int64)]
    zone = find_zone(plan.definition.get("window", {}).get("time_zone"))
    for rows in scan_row_groups(path, [column.name for column in times]):
        complete = rows.drop_null()
        if complete.num_rows:
            event_ms, arrival_ms = (column.values_ms(complete[column.name]) for column in times)
            local_ms = list_local_ms(zone, event_ms)
            is_inside = (local_ms >= plan.since_ms) & (local_ms < plan.until_ms)
            parts.append((arrival_ms - event_ms)[is_inside])
    return np.concatenate(parts)


def _count_by_step(delays_ms: Longs) -> DelayCounts:
    steps = np.searchsorted(LADDER_MS, delays_ms, side="left")
    counts = np.bincount(steps, minlength=len(LADDER_MS) + 1)
    quantiles = np.quantile(delays_ms, _QUANTILES, method="inverted_cdf")
    return DelayCounts(
        records=len(delays_ms),
        counts=tuple(int(count) for count in counts),
        quantiles_ms={share: int(value) for share, value in zip(_QUANTILES, quantiles, strict=True)},
    )


LADDER_MS = (
    0,
    *(1, 10, 100),
    *(count * SECOND_MS for count in (1, 5, 15, 30)),
    *(count * MINUTE_MS for count in (1, 2, 5, 10, 20, 30)),
    *(count * HOUR_MS for count in (1, 2, 4, 8, 12)),
    *(count * DAY_MS for count in (1, 2, 7, 28, 91, 364)),
)
"""Upper bounds of the steps, inclusive. The lower bound of a step is the upper bound before it, exclusive."""
_QUANTILES = (0.5, 0.9, 0.99, 0.999, 1.0)

_MAX_LABELS = 13
_LOW_SHARE = 0.01  # The lowest steps share one bar as long as their sum is at most this share.
_TOPS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)


def delay_chart(delays: DelayCounts, definition: Definition | None) -> BarChart:
    """Return the share of records by delay; a definition adds marks for its delay and its allowed lateness."""
    steps = _select_steps(delays.counts)
    shares = [
        sum(delays.counts[low:high]) / delays.records for low, high in pairwise((0, *(step + 1 for step in steps)))
    ]
    top = next(top for top in _TOPS if max(shares) <= top)
    stride = 1 if len(steps) <= _MAX_LABELS else 2
    ticks = tuple((bar + 0.5, _bound_text(steps[bar])) for bar in range(0, len(steps), stride))
    return BarChart(
        label="Share of records by arrival delay",
        x=Axis("arrival delay, at most", ticks),
        y=Axis("share of records", tuple((top * tick / 5, share_text(top * tick / 5)) for tick in range(6))),
        top=top,
        bars=tuple(
            _bar(steps[bar], steps[bar - 1] if bar else None, share, delays.records)
            for bar, share in enumerate(shares)
        ),
        marks=tuple(_marks(definition, steps)) if definition else (),
    )


def quantile_texts(delays: DelayCounts) -> tuple[tuple[str, str], ...]:
    """Return pairs of share and delay: `50 %`, `2 min before event time`."""
    return tuple((share_text(share), _delay_text(value_ms)) for share, value_ms in delays.quantiles_ms.items())


def _select_steps(counts: Sequence[int]) -> tuple[int, ...]:
    """Return the steps with their own bars, from the first relevant step to the last one with records.

    A clock with a resolution of minutes leaves the steps of seconds empty; these are part of the next step.
    """
    last = max(step for step, count in enumerate(counts) if count)
    first = next(step for step in range(last + 1) if sum(counts[: step + 1]) > sum(counts) * _LOW_SHARE)
    second = next((step for step in range(first + 1, last + 1) if counts[step]), last)
    return (first, *(step for step in range(second, last + 1) if step > first))


def _bound_text(step: int) -> str:
    if step == len(LADDER_MS):
        return "more"
    return duration_words(LADDER_MS[step]) if LADDER_MS[step] else "0 or before"


def _bar(step: int, before: int | None, share: float, records: int) -> Bar:
    lower = "" if before is None else f"more than {_bound_text(before)}"
    upper = f"at most {_bound_text(step)}" if step < len(LADDER_MS) else ""
    span = ", ".join(bound for bound in (lower, upper) if bound)
    return Bar(
        (("fate-on_time", share),), f"{span}: {count_of(round(share * records), 'record')}, {share_text(share)}"
    )


def _marks(definition: Definition, steps: Sequence[int]) -> Iterator[Line]:
    """Yield marks for the watermark delay, and for the sum of delay and allowed lateness."""
    delay_ms, allowed_ms = definition.watermark.delay, definition.lateness.allowed
    if isinstance(definition.window, SessionWindow) or not delay_ms:
        return
    if (position := _position(delay_ms, steps)) is not None:
        yield Line(position, "soft", f"watermark delay, {duration_words(delay_ms)}")
    sum_ms = delay_ms + allowed_ms
    if allowed_ms and (position := _position(sum_ms, steps)) is not None:
        yield Line(position, "hard", f"delay plus allowed lateness, {duration_words(sum_ms)}")


def _position(value_ms: int, steps: Sequence[int]) -> float | None:
    """Return the position of a delay on the axis in bars; None outside the axis."""
    for bar, (low, high) in enumerate(pairwise(steps), start=1):
        if high < len(LADDER_MS) and LADDER_MS[low] < value_ms <= LADDER_MS[high]:
            return bar + (value_ms - LADDER_MS[low]) / (LADDER_MS[high] - LADDER_MS[low])
    return None


def _delay_text(value_ms: int) -> str:
    if value_ms < 0:
        return f"{duration_words(-value_ms)} before event time"
    return f"{duration_words(value_ms)} after event time"
