"""Filter the lists of datasets, days, and runs by the values in the address, and cut them into pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Generic, Self, TypeVar

from backstream.errors import SpecError
from backstream.eventtime.instants import DAY_MS, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.pages.days import CalendarDay, DayRange
from backstream.workflow.run_state import RunState

NOBODY = "schedule"
"""The user of runs that no user requested: the schedule or the command line."""
_FIRST_MS, _LAST_MS = 0, 1 << 60
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Filter:
    """Values of a filter; an empty value selects everything.

    `since` and `until` are UTC days, and `until` is excluded. `problem` describes a value that was left out.
    """

    text: str = ""
    status: str = ""
    by: str = ""
    reason: str = ""
    since: str = ""
    until: str = ""
    page: int = 1
    problem: str = ""

    @classmethod
    def from_query(cls, values: Mapping[str, str]) -> Self:
        """Return the filter in the query of an address; a value that is not valid selects everything."""
        known = {name: values.get(name, "").strip() for name in ("text", "status", "by", "reason")}
        days, problems = {}, []
        for name in ("since", "until"):
            text = values.get(name, "").strip()
            if not text or _is_day(text):
                days[name] = text
            else:
                problems.append(f"{name} must be a day such as 2013-02-08, got {text!r}")
        page = values.get("page", "")
        number = int(page) if page.isascii() and page.isdigit() and len(page) <= 9 else 1  # noqa: PLR2004 - digits
        return cls(**known, **days, page=max(1, number), problem="; ".join(problems))

    @property
    def query(self) -> dict[str, str]:
        """The values for an address, without the page."""
        content = asdict(self)
        return {name: content[name] for name in _IN_ADDRESS if content[name]}

    @property
    def is_empty(self) -> bool:
        """Return whether the filter selects everything."""
        return not self.query

    @property
    def interval(self) -> Interval:
        """The selected time."""
        since_ms = instant_ms(self.since, "since") if self.since else _FIRST_MS
        until_ms = instant_ms(self.until, "until") if self.until else _LAST_MS
        return Interval(since_ms, max(since_ms, until_ms))

    def has_run(self, run: RunState) -> bool:
        """Return whether the filter selects a run: its status, user, reason, a text in it, and its range."""
        by = run.by or NOBODY
        texts = (run.dataset, run.triggered_by, by, run.reason, run.error or "")
        return (
            self.status in ("", run.state.value, run.verdict)
            and self.by in ("", by)
            and self.reason.casefold() in run.reason.casefold()
            and self.has_text(*texts)
            and (
                not (self.since or self.until)
                or (run.interval is not None and _overlap(self.interval, run.interval))
            )
        )

    def has_day(self, day: CalendarDay) -> bool:
        """Return whether the filter selects a day: its status and its time."""
        interval = self.interval
        return self.status in ("", day.status.value) and interval.start_ms <= day.day_ms < interval.end_ms

    def has_range(self, days: DayRange) -> bool:
        """Return whether the filter selects days of a range."""
        return self.status in ("", days.status.value) and _overlap(self.interval, days.interval)

    def has_text(self, *texts: str) -> bool:
        """Return whether one of the texts contains the searched text, in upper or lower case."""
        searched = self.text.casefold()
        return not searched or any(searched in text.casefold() for text in texts)


_IN_ADDRESS = ("text", "status", "by", "reason", "since", "until")


@dataclass(frozen=True, slots=True)
class Sheet(Generic[_Item]):
    """One page of a list: its items, the position of the first one, and the size of the list."""

    items: Sequence[_Item]
    first: int
    count: int
    page: int
    pages: int


def cut_page(items: Sequence[_Item], page: int, size: int) -> Sheet[_Item]:
    """Return one page of a list, the last one if there are fewer pages.

    Args:
        items: the whole list.
        page: the number of the page, from 1.
        size: items of a page.
    """
    pages = max(1, -(-len(items) // size))
    page = min(page, pages)
    first = (page - 1) * size
    return Sheet(items[first : first + size], first, len(items), page, pages)


def _is_day(text: str) -> bool:
    try:
        return instant_ms(text, "day") % DAY_MS == 0
    except (SpecError, OverflowError):
        return False


def _overlap(one: Interval, other: Interval) -> bool:
    return one.start_ms < other.end_ms and other.start_ms < one.end_ms
