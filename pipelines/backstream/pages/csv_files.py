"""Write the lists of the pages as CSV files, for spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from backstream.eventtime.instants import SECOND_MS, instant_text, utc_datetime
from backstream.pages.checks import CheckHistory
from backstream.pages.datasets import Dataset
from backstream.pages.days import STATUS_WORDS, CalendarDay, DayStatus
from backstream.text import visible_line
from backstream.workflow.run_state import RunState

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""The first characters that make a spreadsheet compute a cell."""
_MAX_CELL = 10_000
"""The most characters of a cell; a spreadsheet has at most 32,767."""


@dataclass(frozen=True, slots=True)
class CsvFile:
    """A CSV file: its name and its text."""

    name: str
    text: str


def datasets_file(datasets: Iterable[Dataset]) -> CsvFile:
    """Return one row per dataset."""
    statuses = list(DayStatus)
    columns = ["dataset", "verdict", "published_since", "published_until", "last_run", "last_run_ended_at"]
    columns += [f"days_{status.value}" for status in statuses]
    rows = []
    for dataset in datasets:
        published, newest = dataset.published_range, dataset.newest
        rows.append(
            [
                dataset.name,
                dataset.verdict,
                _instant(published.start_ms if published else None),
                _instant(published.end_ms if published else None),
                newest.status.value if newest else "",
                _instant(newest.finished_at_ms if newest else None),
                *(dataset.count(status) for status in statuses),
            ]
        )
    return _file("datasets", columns, rows)


def days_file(name: str, days: Iterable[CalendarDay]) -> CsvFile:
    """Return one row per day of a dataset."""
    figures = ("windows_expected", "windows_present", "events", "on_time", "late", "dropped")
    rows = [
        [
            utc_datetime(day.day_ms).date().isoformat(),
            day.status.value,
            STATUS_WORDS[day.status],
            *(getattr(day.day_totals, figure) if day.day_totals else "" for figure in figures),
            day.run_id or "",
            day.note.reason if day.note else "",
        ]
        for day in days
    ]
    return _file(f"{name}_days", ["day", "status", "meaning", *figures, "run_id", "note"], rows)


def runs_file(runs: Iterable[RunState]) -> CsvFile:
    """Return one row per run."""
    columns = ["dataset", "status", "phase", "verdict", "started_at", "since", "until", "mode", "rows"]
    columns += ["requested_by", "reason", "error", "run"]
    rows = [
        [
            run.dataset,
            run.state.value,
            run.phase,
            run.verdict or "",
            _instant(run.started_ms),
            _instant(run.interval.start_ms if run.interval else None),
            _instant(run.interval.end_ms if run.interval else None),
            run.mode,
            "" if run.rows is None else run.rows,
            run.by,
            run.reason,
            run.error or "",
            run.triggered_by,
        ]
        for run in runs
    ]
    return _file("runs", columns, rows)


def checks_file(name: str, history: Iterable[CheckHistory]) -> CsvFile:
    """Return one row per check and run of a dataset."""
    columns = ["check", "severity", "limit", "run_id", "outcome", "observed", "unexpected_count", "element_count"]
    rows = [
        [
            check.name,
            row.severity,
            row.limit,
            row.run_id,
            row.outcome,
            row.observed,
            row.unexpected_count,
            row.element_count,
        ]
        for check in history
        for row in check.found
        if row
    ]
    return _file(f"{name}_checks", columns, rows)


def _file(name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> CsvFile:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return CsvFile(f"{name}.csv", text.getvalue())


def _cell(value: object) -> object:
    """Return a value that a spreadsheet shows as it is: without hidden characters, and never a formula."""
    if not isinstance(value, str):
        return value
    text = visible_line(value, _MAX_CELL)
    return f"'{text}" if value.startswith(_FORMULA) else text


def _instant(value_ms: int | None) -> str:
    return "" if value_ms is None else instant_text(value_ms // SECOND_MS * SECOND_MS)
