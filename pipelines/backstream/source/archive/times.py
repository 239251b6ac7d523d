"""Read the times of a sample: timestamps, numbers since 1970, and text in common patterns."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from backstream.eventtime.instants import epoch_ms, instant_ms
from backstream.source.archive.columns import ColumnProfile

_FIRST_MS, _END_MS = instant_ms("1990-01-01", "first"), instant_ms("2100-01-01", "end")
"""Range of plausible times."""
_MIN_SHARE = 0.9
"""A column holds times if at least this share of its values are plausible times."""
_MAX_TRIED = 2_000
_DIVISORS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_ISO = re.compile(
    r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}([.]\d{1,9})?)?\s?(Z|UTC|[+-]\d{2}(:?\d{2})?)?)?",
    re.IGNORECASE,
)
_ZONE = re.compile(r"(Z|UTC|[+-]\d{2}:?\d{2}|T\S*[+-]\d{2})$", re.IGNORECASE)
_PATTERNS = (
    ("dd/MMM/yyyy:HH:mm:ss Z", "%d/%b/%Y:%H:%M:%S %z"),
    ("yyyy/MM/dd HH:mm:ss", "%Y/%m/%d %H:%M:%S"),
    ("dd/MM/yyyy HH:mm:ss", "%d/%m/%Y %H:%M:%S"),
    ("MM/dd/yyyy HH:mm:ss", "%m/%d/%Y %H:%M:%S"),
    ("dd/MM/yyyy HH:mm", "%d/%m/%Y %H:%M"),
    ("MM/dd/yyyy HH:mm", "%m/%d/%Y %H:%M"),
    ("dd.MM.yyyy HH:mm:ss", "%d.%m.%Y %H:%M:%S"),
    ("dd-MM-yyyy HH:mm:ss", "%d-%m-%Y %H:%M:%S"),
    ("dd MMM yyyy HH:mm:ss", "%d %b %Y %H:%M:%S"),
    ("yyyyMMddHHmmss", "%Y%m%d%H%M%S"),
    ("yyyyMMdd'T'HHmmss", "%Y%m%dT%H%M%S"),
)
"""Patterns of Spark, with those of Python."""


@dataclass(frozen=True, slots=True)
class SampledTime:
    """A column that holds times: `times_ms` has None for a record without a plausible time.

    `unit` is set for numbers, and `pattern` for text that is not ISO 8601. `has_zone` means that no time zone is
    needed. `unread` counts the values that are not plausible times. `rivals` are other patterns that fit as well.
    """

    column: ColumnProfile
    times_ms: Sequence[int | None]
    unit: str | None = None
    pattern: str | None = None
    has_zone: bool = True
    rivals: tuple[str, ...] = ()

    @property
    def present_ms(self) -> list[int]:
        """Return the plausible times."""
        return [value for value in self.times_ms if value is not None]

    @property
    def unread(self) -> int:
        """Return the number of values that are not plausible times."""
        return len(self.times_ms) - len(self.present_ms) - self.column.nulls

    @property
    def form(self) -> str:
        """Return the form of the times in words."""
        if self.unit:
            return f"{_UNIT_NAMES[self.unit]} since 1970"
        if self.pattern:
            return f"pattern {self.pattern}"
        zone = "with a time zone" if self.has_zone else "without a time zone"
        return f"{'ISO 8601' if self.column.kind == 'string' else 'timestamps'} {zone}"


_UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


def find_times(columns: Sequence[ColumnProfile]) -> list[SampledTime]:
    """Return the columns that hold times; dates without a time of day are not among them."""
    found = [_read_times(column) for column in columns if column.present]
    return [each for each in found if each is not None]


def _read_times(column: ColumnProfile) -> SampledTime | None:
    if column.kind in ("timestamp", "timestamp_ntz"):
        is_zoned = column.kind == "timestamp" or column.is_instant
        return _time_column(column, _from_datetime, has_zone=is_zoned)
    if column.kind in ("bigint", "double"):
        return _from_numbers(column)
    return _from_texts(column) if column.kind == "string" else None


def _from_numbers(column: ColumnProfile) -> SampledTime | None:
    found = (_time_column(column, partial(_from_number, _DIVISORS[unit]), unit=unit) for unit in _DIVISORS)
    return next((each for each in found if each is not None), None)


def _from_texts(column: ColumnProfile) -> SampledTime | None:
    texts = [value for value in column.present if isinstance(value, str)]
    first = texts[:_MAX_TRIED]
    if _share(first, _from_iso) >= _MIN_SHARE:
        if not any(len(text) > len("2026-01-01") for text in first):
            return None
        return _time_column(column, _from_iso, has_zone=all(_ZONE.search(text) for text in first))
    if all(text.isdecimal() for text in first):
        found = (_time_column(column, partial(_from_digits, _DIVISORS[unit]), unit=unit) for unit in _DIVISORS)
        if number := next((each for each in found if each is not None), None):
            return number
    shares = {
        (pattern, python_pattern): _share(first, partial(_from_pattern, python_pattern))
        for pattern, python_pattern in _PATTERNS
    }
    best = max(shares.values())
    if best < _MIN_SHARE:
        return None
    (pattern, python_pattern), *others = [each for each, share in shares.items() if share == best]
    rivals = tuple(name for name, _ in others)
    read = partial(_from_pattern, python_pattern)
    return _time_column(column, read, pattern=pattern, has_zone=pattern.endswith("Z"), rivals=rivals)


def _share(values: Sequence[Any], read: Callable[[Any], int | None]) -> float:
    return sum(read(value) is not None for value in values) / max(1, len(values))


def _time_column(
    column: ColumnProfile, read: Callable[[Any], int | None], *, has_zone: bool = True, **form: Any
) -> SampledTime | None:
    times_ms = [None if value is None else read(value) for value in column.values]
    found = SampledTime(column, times_ms, has_zone=has_zone, **form)
    return found if len(found.present_ms) >= _MIN_SHARE * len(column.present) else None


def _plausible(value_ms: int) -> int | None:
    return value_ms if _FIRST_MS <= value_ms < _END_MS else None


def _from_datetime(value: Any) -> int | None:
    if not isinstance(value, datetime):
        return None
    return _plausible(epoch_ms(value if value.tzinfo else value.replace(tzinfo=UTC)))


def _from_number(divisor: int, value: Any) -> int | None:
    if not isinstance(value, int | float) or value != value or abs(value) > 2**63:  # noqa: PLR0124 - NaN
        return None
    return _plausible(value * 1_000 // divisor if isinstance(value, int) else int(value * 1_000 / divisor))


def _from_digits(divisor: int, value: Any) -> int | None:
    return _from_number(divisor, int(value)) if isinstance(value, str) and value.isdecimal() else None


def _from_iso(value: Any) -> int | None:
    if not isinstance(value, str) or not _ISO.fullmatch(value):
        return None
    try:
        return _from_datetime(datetime.fromisoformat(re.sub(r"\s?UTC$", "Z", value)))
    except ValueError:
        return None


def _from_pattern(pattern: str, value: Any) -> int | None:
    try:
        return _from_datetime(datetime.strptime(value, pattern))  # noqa: DTZ007 - the zone is added
    except (ValueError, TypeError):
        return None
