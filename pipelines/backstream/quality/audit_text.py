"""Format the values, limits, and dates of an audit as text."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from backstream.text import share_text

_ROW_NAMES = {
    "windows": ("window", "windows"),
    "results": ("window start", "window starts"),
    "partitions": ("source partition", "source partitions"),
    "run": ("run", "runs"),
    "bands": ("window", "windows"),
}
"""The names of one row and of several rows, by frame."""

_ROUNDING = 1e-6  # no table has a share of rows closer to 1 than this, except for 1 itself


def cell_text(value: Any, column: str | None) -> str:
    """Return a value in the unit of its column."""
    if (column and column.endswith("_ratio")) or column == "completeness":
        return share_text(float(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def expectation_text(kwargs: Mapping[str, Any], frame: str) -> str:
    """Return the limit of an expectation, e.g., `at most 5 %`, `at least 75 % of windows`, or `every window`."""
    column = kwargs.get("column")
    bounds = [
        f"{bound} {cell_text(kwargs[key], column)}"
        for key, bound in (("min_value", "at least"), ("max_value", "at most"))
        if kwargs.get(key) is not None
    ]
    one, many = _ROW_NAMES[frame]
    if "mostly" in kwargs:
        is_all = kwargs["mostly"] > 1 - _ROUNDING
        bounds.append(f"every {one}" if is_all else f"at least {share_text(kwargs['mostly'])} of {many}")
    return ", ".join(bounds)


def rows_text(failing: int, total: int, frame: str) -> str:
    """Return how many rows fail a check, e.g., `all 1,484 windows pass` or `35 of 1,484 windows fail`."""
    one, many = _ROW_NAMES[frame]
    rows = f"{total:,} {one if total == 1 else many}"
    if not total:
        return f"there is no {one}"
    if not failing:
        return f"the only {one} passes" if total == 1 else f"all {rows} pass"
    return f"{failing:,} of {rows} {'fails' if failing == 1 else 'fail'}"


def days_text(first: datetime, last: datetime) -> str:
    """Return the UTC days from the first to the last instant, e.g., `8-9 February 2013`."""
    start, end = f"{first.day} {first:%B %Y}", f"{last.day} {last:%B %Y}"
    if first.date() == last.date():
        return end
    if (first.year, first.month) == (last.year, last.month):
        return f"{first.day}-{end}"
    return f"{first.day} {first:%B}-{end}" if first.year == last.year else f"{start}-{end}"
