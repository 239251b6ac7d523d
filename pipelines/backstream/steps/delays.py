"""Counting how long records took to arrive: two columns of the input files of a range, read as they lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from backstream.core.plan import Plan
from backstream.definition.model import Definition
from backstream.quality.expected import instants_ms
from backstream.report.delays import LADDER_MS, QUANTILES
from backstream.report.known import Delays
from backstream.steps.reading import row_groups

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
        event_time, arrival_time = _column(source.event_time, plan), _column(source.arrival_time, plan)
        found = [_delays_ms(path, event_time, arrival_time, plan) for path in files]
    except (OSError, KeyError, pa.ArrowException, ValueError, TypeError) as error:
        return None, f"the input files cannot be read as they were: {type(error).__name__}"
    delays_ms = np.concatenate(found) if found else np.array([], dtype=np.int64)
    return (_counted(delays_ms), "") if len(delays_ms) else (None, "no record of the range was read")


def _column(expression: str, plan: Plan) -> str:
    """The column of timestamps that an expression is: only Spark can evaluate another, and text."""
    if plan.columns.get(expression) != "timestamp":
        raise KeyError(expression)
    return expression


def _delays_ms(path: str, event_time: str, arrival_time: str, plan: Plan) -> Any:
    parts = [rows.drop_null() for rows in row_groups(Path(path), [event_time, arrival_time])]
    if not any(rows.num_rows for rows in parts):
        return np.array([], dtype=np.int64)
    frame = pa.concat_tables(rows for rows in parts if rows.num_rows).to_pandas()
    event_ms, arrival_ms = instants_ms(frame[event_time]), instants_ms(frame[arrival_time])
    is_inside = (event_ms >= plan.since_ms) & (event_ms < plan.until_ms)
    return (arrival_ms - event_ms)[is_inside].to_numpy()


def _counted(delays_ms: Any) -> Delays:
    steps = np.searchsorted(LADDER_MS, delays_ms, side="left")
    counts = np.bincount(steps, minlength=len(LADDER_MS) + 1)
    quantiles = np.quantile(delays_ms, QUANTILES, method="inverted_cdf")
    return Delays(
        records=len(delays_ms),
        counts=tuple(int(count) for count in counts),
        quantiles_ms={share: int(value) for share, value in zip(QUANTILES, quantiles, strict=True)},
    )
