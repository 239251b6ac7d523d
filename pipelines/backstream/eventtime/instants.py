"""Convert instants and durations: integer milliseconds inside, ISO 8601 with `Z` in texts."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta

from backstream.errors import SpecError

MIN_MS = -(2**63)
"""-inf, the watermark before any other: Flink's `Long.MIN_VALUE`."""
MAX_MS = 2**63 - 1
"""+inf, the watermark after all others: Flink's `Long.MAX_VALUE`."""

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

_UNITS_MS = {"ms": 1, "s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}
_DURATION = re.compile(r"(?:\d+(?:ms|s|m|h|d))+")
_DURATION_PART = re.compile(r"(\d+)(ms|s|m|h|d)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def wrap_int64(value: int) -> int:
    """Return the value as a Java `long`: 64 bits, two's complement."""
    return (value - MIN_MS) % 2**64 + MIN_MS


def duration_ms(text: str) -> int:
    """Return the milliseconds of a duration such as `1h`, `30m`, `1h30m` or `200ms`; a leading `-` is allowed.

    Raises:
        SpecError: when the text is not a duration.
    """
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    if not _DURATION.fullmatch(digits):
        msg = f'must be a duration such as "1h", "30m" or "200ms", got {text!r}'
        raise SpecError(msg)
    return sign * sum(int(count) * _UNITS_MS[unit] for count, unit in _DURATION_PART.findall(digits))


def duration_text(value_ms: int) -> str:
    """Return the shortest text of a duration, such as `1h30m`."""
    if value_ms == 0:
        return "0s"
    rest, parts = abs(value_ms), []
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(rest, _UNITS_MS[unit])
        parts += [f"{count}{unit}"] if count else []
    return ("-" if value_ms < 0 else "") + "".join(parts)


def instant_ms(text: str, name: str) -> int:
    """Return epoch milliseconds of an ISO 8601 instant; a bare date is midnight UTC of that day.

    Args:
        text: such as `2013-02-01`, `2013-02-01T05:00Z` or `2013-02-01T00:00-05:00`.
        name: the name of the value for the message, such as its option or key.

    Raises:
        SpecError: when it is no instant, or a local time without a zone.
    """
    with suppress(ValueError):
        return epoch_ms(datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC))
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        msg = f"{name} must be an instant such as 2013-02-01 or 2013-02-01T05:00Z, got {text!r}"
        raise SpecError(msg) from None
    if parsed.tzinfo is None:
        msg = (
            f"{name} must name its time zone, got the local time {text!r}\n\n"
            f"hint: write {text}Z for UTC, or {text}-05:00 for New York in winter"
        )
        raise SpecError(msg)
    return epoch_ms(parsed)


def epoch_ms(moment: datetime) -> int:
    """Return the epoch milliseconds of an aware datetime, floored (also before 1970)."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def epoch_us(moment: datetime) -> int:
    """Return the epoch microseconds of an aware datetime."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def utc_datetime(value_ms: int) -> datetime:
    """Return the aware UTC datetime of epoch milliseconds.

    Raises:
        OverflowError: outside the years 1 to 9999.
    """
    return _EPOCH + timedelta(milliseconds=value_ms)


def instant_text(value_ms: int) -> str:
    """Return ISO 8601 with `Z`, in the coarsest unit that is exact.

    Infinities are `-inf` and `+inf`. Instants outside the years 1 to 9999 are given in milliseconds.
    """
    if value_ms in (MIN_MS, MAX_MS):
        return "-inf" if value_ms == MIN_MS else "+inf"
    try:
        at = utc_datetime(value_ms)
    except OverflowError:
        return f"{value_ms} ms"
    units = {MINUTE_MS: "minutes", SECOND_MS: "seconds", 1: "milliseconds"}
    coarsest = next(name for unit_ms, name in units.items() if value_ms % unit_ms == 0)
    return at.isoformat(timespec=coarsest).replace("+00:00", "Z")
