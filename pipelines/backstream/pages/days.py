"""Compute the status of each UTC day of a dataset, and draw the days as a calendar."""

from __future__ import annotations

import calendar
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple
from urllib.parse import urlencode

from markupsafe import Markup, escape

from backstream.eventtime.instants import DAY_MS, utc_datetime
from backstream.eventtime.intervals import Interval
from backstream.lake.ledger import RunRow
from backstream.report.formatting import count_of, share_text
from backstream.runs.dataset_state import DatasetState, DayIssue, DayTotals
from backstream.runs.results import Verdict, undone_run_id
from backstream.runs.status import RunStatus

FiguresOf = Callable[[str], Mapping[int, DayTotals]]
"""Function from a run id to the totals of the run by day."""


class DayStatus(StrEnum):
    """Status of a day; if several apply, the first one in this order."""

    RUNNING = "running"
    FAILED = "failed"
    """No run has published the day, and the newest one published nothing."""
    STALE = "stale"
    """Input files changed after publication."""
    FAIL = "fail"
    """Published with an override, although the verdict was fail."""
    WARN = "warn"
    PASS = "pass"  # noqa: S105 - a verdict, not a password
    OPEN = "open"
    """Not published; more events can arrive."""
    MISSING = "missing"
    """Not published; the day is between published days, or after the last one and sealed."""
    UNPUBLISHED = "unpublished"
    """Not published; the day has events, and is before the first or after the last published day."""


class CalendarDay(NamedTuple):
    """One day; `run_id` is the run that published its current rows, and `verdict` is that of these rows.

    `rejected` is a newer run that published nothing; the day keeps the status of its published rows.
    """

    day_ms: int
    status: DayStatus
    run_id: str | None
    figures: DayTotals | None
    note: DayIssue | None
    rejected: str | None = None
    verdict: DayStatus | None = None


@dataclass(frozen=True, slots=True)
class DayRange:
    """Consecutive days with the same status."""

    status: DayStatus
    interval: Interval
    notes: tuple[str, ...]

    @property
    def days(self) -> int:
        """Number of days."""
        return (self.interval.end_ms - self.interval.start_ms) // DAY_MS


def calendar_days(
    runs: Sequence[RunRow], figures: FiguresOf, seen: DatasetState | None, running: Iterable[Interval] = ()
) -> list[CalendarDay]:
    """Return the days of the history in order, and the days of runs.

    The history covers the published days and the days from the first to the last event of the source. A run that
    published nothing adds only its own days: no day before or after them becomes missing.

    Args:
        runs: rows of the dataset in the ledger, newest first.
        figures: totals of a run by day.
        seen: newest scan of the source.
        running: ranges of the runs in progress.
    """
    published, failures = _split_by_day(runs)
    busy = {day_ms for interval in running for day_ms in _days(interval)}
    history = {*published, *_days_of_events(seen, published)}
    failed = {day_ms for day_ms, row in failures.items() if day_ms in history or _is_newer(row, seen)}
    issues, gaps = _issues_by_day(seen), _gaps(seen, published)
    publishers = {row.run_id: row for row in published.values()}
    totals = {run_id: figures(run_id) for run_id in publishers}
    problems = {run_id: _problem_days(row, totals[run_id]) for run_id, row in publishers.items()}
    days = []
    for day_ms in sorted({*history, *failed, *busy}):
        row, failure = published.get(day_ms), failures.get(day_ms)
        issue = _current_issue(issues.get(day_ms), row, seen)
        verdict = _verdict(day_ms, row, problems) if row else None
        status = verdict or _unpublished_status(day_ms, gaps, issue, is_failed=day_ms in failed)
        if verdict and issue and issue.kind == "stale":
            status = DayStatus.STALE
        days.append(
            CalendarDay(
                day_ms,
                DayStatus.RUNNING if day_ms in busy else status,
                row.run_id if row else None,
                totals[row.run_id].get(day_ms) if row else None,
                issue,
                failure.run_id if row and failure else None,
                verdict,
            )
        )
    return days


