"""Read the times of a sample as a run does: timestamps, numbers since 1970, ISO 8601, and patterns of Spark."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from itertools import pairwise
from typing import Any

from backstream.definition.time_patterns import parse_pattern, reason_against_pattern
from backstream.definition.time_texts import WrittenTime, parse_iso
from backstream.eventtime.instants import DAY_MS, epoch_ms, instant_ms
from backstream.source.archive.columns import ColumnProfile
from backstream.source.archive.name_words import is_named_count, is_named_time
from backstream.source.archive.time_shapes import cuts_for, lacks_year, propose_patterns

FIRST_YEAR, LAST_YEAR = 1990, 2099
"""Years of plausible times."""
_FIRST_MS, _END_MS = instant_ms(f"{FIRST_YEAR}-01-01", "first"), instant_ms(f"{LAST_YEAR + 1}-01-01", "end")
_MIN_SHARE = 0.9
"""A column holds times if at least this share of its values are plausible times."""
_MAX_TRIED = 500
_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 0.001}
_UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_NUMBER = re.compile(r"\s*-?\d+(\.\d*)?\s*")
_ABSENT_TEXTS = {"", "null", "(null)", "none", "nil", "na", "n/a", "nan", "nat", "-", "--", "\\n", "unknown", "?"}
"""Texts in lower case that writers use for no value."""
_EXCEL_DAYS = (range(32_874, 73_051), "round(({} - 25569) * 86400, 3)")
"""Excel's numbers of the plausible days, and SQL of their seconds since 1970, whose first day is 25569."""
_TICKS = (range(627_667_488 * 10**9, 662_380_416 * 10**9), "({} - 621355968000000000) div 10")
"""The ticks of .NET in the plausible years, and SQL of their microseconds since 1970.

They are 100 ns since the year 1. As nanoseconds since 1970 they would be times of 1989 and 1990.
"""
_YEAR_MS = 366 * DAY_MS
_MIN_FACTOR = 2
"""The records show an order of day and month if by each other order they jump at least this many times as far."""


@dataclass(frozen=True, slots=True)
class SampledTime:
    """A column that holds times: `times_ms` has None for a record without a plausible time.

    `expression` is the SQL of the time. `unit` is set for numbers, and `pattern` for text that is not ISO 8601.
    `has_zone` means that no time zone is needed. `unread` counts the texts that cannot be read, and `outside` has
    the times outside of the plausible years. `rivals` are the times by other patterns that fit as well, and
    `is_order_shown` means that the records show which pattern is right. If no form fits, `lacks` is the part that
    the user must complete: unit, pattern, or expression.
    """

    column: ColumnProfile
    times_ms: Sequence[int | None]
    expression: str
    unit: str | None = None
    pattern: str | None = None
    has_zone: bool = True
    unread: Mapping[str, int] = field(default_factory=dict)
    outside: Sequence[int] = ()
    rivals: tuple[SampledTime, ...] = ()
    is_order_shown: bool = True
    lacks: str | None = None

    @property
    def present_ms(self) -> list[int]:
        """Return the plausible times."""
        return [value for value in self.times_ms if value is not None]

    @property
    def is_whole_days(self) -> bool:
        """Return whether all times are midnights, as those of dates are."""
        return all(value % DAY_MS == 0 for value in self.present_ms)

    @property
    def share_in_future(self) -> float:
        """Return the share of the times that are later than tomorrow by the clock of this machine."""
        limit_ms = _tomorrow_ms()
        return sum(value > limit_ms for value in self.present_ms) / max(1, len(self.present_ms))

    @property
    def form(self) -> str:
        """Return the form of the times in words."""
        if self.lacks:
            return "no known form of times"
        if self.unit and self.expression != base_expression(self.column):
            return "days as Excel counts them" if self.unit == "s" else "ticks as .NET counts them"
        if self.unit:
            return f"{_UNIT_NAMES[self.unit]} since 1970"
        if self.pattern:
            return f"pattern {self.pattern}"
        if self.column.kind == "date":
            return "dates"
        zone = "with a time zone" if self.has_zone else "without a time zone"
        return f"{'ISO 8601' if self.column.kind == 'string' else 'timestamps'} {zone}"


