"""The failing rows of a check as people read them: by source partition, windows in a row as one span."""

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
    """Failing rows of one source partition, as texts."""

    source_partition: str
    rows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Failing:
    """One failing window, or several one after the other."""

    since_ms: int | None
    until_ms: int | None
    value: str
    windows: int = 1

    def is_followed_by(self, other: _Failing) -> bool:
        return self.until_ms is not None and self.until_ms == other.since_ms and self.value == other.value

    def with_next(self, other: _Failing) -> _Failing:
        return _Failing(self.since_ms, other.until_ms, self.value, self.windows + other.windows)

    def __str__(self) -> str:
        if self.since_ms is None or self.until_ms is None:
            return self.value
        span = minute_text(self.since_ms)
        if self.windows > 1:
            span = f"{span} to {minute_text(self.until_ms)}"
        parts = [f"{self.windows} windows"] * (self.windows > 1) + [self.value] * bool(self.value)
        return f"{span}: {', '.join(parts)}" if parts else span


def group_failing_rows(check: Check, unit_ms: int) -> tuple[FailingGroup, ...]:
    """The named failing rows of a check, by source partition; windows in a row become one span.

    Args:
        check: one that names rows of windows or of source partitions.
        unit_ms: from the start of one window to that of the next.
    """
    groups: dict[str, list[_Failing]] = {}
    for row in check.failing:
        failing = _failing(row, check.column, unit_ms)
        rows = groups.setdefault(str(row.get("source_partition", "")), [])
        if rows and rows[-1].is_followed_by(failing):
            rows[-1] = rows[-1].with_next(failing)
        else:
            rows.append(failing)
    return tuple(
        FailingGroup(name, tuple(text for text in map(str, rows) if text)) for name, rows in groups.items()
    )


def _failing(row: Mapping[str, Any], column: str | None, unit_ms: int) -> _Failing:
    value = row.get(column) if column else None
    shown = "" if value is None or isinstance(value, bool) else _measure(value)
    since_ms = _start_ms(row)
    return _Failing(since_ms, None if since_ms is None else since_ms + unit_ms, shown)


def _measure(value: Any) -> str:
    """A share in percent, a count with separators, anything else as it is."""
    if isinstance(value, float):
        return share_text(value, 1)
    return count_text(value) if isinstance(value, int) else str(value)


def _start_ms(row: Mapping[str, Any]) -> int | None:
    """When a failing row's window starts; None where it names none."""
    try:
        return instant_ms(str(row["window_start"]), "window_start")
    except (KeyError, SpecError):
        return None
