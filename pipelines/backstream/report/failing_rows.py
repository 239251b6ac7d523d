"""List the failing rows of a check, with adjacent windows of equal values joined to ranges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from backstream.errors import SpecError
from backstream.eventtime.instants import instant_ms, instant_text
from backstream.formatting import minute_text
from backstream.runs.dag_names import BACKFILL, dag_id_of
from backstream.runs.results import Audit, Check, CheckOutcome
from backstream.text import visible_line

_MAX_ROWS = 10
"""The maximum number of failing rows of a check that people see."""
_MAX_TEXT = 1_000
_TEXTS = ("expected", "found", "command")


@dataclass(frozen=True, slots=True)
class FailingRow:
    """A failing window, day, chunk, record, or file, or a range of adjacent windows with equal values.

    `command` shows the published rows of the day, for a range that of its first window; empty for a file.
    `dataset` is its name, empty without a page of the records.
    """

    names: str
    since_ms: int | None
    until_ms: int | None
    expected: str
    found: str
    command: str
    windows: int = 1
    dataset: str = ""

    @property
    def place(self) -> str:
        """Return the names and the range in UTC, e.g., `JFK 2013-02-08 20:00 to 2013-02-08 22:00, 2 windows`."""
        if self.since_ms is None or self.until_ms is None:
            return self.names
        span = minute_text(self.since_ms)
        if self.windows > 1:
            span = f"{span} to {minute_text(self.until_ms)}, {self.windows} windows"
        return f"{self.names} {span}".strip()

    @property
    def explain_query(self) -> str:
        """Return the query of the page that lists the rows and records of the first window; empty without one."""
        if self.since_ms is None or not self.dataset:
            return ""
        return urlencode({"dag_id": dag_id_of(BACKFILL, self.dataset), "window": instant_text(self.since_ms)})

    def is_followed_by(self, other: FailingRow) -> bool:
        """Return whether another row is the next window with equal values."""
        is_same = (self.names, self.expected, self.found) == (other.names, other.expected, other.found)
        return is_same and self.until_ms is not None and self.until_ms == other.since_ms

    def __str__(self) -> str:
        """Return one line: the place, and both values."""
        values = f"expected {self.expected}, found {self.found}" if self.expected or self.found else ""
        return visible_line(": ".join(part for part in (self.place, values) if part))


def list_failing_rows(check: Check, unit_ms: int, dataset: str = "") -> tuple[FailingRow, ...]:
    """Return the first failing rows of a check; adjacent windows with equal values become one row.

    Args:
        check: a check.
        unit_ms: the distance of two window starts.
        dataset: its name, for the address of the page with the records.
    """
    rows: list[FailingRow] = []
    last: dict[str, int] = {}
    for values in check.failing:
        row = replace(_failing_row(values, check.column, unit_ms), dataset=dataset)
        at = last.get(row.names)
        if at is not None and rows[at].is_followed_by(row):
            rows[at] = replace(rows[at], until_ms=row.until_ms, windows=rows[at].windows + 1)
            continue
        last[row.names] = len(rows)
        rows.append(row)
    return tuple(rows[:_MAX_ROWS])


def failing_lines(audit: Audit, unit_ms: int, dataset: str = "", server: str = "") -> Iterator[str]:
    """Yield a line per failed check, and an indented line per failing row, for short messages.

    A row has its command, and the address of the page with its records if the dataset and the server are given.
    """
    for check in audit.checks:
        if check.outcome in (CheckOutcome.PASS, CheckOutcome.INFO):
            continue
        yield f"{check.outcome}: {visible_line(check.name)}: {visible_line(check.observed, _MAX_TEXT)}"
        for row in list_failing_rows(check, unit_ms, dataset):
            address = f"  {server}/backstream/explain?{row.explain_query}" if server and row.explain_query else ""
            yield f"  {row}" + (f"  ({row.command})" if row.command else "") + address


def _failing_row(values: Mapping[str, Any], column: str | None, unit_ms: int) -> FailingRow:
    since_ms = _start_ms(values)
    hidden = {column, *_TEXTS} | ({"window_start"} if since_ms is not None else set())
    names = " ".join(_name_text(name, value) for name, value in values.items() if name not in hidden)
    until_ms = None if since_ms is None else since_ms + unit_ms
    expected, found, command = (str(values.get(name, "")) for name in _TEXTS)
    return FailingRow(names, since_ms, until_ms, expected, found, command)


def _name_text(name: str, value: Any) -> str:
    """Return a value, with its name if the value alone is not clear."""
    return f"{name} {value}" if name in ("chunk", "since", "until", "sequence", "record") else str(value)


def _start_ms(row: Mapping[str, Any]) -> int | None:
    """Return the window start of a failing row; None for a row without a window."""
    try:
        return instant_ms(str(row["window_start"]), "window_start")
    except (KeyError, SpecError):
        return None