_Reader = Callable[[Any], WrittenTime | None]


@dataclass(frozen=True, slots=True)
class _Form:
    """A way in which a run can read a column."""

    read: _Reader
    expression: str
    unit: str | None = None
    pattern: str | None = None
    is_number: bool = False
    is_weak: bool = False
    """True if other numbers and texts than times often have this form."""


def find_times(columns: Sequence[ColumnProfile]) -> list[SampledTime]:
    """Return the columns that hold plausible times.

    A number is weak evidence: counters, phone numbers, and identifiers are often plausible seconds since 1970. So
    the name of its column shows that it is a time, or it keeps pace with columns that are known to be times.
    """
    found = [time for column in columns if (time := _find_plausible(column)) is not None]
    known = [time for time in found if not time.unit or is_named_time(time.column)]
    certain = [time for time in known if time.is_order_shown]
    return [
        time if time.is_order_shown else _choose_near(time, certain)
        for time in found
        if any(time is each for each in known) or _is_like_clock(time, known)
    ]


def read_as_time(column: ColumnProfile) -> SampledTime | None:
    """Return the times of a column that the user names, of any year; None if its type cannot hold times.

    If no form fits, `lacks` of the result is the part that the user must complete.
    """
    forms = [*_forms(column)]
    # Each unit fits numbers of any year, so only the plausible years show it.
    tries = ((forms, _is_plausible), ([form for form in forms if not form.unit], _is_any))
    for tried, is_wanted in tries:
        found = _best_times(column, tried, is_wanted)
        if found and len(found[0].present_ms) * 2 >= sum(not _is_absent(value) for value in column.present):
            return _choose_order(found)
    if not forms:
        return None
    if column.kind != "string":
        lacks = "unit"
    else:
        lacks = "expression" if lacks_year(map(str, column.present)) else "pattern"
    return SampledTime(column, [None] * len(column.values), base_expression(column), lacks=lacks)


def base_expression(column: ColumnProfile) -> str:
    """Return the SQL of a column: its name, quoted if needed."""
    return column.path if column.derived else column.sql


def _find_plausible(column: ColumnProfile) -> SampledTime | None:
    """Return the times of a column if most of its values are plausible times."""
    is_named = is_named_time(column)
    is_count = is_named_count(column)
    forms = [form for form in _forms(column) if is_named or not (form.is_weak or (form.is_number and is_count))]
    found = _best_times(column, forms, _is_plausible)
    least = _MIN_SHARE * sum(not _is_absent(value) for value in column.present)
    return _choose_order(found) if found and len(found[0].present_ms) >= max(1, least) else None


def _forms(column: ColumnProfile) -> Iterator[_Form]:
    """Yield the forms that the type and some of the values of a column allow, the simplest first."""
    expression, kind = base_expression(column), column.kind
    if kind in ("timestamp", "timestamp_ntz"):
        yield _Form(partial(_read_datetime, is_zoned=kind == "timestamp" or column.is_instant), expression)
    elif kind == "date":
        yield _Form(_read_date, f"cast({expression} as timestamp_ntz)")
    elif kind in ("bigint", "double") or kind.startswith("decimal"):
        ticks, sql = _TICKS
        if kind == "bigint":
            yield _Form(partial(_read_ticks, ticks), sql.format(expression), unit="us", is_number=True)
        yield from _unit_forms(expression)
        days, sql = _EXCEL_DAYS
        yield _Form(partial(_read_excel, days), sql.format(expression), unit="s", is_number=True, is_weak=True)
        if kind == "bigint":
            yield from _text_forms(column, f"cast({expression} as string)")
    elif kind == "string":
        yield _Form(_read_iso, expression)
        yield from _unit_forms(expression)
        yield from _text_forms(column, expression)


