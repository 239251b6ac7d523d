"""Find dates and clocks that are in several columns, and join them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from backstream.source.archive.columns import ColumnProfile
from backstream.source.archive.name_words import CLOCK_WORDS, DATE_WORDS, words_of
from backstream.source.archive.times import base_expression, find_times

_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2}([.,]\d{1,9})?)?( ?[AP]M)?( ?(Z|[+-]\d{2}:?\d{2}))?", re.IGNORECASE)
_CLOCK_WITH_DOTS = re.compile(r"\d{1,2}\.\d{2}\.\d{2}")
"""This can be a date as well, so the name of the column decides."""
_HOURS = range(24)
_CLOCK_OF_DIGITS = re.compile(r"([01]\d|2[0-3])[0-5]\d([0-5]\d)?")
"""Digits of hours, minutes, and seconds, if the name of the column is that of a clock."""
_NUMBERS_OF_A_DATE = {"year": range(1990, 2100), "month": range(1, 13), "day": range(1, 32)}
"""Names of columns that are a date together, with the numbers that they hold."""


def join_dates_and_clocks(columns: Sequence[ColumnProfile]) -> list[ColumnProfile]:
    """Return a derived column per date that has its time of day in another column, such as `date` and `time`.

    If no column holds times, the numbers of `year`, `month`, and `day` are a date, with `hour` if there is one.
    """
    found = find_times(columns)
    dates = [time.column for time in found if time.is_whole_days and time.column.kind in _DATE_KINDS]
    numbers = [] if found else _join_numbers(columns)
    clocks = [column for column in columns if _holds_clocks(column)]
    taken = {column.path.lower() for column in columns}
    joined = []
    for day in [*dates, *numbers]:
        same = [clock for clock in clocks if _parent(clock) == _parent(day)]
        named = [clock for clock in same if _rest(clock) == _rest(day)]
        if len(named) == 1 or (len(dates) + len(numbers) == len(same) == 1):
            joined.append(_join(day, (named or same)[0], taken))
    return joined or numbers


def _join_numbers(columns: Sequence[ColumnProfile]) -> list[ColumnProfile]:
    """Return the date whose year, month, and day are columns of numbers, as a derived column of texts."""
    parts = []
    for name, numbers in _NUMBERS_OF_A_DATE.items():
        parts += [
            column
            for column in columns
            if column.name == name and column.kind == "bigint" and not column.is_folder
            if _all(column.present, numbers.__contains__)
        ][:1]
    taken = {column.path.lower() for column in columns}
    if len(parts) < len(_NUMBERS_OF_A_DATE) or "date" in taken:
        return []
    rows = zip(*(column.values for column in parts), strict=True)
    values = [None if None in row else "-".join(map(str, row)) for row in rows]
    sql = ", ".join(column.sql for column in parts)
    return [ColumnProfile("date", "string", values, derived=f"concat_ws('-', {sql})")]


_DATE_KINDS = ("string", "bigint", "date")


def _holds_clocks(column: ColumnProfile) -> bool:
    """Return whether a column holds times of day, or numbers of hours."""
    if column.kind == "bigint":
        is_hour = not {"hour", "hr", "hours"}.isdisjoint(words_of(column.path))
        return (is_hour and _all(column.present, lambda value: value in _HOURS)) or _clock_width(column) > 0
    is_named = not CLOCK_WORDS.isdisjoint(words_of(column.path))
    forms = [_CLOCK, *([_CLOCK_WITH_DOTS, _CLOCK_OF_DIGITS] if is_named else [])]
    return column.kind == "string" and _all(
        column.present, lambda value: any(form.fullmatch(str(value)) for form in forms)
    )


def _clock_width(column: ColumnProfile) -> int:
    """Return the number of digits of clocks that are numbers without leading zeros; 0 for other columns."""
    if column.kind != "bigint" or CLOCK_WORDS.isdisjoint(words_of(column.path)):
        return 0
    return next(
        (
            width
            for width in (4, 6)
            if max(column.present, default=0) >= 10 ** (width - 1)
            if _all(column.present, partial(_is_clock, width))
        ),
        0,
    )


def _is_clock(width: int, number: int) -> bool:
    text = f"{number:0{width}}"
    return len(text) == width and _CLOCK_OF_DIGITS.fullmatch(text) is not None


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
    width = _clock_width(clock)
    values = [
        None if date is None or time is None else f"{date} {time:0{width}}" if width else f"{date} {time}"
        for date, time in zip(day.values, clock.values, strict=True)
    ]
    clock_sql = base_expression(clock)
    clock_sql = f"lpad(cast({clock_sql} as string), {width}, '0')" if width else clock_sql
    sql = f"concat({day.derived or base_expression(day)}, ' ', {clock_sql})"
    return ColumnProfile(name, "string", values, derived=sql)
