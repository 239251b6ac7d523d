"""What became of each UTC day of a dataset: one status per day, and whose rows are in the table."""

from __future__ import annotations

import calendar
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from urllib.parse import urlencode

from markupsafe import Markup, escape

from backstream.eventtime.instants import DAY_MS, utc_datetime
from backstream.eventtime.intervals import Interval
from backstream.lake.ledger import RunRow, Status
from backstream.report.formatting import count_of, share_text
from backstream.runs.dataset_state import DatasetState, DayIssue, DayTotals
from backstream.runs.results import Verdict, undone_run_id

_PUBLISHED = (Status.PUBLISHED, Status.ALREADY_PUBLISHED)

FiguresOf = Callable[[str], Mapping[int, DayTotals]]
"""Run id to what it counted, by day."""


class DayStatus(StrEnum):
    """What is to be known of a day first; the earlier one wins where several are true."""

    RUNNING = "running"
    FAILED = "failed"
    """The newest run over the day published nothing."""
    STALE = "stale"
    """Published, and input files have changed since."""
    FAIL = "fail"
    """Published although the verdict was fail."""
    WARN = "warn"
    PASS = "pass"  # noqa: S105 - a verdict, not a password
    OPEN = "open"
    """Not published, and may still gain events."""
    MISSING = "missing"
    """Lies between the first event and the last, and no run has published it."""


@dataclass(frozen=True, slots=True)
class CalendarDay:
    """One day; `run_id` made the rows that are in the table."""

    day_ms: int
    status: DayStatus
    run_id: str | None
    figures: DayTotals | None
    note: DayIssue | None


@dataclass(frozen=True, slots=True)
class DayRange:
    """Days of one status that follow one another."""

    status: DayStatus
    interval: Interval
    notes: tuple[str, ...]

    @property
    def days(self) -> int:
        """How many."""
        return (self.interval.end_ms - self.interval.start_ms) // DAY_MS


def calendar_days(
    runs: Sequence[RunRow], figures: FiguresOf, seen: DatasetState | None, running: Iterable[Interval] = ()
) -> list[CalendarDay]:
    """Every day that is published or has events or lies between such days, and those of runs, in order.

    The dataset's history is what is published and what the source holds: a run that published nothing marks its
    own days, and none before or after them is missing for it.

    Args:
        runs: the ledger's rows of the dataset, newest first.
        figures: what a run counted.
        seen: the newest look at the source.
        running: the ranges of runs that are under way.
    """
    claims, tried = _claims(runs)
    busy = {day_ms for interval in running for day_ms in _days(interval)}
    history = {*claims, *_days_of_events(seen, claims)}
    tries = {day_ms for day_ms, row in tried.items() if day_ms in history or _is_newer(row, seen)}
    known = sorted({*history, *tries, *busy})
    notes = _notes(seen)
    publishers = {row.run_id: row for row in claims.values()}
    counted = {run_id: figures(run_id) for run_id in publishers}
    marked = {run_id: _marked(row, counted[run_id]) for run_id, row in publishers.items()}
    return [
        CalendarDay(
            day_ms,
            _status(day_ms, claims.get(day_ms), marked, day_ms in tries, day_ms in busy, notes.get(day_ms)),
            claims[day_ms].run_id if day_ms in claims else None,
            counted[claims[day_ms].run_id].get(day_ms) if day_ms in claims else None,
            notes.get(day_ms),
        )
        for day_ms in known
    ]


def consecutive_days(days: Sequence[CalendarDay], statuses: Iterable[DayStatus]) -> list[DayRange]:
    """Days of these statuses, joined where they follow one another; the newest first."""
    wanted = set(statuses)
    found: list[list[CalendarDay]] = []
    for before, day in pairwise([None, *days]):
        if day is None or day.status not in wanted:
            continue
        if found and before and found[-1][-1] is before and _is_next(before, day):
            found[-1].append(day)
        else:
            found.append([day])
    return [_stretch(each) for each in reversed(found)]


def _is_next(before: CalendarDay, day: CalendarDay) -> bool:
    return before.status is day.status and before.day_ms + DAY_MS == day.day_ms


def runs_covering(runs: Sequence[RunRow], day_ms: int) -> list[RunRow]:
    """The rows of the ledger whose range holds a day, newest first: its revisions and what was tried."""
    return [row for row in runs if row.since_ms < day_ms + DAY_MS and day_ms < row.until_ms]


def _stretch(days: Sequence[CalendarDay]) -> DayRange:
    notes = dict.fromkeys(day.note.reason for day in days if day.note and day.note.reason)
    return DayRange(days[0].status, Interval(days[0].day_ms, days[-1].day_ms + DAY_MS), tuple(notes))


def _claims(runs: Sequence[RunRow]) -> tuple[dict[int, RunRow], dict[int, RunRow]]:
    """By day, whose rows are in the table; and by day the newer run that published nothing."""
    undone = {found for row in runs if (found := undone_run_id(row.run_id))}
    claims: dict[int, RunRow] = {}
    tries: dict[int, RunRow] = {}
    for row in reversed(runs):
        if undone_run_id(row.run_id) or row.run_id in undone:
            continue
        for day_ms in _days(Interval(row.since_ms, row.until_ms)):
            if row.status in _PUBLISHED:
                claims[day_ms] = row
                tries.pop(day_ms, None)
            else:
                tries[day_ms] = row
    return claims, tries


