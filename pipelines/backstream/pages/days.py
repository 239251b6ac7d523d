"""Compute the status of each UTC day of a dataset.

Consecutive days with the same state are one span, so the cost depends on the number of runs and issues, and not on
the number of days.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from backstream.eventtime.instants import DAY_MS, utc_datetime
from backstream.eventtime.intervals import Interval
from backstream.formatting import count_of, share_text
from backstream.lake.ledger import RunRow
from backstream.runs.allowed_ranges import round_to_days
from backstream.runs.dataset_state import DatasetState, DayIssue, DayTotals
from backstream.runs.results import Verdict, list_undone, undone_run_id
from backstream.runs.status import RunStatus

DayTotalsOf = Callable[[str], Mapping[int, DayTotals]]
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


class DaySpan(NamedTuple):
    """Consecutive days with the same state; `run_id` is the run that published their current rows.

    `verdict` is that of these rows. `rejected` is a newer run that published nothing; the days keep the status of
    their published rows. A span with a note is one day.
    """

    interval: Interval
    status: DayStatus
    run_id: str | None
    note: DayIssue | None
    rejected: str | None
    verdict: DayStatus | None

    @property
    def days(self) -> range:
        """The starts of the days in ms."""
        return range(self.interval.start_ms, self.interval.end_ms, DAY_MS)


class CalendarDay(NamedTuple):
    """One day of a span, with the totals of its run."""

    day_ms: int
    status: DayStatus
    run_id: str | None
    day_totals: DayTotals | None
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


def find_day_spans(
    runs: Sequence[RunRow], day_totals: DayTotalsOf, seen: DatasetState | None, running: Iterable[Interval] = ()
) -> list[DaySpan]:
    """Return the days of the history in order, and the days of runs.

    The history covers the published days and the days from the first to the last event of the source. A run that
    published nothing adds only its own days: no day before or after them becomes missing.

    Args:
        runs: rows of the dataset in the ledger, newest first.
        day_totals: totals of a run by day; called only for the runs whose verdict is not `pass`.
        seen: newest scan of the source.
        running: ranges of the runs in progress.
    """
    parts = _split_by_run(runs)
    published = [part for part in parts if part.publisher]
    history = _history(seen, published)
    gaps, busy = _gaps(seen, published), [round_to_days(interval) for interval in running]
    issues = _issues_by_day(seen)
    publishers = {part.publisher.run_id: part.publisher for part in parts if part.publisher}
    problems = {run_id: _problem_days(row, day_totals) for run_id, row in publishers.items()}
    days = {*issues, *(day_ms for found in problems.values() for day_ms in found or ())}
    spans = []
    for part in _cut(parts, [*busy, history, gaps, *(Interval(day_ms, day_ms + DAY_MS) for day_ms in days)]):
        day_ms, row, failure = part.interval.start_ms, part.publisher, part.failure
        is_known = row is not None or history.start_ms <= day_ms < history.end_ms
        is_failed = failure is not None and (is_known or _is_newer(failure, seen))
        is_busy = any(interval.start_ms <= day_ms < interval.end_ms for interval in busy)
        if not (is_known or is_failed or is_busy):
            continue
        issue = _current_issue(issues.get(day_ms), row, seen)
        verdict = _verdict(day_ms, row, problems) if row else None
        status = verdict or _unpublished_status(day_ms, gaps, issue, is_failed=is_failed)
        if verdict and issue and issue.kind == "stale":
            status = DayStatus.STALE
        spans.append(
            DaySpan(
                part.interval,
                DayStatus.RUNNING if is_busy else status,
                row.run_id if row else None,
                issue,
                failure.run_id if row and failure else None,
                verdict,
            )
        )
    return spans


def calendar_days(spans: Iterable[DaySpan], day_totals: DayTotalsOf) -> Iterator[CalendarDay]:
    """Yield the days of spans, in order, with the totals of the runs that published them."""
    for span in spans:
        totals = day_totals(span.run_id) if span.run_id else {}
        for day_ms in span.days:
            yield CalendarDay(
                day_ms, span.status, span.run_id, totals.get(day_ms), span.note, span.rejected, span.verdict
            )


def consecutive_days(spans: Sequence[DaySpan], statuses: Iterable[DayStatus]) -> list[DayRange]:
    """Return the ranges of consecutive days with one of these statuses, newest first."""
    wanted = set(statuses)
    groups: list[list[DaySpan]] = []
    for span in spans:
        if span.status not in wanted:
            continue
        if groups and _is_next(groups[-1][-1], span):
            groups[-1].append(span)
        else:
            groups.append([span])
    return [_day_range(group) for group in reversed(groups)]


def _is_next(before: DaySpan, span: DaySpan) -> bool:
    return before.status is span.status and before.interval.end_ms == span.interval.start_ms


def runs_covering(runs: Sequence[RunRow], day_ms: int) -> list[RunRow]:
    """Return the runs whose range includes a day, newest first, published or not."""
    return [row for row in runs if row.since_ms < day_ms + DAY_MS and day_ms < row.until_ms]


def _day_range(spans: Sequence[DaySpan]) -> DayRange:
    notes = dict.fromkeys(span.note.reason for span in spans if span.note and span.note.reason)
    return DayRange(spans[0].status, Interval(spans[0].interval.start_ms, spans[-1].interval.end_ms), tuple(notes))


class _Part(NamedTuple):
    """Consecutive days with the same runs: that of the current rows, and a newer one that published nothing."""

    interval: Interval
    publisher: RunRow | None
    failure: RunRow | None


def _split_by_run(runs: Sequence[RunRow]) -> list[_Part]:
    """Return the time of all runs, in parts with the same runs, in order of time."""
    undone = list_undone(row.run_id for row in runs)
    counted = [row for row in reversed(runs) if row.run_id not in undone and not undone_run_id(row.run_id)]
    ranges = [round_to_days(Interval(row.since_ms, row.until_ms)) for row in counted]
    edges = sorted({edge for each in ranges for edge in (each.start_ms, each.end_ms)})
    publishers: list[RunRow | None] = [None] * len(edges)
    failures: list[RunRow | None] = [None] * len(edges)
    for row, each in zip(counted, ranges, strict=True):
        covered = slice(bisect_left(edges, each.start_ms), bisect_left(edges, each.end_ms))
        count = covered.stop - covered.start
        if row.status is RunStatus.PUBLISHED:
            publishers[covered] = [row] * count
            failures[covered] = [None] * count
        else:
            failures[covered] = [row] * count
    intervals = (Interval(start_ms, end_ms) for start_ms, end_ms in pairwise(edges))
    # The last edge begins no part.
    return [_Part(*part) for part in zip(intervals, publishers[:-1], failures[:-1], strict=True)]


def _cut(parts: Sequence[_Part], intervals: Iterable[Interval]) -> Iterator[_Part]:
    """Yield all time between the first and the last edge, cut at the edges of parts and of intervals."""
    ends = {edge for each in intervals for edge in (each.start_ms, each.end_ms)}
    edges = sorted(ends.union(*((part.interval.start_ms, part.interval.end_ms) for part in parts)))
    following = iter([*parts, None])
    part = next(following)
    for start_ms, end_ms in pairwise(edges):
        while part and part.interval.end_ms <= start_ms:
            part = next(following)
        is_covered = part is not None and part.interval.start_ms <= start_ms
        yield _Part(
            Interval(start_ms, end_ms),
            part.publisher if part and is_covered else None,
            part.failure if part and is_covered else None,
        )


def _problem_days(row: RunRow, day_totals: DayTotalsOf) -> set[int] | None:
    """Return the days that caused a verdict below pass; None for all days, if no single day is the cause."""
    if row.verdict in (None, Verdict.PASS):
        return set()
    return {day_ms for day_ms, day in day_totals(row.run_id).items() if day.problem_windows} or None


def _verdict(day_ms: int, row: RunRow, problems: Mapping[str, set[int] | None]) -> DayStatus:
    """Return the verdict of the published rows of a day: that of their run, if the day is a reason for it."""
    days = problems[row.run_id]
    if days is not None and day_ms not in days:
        return DayStatus.PASS
    return DayStatus.WARN if row.verdict is Verdict.WARN else DayStatus.FAIL


def _gaps(seen: DatasetState | None, published: Sequence[_Part]) -> Interval:
    """Return the time in which an unpublished day is missing: between the first and the last published day.

    If the definition uses seals, it lasts to the last day with events: a sealed day there is due.
    """
    if not published:
        return Interval(0, 0)
    last_ms = published[-1].interval.end_ms
    if seen and seen.unsealed is not None and seen.end_day_ms is not None:
        last_ms = max(last_ms, seen.end_day_ms)
    return Interval(published[0].interval.start_ms, last_ms)


def _unpublished_status(day_ms: int, gaps: Interval, issue: DayIssue | None, *, is_failed: bool) -> DayStatus:
    """Return the status of a day without published rows; `gaps` is the time in which such a day is missing."""
    if is_failed:
        return DayStatus.FAILED
    if issue and issue.kind == "open":
        return DayStatus.OPEN
    return DayStatus.MISSING if gaps.start_ms <= day_ms < gaps.end_ms else DayStatus.UNPUBLISHED


def _issues_by_day(seen: DatasetState | None) -> dict[int, DayIssue]:
    """Return the issue of each day; `stale` takes precedence over `open`."""
    return {issue.day_ms: issue for issue in (*(seen.unsealed or ()), *seen.stale)} if seen else {}


def _current_issue(issue: DayIssue | None, row: RunRow | None, seen: DatasetState | None) -> DayIssue | None:
    """Return an issue of a day; None if the run with its rows was planned after the scan that found the issue."""
    return None if row and seen and row.started_at_ms > seen.at_ms else issue


def _is_newer(row: RunRow, seen: DatasetState | None) -> bool:
    """Return whether a run ended after the newest scan, which therefore did not include its events."""
    return seen is None or row.finished_at_ms > seen.at_ms


def _history(seen: DatasetState | None, published: Sequence[_Part]) -> Interval:
    """Return the days from the first to the last event, or published day if there was no scan."""
    if seen and seen.span:
        return round_to_days(seen.span)
    if published:
        return Interval(published[0].interval.start_ms, published[-1].interval.end_ms)
    return Interval(0, 0)


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


def describe_day(day: CalendarDay) -> str:
    """Return status and counts of a day: `published, warning, 37 of 54 windows, 1.2 % late or dropped`."""
    parts = [STATUS_WORDS[day.status]]
    if totals := day.day_totals:
        parts.append(f"{totals.windows_present:,} of {count_of(totals.windows_expected, 'window')}")
        if totals.late or totals.dropped:
            parts.append(f"{share_text(totals.late + totals.dropped, totals.events)} late or dropped")
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
