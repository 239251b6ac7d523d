"""Draw the days of a dataset as a calendar: a table per year, a row per month, and a cell per day."""

from __future__ import annotations

import calendar
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from markupsafe import Markup, escape

from backstream.eventtime.instants import utc_datetime
from backstream.pages.days import CalendarDay, describe_day

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