def consecutive_days(days: Sequence[CalendarDay], statuses: Iterable[DayStatus]) -> list[DayRange]:
    """Return the ranges of consecutive days with one of these statuses, newest first."""
    wanted = set(statuses)
    groups: list[list[CalendarDay]] = []
    for before, day in pairwise([None, *days]):
        if day is None or day.status not in wanted:
            continue
        if groups and before and groups[-1][-1] is before and _is_next(before, day):
            groups[-1].append(day)
        else:
            groups.append([day])
    return [_day_range(group) for group in reversed(groups)]


def _is_next(before: CalendarDay, day: CalendarDay) -> bool:
    return before.status is day.status and before.day_ms + DAY_MS == day.day_ms


def runs_covering(runs: Sequence[RunRow], day_ms: int) -> list[RunRow]:
    """Return the runs whose range includes a day, newest first, published or not."""
    return [row for row in runs if row.since_ms < day_ms + DAY_MS and day_ms < row.until_ms]


def _day_range(days: Sequence[CalendarDay]) -> DayRange:
    notes = dict.fromkeys(day.note.reason for day in days if day.note and day.note.reason)
    return DayRange(days[0].status, Interval(days[0].day_ms, days[-1].day_ms + DAY_MS), tuple(notes))


def _split_by_day(runs: Sequence[RunRow]) -> tuple[dict[int, RunRow], dict[int, RunRow]]:
    """Return, by day, the run with the current rows, and a newer run that published nothing."""
    undone = {run_id for row in runs if (run_id := undone_run_id(row.run_id))}
    published: dict[int, RunRow] = {}
    failures: dict[int, RunRow] = {}
    for row in reversed(runs):
        if undone_run_id(row.run_id) or row.run_id in undone:
            continue
        for day_ms in _days(Interval(row.since_ms, row.until_ms)):
            if row.status is RunStatus.PUBLISHED:
                published[day_ms] = row
                failures.pop(day_ms, None)
            else:
                failures[day_ms] = row
    return published, failures


def _problem_days(row: RunRow, totals: Mapping[int, DayTotals]) -> set[int] | None:
    """Return the days that caused a verdict below pass; None for all days, if no single day is the cause."""
    if row.verdict in (None, Verdict.PASS):
        return set()
    return {day_ms for day_ms, day in totals.items() if day.problem_windows} or None


def _verdict(day_ms: int, row: RunRow, problems: Mapping[str, set[int] | None]) -> DayStatus:
    """Return the verdict of the published rows of a day: that of their run, if the day is a reason for it."""
    days = problems[row.run_id]
    if days is not None and day_ms not in days:
        return DayStatus.PASS
    return DayStatus.WARN if row.verdict is Verdict.WARN else DayStatus.FAIL


def _gaps(seen: DatasetState | None, published: Collection[int]) -> Interval:
    """Return the time in which an unpublished day is missing: between the first and the last published day.

    If the definition uses seals, it lasts to the last day with events: a sealed day there is due.
    """
    if not published:
        return Interval(0, 0)
    last_ms = max(published)
    if seen and seen.unsealed is not None and seen.end_day_ms is not None:
        last_ms = max(last_ms, seen.end_day_ms)
    return Interval(min(published), last_ms)


def _unpublished_status(day_ms: int, gaps: Interval, issue: DayIssue | None, *, is_failed: bool) -> DayStatus:
    """Return the status of a day without published rows; `gaps` is the time in which such a day is missing."""
    if is_failed:
        return DayStatus.FAILED
    if issue and issue.kind == "open":
        return DayStatus.OPEN
    return DayStatus.MISSING if gaps.start_ms < day_ms < gaps.end_ms else DayStatus.UNPUBLISHED


def _issues_by_day(seen: DatasetState | None) -> dict[int, DayIssue]:
    """Return the issue of each day; `stale` takes precedence over `open`."""
    return {issue.day_ms: issue for issue in (*(seen.unsealed or ()), *seen.stale)} if seen else {}


