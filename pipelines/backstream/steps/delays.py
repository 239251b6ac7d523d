"""Counting how long records took to arrive: two columns of the input files of a range, read as they lie."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa

from backstream.core.errors import PlanError
from backstream.core.plan import Plan
from backstream.definition.model import Definition
from backstream.report.delays import LADDER_MS, QUANTILES
from backstream.report.known import Delays
from backstream.steps.instants import InstantColumn, Longs
from backstream.steps.reading import READERS, row_groups

MOST_RECORDS = 20_000_000
"""More than this are not counted for a report: two columns of them are some seconds and 320 MB."""


def delays_of(plan: Plan, definition: Definition) -> tuple[Delays | None, str]:
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


def _column(expression: str, plan: Plan) -> InstantColumn:
    """The column of timestamps that an expression is: only Spark can evaluate another, and text."""
    if plan.columns.get(expression) != "timestamp":
        raise KeyError(expression)
    return InstantColumn(expression, 0, expression)


def _delays_ms(path: str, times: Sequence[InstantColumn], plan: Plan) -> Longs:
    parts = [np.array([], dtype=np.int64)]
    for rows in row_groups(Path(path), [each.name for each in times]):
        known = rows.drop_null()
        if known.num_rows:
            event_ms, arrival_ms = (each.values_ms(known[each.name]) for each in times)
            is_inside = (event_ms >= plan.since_ms) & (event_ms < plan.until_ms)
            parts.append((arrival_ms - event_ms)[is_inside])
    return np.concatenate(parts)


def _counted(delays_ms: Longs) -> Delays:
    steps = np.searchsorted(LADDER_MS, delays_ms, side="left")
    counts = np.bincount(steps, minlength=len(LADDER_MS) + 1)
    quantiles = np.quantile(delays_ms, QUANTILES, method="inverted_cdf")
    return Delays(
        records=len(delays_ms),
        counts=tuple(int(count) for count in counts),
        quantiles_ms={share: int(value) for share, value in zip(QUANTILES, quantiles, strict=True)},
    )