def _unit_forms(expression: str) -> Iterator[_Form]:
    for unit, micros in _MICROS.items():
        yield _Form(partial(_read_number, micros), expression, unit=unit, is_number=True)


def _text_forms(column: ColumnProfile, expression: str) -> Iterator[_Form]:
    """Yield the forms of texts that are not ISO 8601 as they are: cuts, and patterns."""
    texts = [text for text in dict.fromkeys(map(str, _scalars(column))) if not _is_absent(text)][:_MAX_TRIED]
    cuts = cuts_for(texts)
    for cut in cuts:
        expression = cut.sql.format(expression)
        texts = [cut.apply(text) for text in texts]

    def read(parse: _Reader, value: Any) -> WrittenTime | None:
        text = str(value)
        for cut in cuts:
            text = cut.apply(text)
        return parse(text)

    if cuts:
        yield _Form(partial(read, parse_iso), expression)
    for pattern in propose_patterns(texts):
        if reason_against_pattern(pattern):
            continue
        has_clock = re.search("[Hh]", pattern) is not None
        is_weak = not has_clock and (pattern == "yyyyMMdd" or "yyyy" not in pattern)
        reader = partial(read, partial(parse_pattern, pattern))
        yield _Form(reader, expression, pattern=pattern, is_number=column.kind == "bigint", is_weak=is_weak)


def _best_times(
    column: ColumnProfile, forms: Sequence[_Form], is_wanted: Callable[[int], bool]
) -> list[SampledTime]:
    """Return the times by the forms that read the most values; nothing if no form reads a value."""
    probe = [value for value in _scalars(column) if not _is_absent(value)][:_MAX_TRIED] if forms else []
    counts = [sum(is_wanted(_ms(found)) for value in probe if (found := form.read(value))) for form in forms]
    likely = [form for form, count in zip(forms, counts, strict=True) if count * 2 >= max(*counts, 1)]
    times = [_read_column(column, form, is_wanted) for form in likely]
    most = max((len(time.present_ms) for time in times), default=0)
    best = [time for time in times if most and len(time.present_ms) == most]
    # Forms with and without a pattern do not compete: the simpler one wins.
    return best if best and best[0].pattern else best[:1]


def _read_column(column: ColumnProfile, form: _Form, is_wanted: Callable[[int], bool]) -> SampledTime:
    read = {value: found for value in _scalars(column) if (found := form.read(value))}
    written = [read.get(value) if isinstance(value, Hashable) else None for value in column.values]
    all_ms = [_ms(found) if found else None for found in written]
    pairs = zip(column.values, written, strict=True)
    return SampledTime(
        column,
        [value if value is not None and is_wanted(value) else None for value in all_ms],
        form.expression,
        form.unit,
        form.pattern,
        all(found.has_zone for found in read.values()),
        Counter(str(value) for value, found in pairs if value is not None and not found),
        [value for value in all_ms if value is not None and not is_wanted(value)],
    )


def _choose_order(times: Sequence[SampledTime]) -> SampledTime:
    """Return the time whose order of day and month fits best: it is rarely in the future, and has small jumps."""
    ranked = sorted(times, key=lambda time: (time.share_in_future, _jumps_ms(time)))
    best, others = ranked[0], tuple(ranked[1:])
    is_shown = all(
        other.share_in_future > best.share_in_future or _jumps_ms(other) > _MIN_FACTOR * _jumps_ms(best)
        for other in others
    )
    return replace(best, rivals=others, is_order_shown=is_shown)


def _choose_near(time: SampledTime, others: Sequence[SampledTime]) -> SampledTime:
    """Return the time whose order of day and month is nearest to another time of the records, if there is one."""
    if not others:
        return time
    fitting = [replace(time, rivals=()), *time.rivals]
    distances = [min(_median_distance_ms(each, other) for other in others) for each in fitting]
    nearest = min(range(len(fitting)), key=lambda number: distances[number])
    rivals = tuple(each for number, each in enumerate(fitting) if number != nearest)
    is_shown = sum(distance <= _MIN_FACTOR * distances[nearest] for distance in distances) == 1
    return replace(fitting[nearest], rivals=rivals, is_order_shown=is_shown)