def _current_issue(issue: DayIssue | None, row: RunRow | None, seen: DatasetState | None) -> DayIssue | None:
    """Return an issue of a day; None if the run with its rows was planned after the scan that found the issue."""
    return None if row and seen and row.started_at_ms > seen.at_ms else issue


def _is_newer(row: RunRow, seen: DatasetState | None) -> bool:
    """Return whether a run ended after the newest scan, which therefore did not include its events."""
    return seen is None or row.finished_at_ms > seen.at_ms


def _days_of_events(seen: DatasetState | None, published: Collection[int]) -> Iterator[int]:
    """Yield the days from the first to the last event, or published day if there was no scan."""
    if seen and seen.span:
        yield from _days(seen.span)
    elif published:
        yield from _days(Interval(min(published), max(published) + DAY_MS))


def _days(interval: Interval) -> Iterator[int]:
    yield from range(interval.start_ms // DAY_MS * DAY_MS, interval.end_ms, DAY_MS)


STATUS_WORDS = {
    DayStatus.RUNNING: "running",
    DayStatus.FAILED: "not published, last run failed",
    DayStatus.STALE: "stale",
    DayStatus.FAIL: "published with override",
    DayStatus.WARN: "published, warning",
    DayStatus.PASS: "published, pass",
    DayStatus.OPEN: "open",
    DayStatus.MISSING: "missing",
    DayStatus.UNPUBLISHED: "not published yet",
}
_LINK = Markup('<td><a class="day s-{}" href="{}&amp;day={}" title="{}"></a></td>')
_NO_DAY = Markup("<td></td>")
_MAX_MONTH_DAYS = 31


@dataclass(frozen=True, slots=True)
class Month:
    """A row of the calendar: name and 31 cells."""

    name: str
    cells: Markup


@dataclass(frozen=True, slots=True)
class Year:
    """A year of the calendar."""

    year: int
    months: tuple[Month, ...]


def calendar_years(days: Sequence[CalendarDay], dag_id: str) -> list[Year]:
    """Return the calendar, newest year first; years without days are omitted."""
    base = escape("day?" + urlencode({"dag_id": dag_id}))
    cells: dict[tuple[int, int], dict[int, Markup]] = {}
    for day in days:
        at = utc_datetime(day.day_ms)
        iso = f"{at.year:04d}-{at.month:02d}-{at.day:02d}"
        cell = _LINK.format(day.status.value, base, iso, f"{at.day} {at:%b %Y}: {describe_day(day)}")
        cells.setdefault((at.year, at.month), {})[at.day] = cell
    years: dict[int, list[Month]] = {}
    for (year, month), month_cells in sorted(cells.items()):
        row = Markup("").join(month_cells.get(number, _NO_DAY) for number in range(1, _MAX_MONTH_DAYS + 1))
        years.setdefault(year, []).append(Month(calendar.month_abbr[month], row))
    return [Year(year, tuple(months)) for year, months in sorted(years.items(), reverse=True)]


def describe_day(day: CalendarDay) -> str:
    """Return status and counts of a day: `published, warning, 37 of 54 windows, 1.2 % late or dropped`."""
    parts = [STATUS_WORDS[day.status]]
    if day.figures:
        parts.append(f"{day.figures.windows_present:,} of {count_of(day.figures.windows_expected, 'window')}")
        if day.figures.late or day.figures.dropped:
            parts.append(
                f"{share_text(day.figures.late + day.figures.dropped, day.figures.events)} late or dropped"
            )
    if day.note and day.note.windows:
        parts.append(f"{count_of(day.note.windows, 'window')} stale")
    if day.rejected:
        parts.append("a newer run published nothing")
    return ", ".join(parts)


def day_span(since_ms: int, until_ms: int) -> str:
    """Return the first and the last day of a half-open range: `8 Feb 2013`, `8 Feb to 10 Feb 2013`."""
    first, last = utc_datetime(since_ms), utc_datetime(until_ms - DAY_MS)
    if first == last:
        return f"{first.day} {first:%b %Y}"
    begin = f"{first.day} {first:%b}" if first.year == last.year else f"{first.day} {first:%b %Y}"
    return f"{begin} to {last.day} {last:%b %Y}"
