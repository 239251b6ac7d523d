"""Name the failing rows of a check: the window or record, the expected and the found value, and a command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from backstream.eventtime.instants import DAY_MS, epoch_ms, instant_ms, instant_text
from backstream.quality.gx_adapter import ExpectationResult
from backstream.quality.row_texts import expected_and_found
from backstream.quality.run_parts import Row, RunParts
from backstream.quality.suites import SuiteEntry
from backstream.runs.plan import Plan

_MAX_FAILING_ROWS = 20
"""The maximum number of failing rows that a check keeps; reports join adjacent windows and show ten."""
_NAME_COLUMNS = {
    "windows": ["source_partition", "window_start"],
    "partitions": ["source_partition"],
    "results": ["window_start"],
    "bands": ["window_start"],
    "run": [],
}


def name_failing_rows(
    result: ExpectationResult, entry: SuiteEntry, kwargs: Mapping[str, Any], parts: RunParts
) -> tuple[Mapping[str, Any], ...]:
    """Return the first failing rows of a check, sorted by deviation or else by time.

    A row has names (such as `source_partition`, `window_start`, `file`), and texts `expected`, `found`, and
    `command`. A row of a frame also has the value of the column. The rows of a check of a whole run are the parts
    that disagree, because the run is one row.
    """
    column = kwargs.get("column")
    if result.is_met or result.error or column is None:
        return ()
    rows = parts.rows(column, kwargs) if entry.frame == "run" else _rows(result, entry, kwargs, column)
    return tuple(row | {"command": _command_for(row, parts.plan)} for row in islice(rows, _MAX_FAILING_ROWS))


def _rows(result: ExpectationResult, entry: SuiteEntry, kwargs: Mapping[str, Any], column: str) -> Iterator[Row]:
    names = [*_NAME_COLUMNS[entry.frame], column]
    for row in sort_by_deviation(result, column).head(_MAX_FAILING_ROWS).to_dict("records"):
        values: Mapping[str, Any] = {str(name): value for name, value in row.items()}
        expected, found = expected_and_found(values, column, kwargs, entry.frame)
        named = {name: to_json(values[name]) for name in names if name in values}
        yield named | {"expected": expected, "found": found}


def _command_for(row: Mapping[str, Any], plan: Plan) -> str:
    """Return the command that shows the published rows of a failing row's days; empty for a file or a record."""
    if "window_start" in row:
        since_ms = instant_ms(row["window_start"], "window_start") // DAY_MS * DAY_MS
        until_ms = since_ms + DAY_MS
    elif "since" in row:
        since_ms, until_ms = (instant_ms(row[name], name) for name in ("since", "until"))
    elif "source_partition" in row:
        since_ms, until_ms = plan.since_ms, plan.until_ms
    else:
        return ""
    since, until = (instant_text(at_ms).removesuffix("T00:00Z") for at_ms in (since_ms, until_ms))
    return f"backstream show {plan.dataset} --since {since} --until {until}"


def sort_by_deviation(result: ExpectationResult, column: str | None) -> pd.DataFrame:
    """Return the failing rows, with the largest deviation first if the column is a number."""
    rows = result.failing
    if not column or not is_measured(rows, column):
        return rows
    return rows.sort_values(column, key=abs, ascending=column == "completeness", kind="stable")


def is_measured(rows: pd.DataFrame, column: str) -> bool:
    """Return whether the values of failing rows are numbers and not booleans."""
    return (
        not rows.empty
        and column in rows.columns
        and is_numeric_dtype(rows[column])
        and not is_bool_dtype(rows[column])
    )


def to_json(value: Any) -> Any:
    """Return a cell as a JSON value, with instants as text."""
    if isinstance(value, pd.Timestamp):
        return instant_text(epoch_ms(value.to_pydatetime()))
    return value.item() if hasattr(value, "item") else value