def _marked(row: RunRow, figures: Mapping[int, DayTotals]) -> set[int] | None:
    """The days that a verdict below pass is about; None: all, since no day alone is the reason."""
    if row.verdict in (None, Verdict.PASS):
        return set()
    return {day_ms for day_ms, found in figures.items() if found.problem_windows} or None


def _status(
    day_ms: int,
    claim: RunRow | None,
    marked: Mapping[str, set[int] | None],
    is_tried: bool,
    is_busy: bool,
    note: DayIssue | None,
) -> DayStatus:
    if is_busy:
        return DayStatus.RUNNING
    if is_tried:
        return DayStatus.FAILED
    if claim is None:
        return DayStatus.OPEN if note and note.kind == "open" else DayStatus.MISSING
    if note and note.kind == "stale":
        return DayStatus.STALE
    days = marked[claim.run_id]
    if days is not None and day_ms not in days:
        return DayStatus.PASS
    return DayStatus.WARN if claim.verdict is Verdict.WARN else DayStatus.FAIL


def _notes(seen: DatasetState | None) -> dict[int, DayIssue]:
    """By day; that it is stale matters more than that it may gain events."""
    return {note.day_ms: note for note in (*(seen.unsealed or ()), *seen.stale)} if seen else {}


def _is_newer(row: RunRow, seen: DatasetState | None) -> bool:
    """Whether a run ended after the newest look, which then cannot know whether its days have events."""
    return seen is None or row.finished_at_ms > seen.at_ms


def _days_of_events(seen: DatasetState | None, published: Collection[int]) -> Iterator[int]:
    """From the first event to the last; as long as nobody has looked, from the first published day to the last."""
    if seen and seen.span:
        yield from _days(seen.span)
    elif published:
        yield from _days(Interval(min(published), max(published) + DAY_MS))


def _days(interval: Interval) -> Iterator[int]:
    yield from range(interval.start_ms // DAY_MS * DAY_MS, interval.end_ms, DAY_MS)


STATUS_WORDS = {
    DayStatus.RUNNING: "being computed",
    DayStatus.FAILED: "last run published nothing",
    DayStatus.STALE: "stale",
    DayStatus.FAIL: "published in spite of fail",
    DayStatus.WARN: "published, warning",
    DayStatus.PASS: "published, pass",
    DayStatus.OPEN: "open",
    DayStatus.MISSING: "missing",
}
_LINK = Markup('<td><a class="day s-{}" href="{}&amp;day={}" title="{}"></a></td>')
_NO_DAY = Markup("<td></td>")
_LONGEST_MONTH = 31


@dataclass(frozen=True, slots=True)
class Month:
    """A row of the table: its name, and 31 cells."""

    name: str
    cells: Markup


@dataclass(frozen=True, slots=True)
class Year:
    """A table of months; years without a known day are left out."""

    year: int
    months: tuple[Month, ...]


def calendar_years(days: Sequence[CalendarDay], dag_id: str) -> list[Year]:
    """The days as tables, the newest year first."""
    base = escape("day?" + urlencode({"dag_id": dag_id}))
    cells: dict[tuple[int, int], dict[int, Markup]] = {}
    for day in days:
        at = utc_datetime(day.day_ms)
        iso = f"{at.year:04d}-{at.month:02d}-{at.day:02d}"
        cell = _LINK.format(day.status.value, base, iso, f"{at.day} {at:%b %Y}: {describe_day(day)}")
        cells.setdefault((at.year, at.month), {})[at.day] = cell
    found: dict[int, list[Month]] = {}
    for (year, month), of_month in sorted(cells.items()):
        row = Markup("").join(of_month.get(number, _NO_DAY) for number in range(1, _LONGEST_MONTH + 1))
        found.setdefault(year, []).append(Month(calendar.month_abbr[month], row))
    return [Year(year, tuple(months)) for year, months in sorted(found.items(), reverse=True)]


def describe_day(day: CalendarDay) -> str:
    """`published, warning, 37 of 54 windows, 1.2 % late`."""
    said = [STATUS_WORDS[day.status]]
    if day.figures:
        said.append(f"{day.figures.windows_present:,} of {count_of(day.figures.windows_expected, 'window')}")
        if day.figures.late or day.figures.dropped:
            said.append(
                f"{share_text(day.figures.late + day.figures.dropped, day.figures.events)} late or dropped"
            )
    if day.note and day.note.windows:
        said.append(f"{count_of(day.note.windows, 'window')} stale")
    return ", ".join(said)


def last_day(days: Sequence[CalendarDay]) -> str:
    """The newest day as ISO 8601."""
    return utc_datetime(days[-1].day_ms).date().isoformat() if days else ""


def day_span(since_ms: int, until_ms: int) -> str:
    """`8 Feb 2013` or `8 Feb to 10 Feb 2013`: first and last day of a half-open range."""
    first, last = utc_datetime(since_ms), utc_datetime(until_ms - DAY_MS)
    if first == last:
        return f"{first.day} {first:%b %Y}"
    begin = f"{first.day} {first:%b}" if first.year == last.year else f"{first.day} {first:%b %Y}"
    return f"{begin} to {last.day} {last:%b %Y}"
