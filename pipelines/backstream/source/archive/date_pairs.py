"""Find dates and clocks that are in two columns, and join them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from backstream.source.archive.columns import ColumnProfile
from backstream.source.archive.name_words import CLOCK_WORDS, DATE_WORDS, words_of
from backstream.source.archive.times import base_expression, find_times

_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2}([.,]\d{1,9})?)?( ?[AP]M)?( ?(Z|[+-]\d{2}:?\d{2}))?", re.IGNORECASE)
_HOURS = range(24)


def join_dates_and_clocks(columns: Sequence[ColumnProfile]) -> list[ColumnProfile]:
    """Return a derived column per date that has its time of day in another column, such as `date` and `time`."""
    dates = [time.column for time in find_times(columns) if time.is_whole_days and time.column.kind in _DATE_KINDS]
    clocks = [column for column in columns if _holds_clocks(column)]
    taken = {column.path.lower() for column in columns}
    joined = []
    for day in dates:
        same = [clock for clock in clocks if _parent(clock) == _parent(day)]
        named = [clock for clock in same if _rest(clock) == _rest(day)]
        if len(named) == 1 or (len(dates) == len(same) == 1):
            joined.append(_join(day, (named or same)[0], taken))
    return joined


_DATE_KINDS = ("string", "bigint", "date")


def _holds_clocks(column: ColumnProfile) -> bool:
    """Return whether a column holds times of day, or numbers of hours."""
    if column.kind == "bigint":
        is_hour = not {"hour", "hr", "hours"}.isdisjoint(words_of(column.path))
        return is_hour and _all(column.present, lambda value: value in _HOURS)
    return column.kind == "string" and _all(column.present, lambda value: bool(_CLOCK.fullmatch(str(value))))


def _all(values: Sequence[Any], is_right: Callable[[Any], bool]) -> bool:
    """Return whether all but a few values are right."""
    return bool(values) and sum(map(is_right, values)) >= 0.9 * len(values)


def _parent(column: ColumnProfile) -> str:
    return column.path.rpartition(".")[0]


def _rest(column: ColumnProfile) -> tuple[str, ...]:
    """Return the words of a name without those for dates and clocks."""
    return tuple(word for word in words_of(column.name) if word not in DATE_WORDS | CLOCK_WORDS)


def _join(day: ColumnProfile, clock: ColumnProfile, taken: Iterable[str]) -> ColumnProfile:
    name = "_".join([*_rest(day), "date", "time"])
    while name in taken:
        name = f"event_{name}"
    values = [
        None if date is None or time is None else f"{date} {time}"
        for date, time in zip(day.values, clock.values, strict=True)
    ]
    sql = f"concat({base_expression(day)}, ' ', {base_expression(clock)})"
    return ColumnProfile(name, "string", values, derived=sql)
