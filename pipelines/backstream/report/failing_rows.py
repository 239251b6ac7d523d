"""Group the failing rows of a check by source partition, and join adjacent windows to ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backstream.errors import SpecError
from backstream.eventtime.instants import instant_ms
from backstream.report.formatting import count_text, minute_text, share_text
from backstream.runs.results import Check


@dataclass(frozen=True, slots=True)
class FailingGroup:
    """Failing rows of one source partition as texts."""

    source_partition: str
    rows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _FailingRange:
    """One failing window, or a range of adjacent ones with the same value."""

    since_ms: int | None
    until_ms: int | None
    value: str
    windows: int = 1

    def is_followed_by(self, other: _FailingRange) -> bool:
        return self.until_ms is not None and self.until_ms == other.since_ms and self.value == other.value

    def joined_with(self, other: _FailingRange) -> _FailingRange:
        return _FailingRange(self.since_ms, other.until_ms, self.value, self.windows + other.windows)

    def __str__(self) -> str:
        if self.since_ms is None or self.until_ms is None:
            return self.value
        span = minute_text(self.since_ms)
        if self.windows > 1:
            span = f"{span} to {minute_text(self.until_ms)}"
        parts = [f"{self.windows} windows"] * (self.windows > 1) + [self.value] * bool(self.value)
        return f"{span}: {', '.join(parts)}" if parts else span


def group_failing_rows(check: Check, unit_ms: int) -> tuple[FailingGroup, ...]:
    """Return the failing rows of a check by source partition; adjacent windows become one range.

    Args:
        check: check whose failing rows are windows or source partitions.
        unit_ms: distance of two window starts.
    """
    groups: dict[str, list[_FailingRange]] = {}
    for row in check.failing:
        failing = _failing_range(row, check.column, unit_ms)
        rows = groups.setdefault(str(row.get("source_partition", "")), [])
        if rows and rows[-1].is_followed_by(failing):
            rows[-1] = rows[-1].joined_with(failing)
        else:
            rows.append(failing)
    return tuple(
        FailingGroup(name, tuple(text for text in map(str, rows) if text)) for name, rows in groups.items()
    )


def _failing_range(row: Mapping[str, Any], column: str | None, unit_ms: int) -> _FailingRange:
    value = row.get(column) if column else None
    text = "" if value is None or isinstance(value, bool) else _value_text(value)
    since_ms = _start_ms(row)
    return _FailingRange(since_ms, None if since_ms is None else since_ms + unit_ms, text)


def _value_text(value: Any) -> str:
    """Return a share in percent, a count with separators, any other value as `str`."""
    if isinstance(value, float):
        return share_text(value, 1)
    return count_text(value) if isinstance(value, int) else str(value)


def _start_ms(row: Mapping[str, Any]) -> int | None:
    """Return the window start of a failing row; None for a row without a window."""
    try:
        return instant_ms(str(row["window_start"]), "window_start")
    except (KeyError, SpecError):
        return None