def _median_distance_ms(time: SampledTime, other: SampledTime) -> int:
    distances = _distances_ms(time, other)
    return distances[len(distances) // 2] if distances else _END_MS


def _jumps_ms(time: SampledTime) -> int:
    """Return the sum of the distances from record to record."""
    return sum(abs(second - first) for first, second in pairwise(time.present_ms))


def _is_like_clock(time: SampledTime, known: Sequence[SampledTime]) -> bool:
    """Return whether a number whose name shows nothing moves as time does."""
    if time.share_in_future > 1 - _MIN_SHARE:
        return False
    span_ms = _span_ms(time)
    if not known:
        return span_ms < 5 * _YEAR_MS  # identifiers and phone numbers are spread over all years
    return any(
        _share_near(time, other) >= _MIN_SHARE and span_ms <= 10 * _span_ms(other) + DAY_MS for other in known
    )


def _span_ms(time: SampledTime) -> int:
    ordered = sorted(time.present_ms)
    cut = len(ordered) // 20
    return ordered[-1 - cut] - ordered[cut]


def _share_near(time: SampledTime, other: SampledTime) -> float:
    """Return the share of the records in which two times are less than a year apart."""
    distances = _distances_ms(time, other)
    return sum(distance < _YEAR_MS for distance in distances) / max(1, len(distances))


def _distances_ms(time: SampledTime, other: SampledTime) -> list[int]:
    """Return the distances between two times of a record, the smallest first."""
    pairs = zip(time.times_ms, other.times_ms, strict=True)
    return sorted(abs(one - two) for one, two in pairs if one is not None and two is not None)


def _scalars(column: ColumnProfile) -> list[Any]:
    """Return the distinct values of a column, in their order; a text column can have lists and objects, too."""
    return list(dict.fromkeys(value for value in column.present if isinstance(value, Hashable)))


def _tomorrow_ms() -> int:
    return epoch_ms(datetime.now(UTC)) + DAY_MS


def _ms(written: WrittenTime) -> int:
    return written.epoch_us // 1_000


def _is_plausible(value_ms: int) -> bool:
    return _FIRST_MS <= value_ms < _END_MS


def _is_any(_: int) -> bool:
    return True


def _is_absent(value: Any) -> bool:
    return isinstance(value, str) and value.strip().lower() in _ABSENT_TEXTS


def _read_datetime(value: Any, *, is_zoned: bool) -> WrittenTime | None:
    if not isinstance(value, datetime):
        return None
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return WrittenTime(epoch_ms(aware) * 1_000, is_zoned)


def _read_date(value: Any) -> WrittenTime | None:
    at = datetime(value.year, value.month, value.day, tzinfo=UTC) if isinstance(value, date) else None
    return WrittenTime(epoch_ms(at) * 1_000, has_zone=False) if at else None


def _read_number(micros: float, value: Any) -> WrittenTime | None:
    """Return the instant of a number of units of so many microseconds, which can be text."""
    if isinstance(value, bool) or (isinstance(value, str) and not _NUMBER.fullmatch(value)):
        return None
    try:
        number = Decimal(str(value))
        return WrittenTime(int(number * Decimal(str(micros)) // 1), has_zone=True) if number.is_finite() else None
    except ArithmeticError:  # not a number, or more digits than a decimal has
        return None


def _read_excel(days: range, value: Any) -> WrittenTime | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not days[0] <= value <= days[-1]:
        return None
    return WrittenTime(round((float(value) - 25_569) * 86_400_000) * 1_000, has_zone=True)


def _read_ticks(ticks: range, value: Any) -> WrittenTime | None:
    is_tick = isinstance(value, int) and value in ticks
    return WrittenTime((value - 621_355_968 * 10**9) // 10, has_zone=True) if is_tick else None


def _read_iso(value: Any) -> WrittenTime | None:
    return parse_iso(value) if isinstance(value, str) else None
