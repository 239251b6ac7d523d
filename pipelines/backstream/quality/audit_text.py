"""Numbers, limits and dates of an audit as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from backstream.text import share_text

ROW_NAMES = {
    "windows": ("window", "windows"),
    "results": ("window start", "window starts"),
    "partitions": ("source partition", "source partitions"),
    "run": ("run", "runs"),
}
"""What one row, and what several rows of a frame are called."""

_CERTAIN = 1e-6  # closer to 1 than any share of a real table: every row is meant


def cell_text(value: Any, column: str | None) -> str:
    """A value in the unit of its column."""
    if (column and column.endswith("_ratio")) or column == "completeness":
        return share_text(float(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def expectation_text(kwargs: Mapping[str, Any], frame: str) -> str:
    """What an expectation asks for: `at most 5 %`, `at least 75 % of windows`, `every window`."""
    column = kwargs.get("column")
    bounds = [
        f"{word} {cell_text(kwargs[key], column)}"
        for key, word in (("min_value", "at least"), ("max_value", "at most"))
        if kwargs.get(key) is not None
    ]
    one, many = ROW_NAMES[frame]
    if "mostly" in kwargs:
        is_all = kwargs["mostly"] > 1 - _CERTAIN
        bounds.append(f"every {one}" if is_all else f"at least {share_text(kwargs['mostly'])} of {many}")
    return ", ".join(bounds)


def rows_text(failing: int, whole: int, frame: str) -> str:
    """How many rows meet a check: `all 1,484 windows do`, `35 of 1,484 windows do not`."""
    one, many = ROW_NAMES[frame]
    rows = f"{whole:,} {one if whole == 1 else many}"
    if not whole:
        return f"there is no {one}"
    if not failing:
        return f"the one {one} does" if whole == 1 else f"all {rows} do"
    return f"{failing:,} of {rows} {'does' if failing == 1 else 'do'} not"


def days_text(first: datetime, last: datetime) -> str:
    """The UTC days from the first to the last instant: `8-9 February 2013`."""
    start, end = f"{first.day} {first:%B %Y}", f"{last.day} {last:%B %Y}"
    if first.date() == last.date():
        return end
    if (first.year, first.month) == (last.year, last.month):
        return f"{first.day}-{end}"
    return f"{first.day} {first:%B}-{end}" if first.year == last.year else f"{start}-{end}"
