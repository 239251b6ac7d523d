"""Days over years: a table per year, a row per month, a link per day, joined as text: there are thousands."""

from __future__ import annotations

import calendar
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from markupsafe import Markup, escape

from backstream.core.instants import DAY_MS, moment
from backstream.pages.days import Day, DayStatus
from backstream.report.words import counted, share_text

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


def years(days: Sequence[Day], dag_id: str) -> list[Year]:
    """The days as tables, the newest year first."""
    base = escape("day?" + urlencode({"dag_id": dag_id}))
    cells: dict[tuple[int, int], dict[int, Markup]] = {}
    for day in days:
        at = moment(day.day_ms)
        iso = f"{at.year:04d}-{at.month:02d}-{at.day:02d}"
        cell = _LINK.format(day.status.value, base, iso, f"{at.day} {at:%b %Y}: {day_words(day)}")
        cells.setdefault((at.year, at.month), {})[at.day] = cell
    found: dict[int, list[Month]] = {}
    for (year, month), of_month in sorted(cells.items()):
        row = Markup("").join(of_month.get(number, _NO_DAY) for number in range(1, _LONGEST_MONTH + 1))
        found.setdefault(year, []).append(Month(calendar.month_abbr[month], row))
    return [Year(year, tuple(months)) for year, months in sorted(found.items(), reverse=True)]


def day_words(day: Day) -> str:
    """`published, warning, 37 of 54 windows, 1.2 % late`."""
    said = [STATUS_WORDS[day.status]]
    if day.figures:
        said.append(f"{day.figures.windows_present:,} of {counted(day.figures.windows_expected, 'window')}")
        if day.figures.late or day.figures.dropped:
            said.append(
                f"{share_text(day.figures.late + day.figures.dropped, day.figures.events)} late or dropped"
            )
    if day.note and day.note.windows:
        said.append(f"{counted(day.note.windows, 'window')} stale")
    return ", ".join(said)


def last_day(days: Sequence[Day]) -> str:
    """The newest day as ISO 8601."""
    return moment(days[-1].day_ms).date().isoformat() if days else ""


def day_span(since_ms: int, until_ms: int) -> str:
    """`8 Feb 2013` or `8 Feb to 10 Feb 2013`: first and last day of a half-open range."""
    first, last = moment(since_ms), moment(until_ms - DAY_MS)
    if first == last:
        return f"{first.day} {first:%b %Y}"
    begin = f"{first.day} {first:%b}" if first.year == last.year else f"{first.day} {first:%b %Y}"
    return f"{begin} to {last.day} {last:%b %Y}"
