"""Format numbers, instants (UTC), and settings for people."""

from __future__ import annotations

from backstream.errors import SpecError
from backstream.eventtime.instants import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    SECOND_MS,
    instant_ms,
    instant_text,
    utc_datetime,
)
from backstream.text import count_of, share_text

__all__ = [
    "ago_text",
    "at_text",
    "bytes_text",
    "change_text",
    "count_of",
    "count_text",
    "day_text",
    "deviation_text",
    "duration_words",
    "iso_text",
    "limit_text",
    "minute_text",
    "second_text",
    "seconds_text",
    "sentence",
    "share_text",
    "short_day_text",
    "value_text",
]

_UNITS = ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min"), (SECOND_MS, "s"), (1, "ms"))
_BYTES = ("bytes", "kB", "MB", "GB", "TB")
_MINUTE_S, _TEN_S = 60, 10
_KILO = 1_000
_MILLION = 1e6
_YEAR_MS = 365 * DAY_MS
_AGO = ((_YEAR_MS, "year"), (DAY_MS, "day"), (HOUR_MS, "h"), (MINUTE_MS, "min"))
_SPELLED = ("year", "day")


def count_text(count: int) -> str:
    """Return a count with separators: `1,484`."""
    return f"{count:,}"


def limit_text(share: float) -> str:
    """Return a limit as a percentage: `5 %`."""
    return f"{share * 100:g} %"


def bytes_text(size: int) -> str:
    """Return a size in powers of 1,000: `12.3 MB`."""
    value, unit = float(size), 0
    while value >= _KILO and unit < len(_BYTES) - 1:
        value, unit = value / _KILO, unit + 1
    return f"{value:,.1f} {_BYTES[unit]}" if unit else f"{size:,} bytes"


def seconds_text(seconds: float) -> str:
    """Return a duration: `0.4 s`, `16 s`, `2 min 5 s`."""
    if seconds < _TEN_S:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    return f"{whole} s" if whole < _MINUTE_S else f"{whole // _MINUTE_S:,} min {whole % _MINUTE_S} s"


def _number_text(value: float) -> str:
    """Return a number in at most six significant digits: `1,484`, `-0.25`, `43,505.3`."""
    return f"{value:,.6g}" if abs(value) < _MILLION else f"{value:,.0f}"


def change_text(value: float) -> str:
    """Return a difference with its sign: `+4`, `-0.25`."""
    return f"{'+' if value > 0 else ''}{_number_text(value)}"


def ago_text(value_ms: int, now_ms: int) -> str:
    """Return the time before now in one unit: `just now`, `5 min ago`, `3 days ago`; for the future `in 2 h`."""
    distance_ms = abs(now_ms - value_ms)
    unit_ms, name = next((unit for unit in _AGO if distance_ms >= unit[0]), (0, ""))
    if not unit_ms:
        return "just now"
    count = distance_ms // unit_ms
    span = f"{count:,} {name}{'s' if name in _SPELLED and count > 1 else ''}"
    return f"{span} ago" if value_ms <= now_ms else f"in {span}"


def duration_words(value_ms: int) -> str:
    """Return a duration with its units: `1 h 30 min`, `-1 ms`."""
    rest, parts = abs(value_ms), []
    for unit_ms, name in _UNITS:
        count, rest = divmod(rest, unit_ms)
        parts += [f"{count:,} {name}"] if count else []
    return ("-" if value_ms < 0 else "") + " ".join(parts) if parts else "0 s"


def at_text(value_ms: int) -> str:
    """Return an instant: `2013-02-08 21:00 UTC`, with seconds and milliseconds only if they are not zero."""
    return f"{instant_text(value_ms).removesuffix('Z').replace('T', ' ')} UTC"


def minute_text(value_ms: int) -> str:
    """Return an instant without its zone: `2013-02-08 21:00`."""
    return at_text(value_ms).removesuffix(" UTC")


def iso_text(text: str) -> str:
    """Return an ISO 8601 instant in the format of `at_text`; any other text unchanged."""
    try:
        return at_text(instant_ms(text, "instant") // SECOND_MS * SECOND_MS)
    except SpecError:
        return text


def second_text(value_ms: int) -> str:
    """Return an instant without milliseconds: `2013-02-08 21:00:07 UTC`."""
    return at_text(value_ms // SECOND_MS * SECOND_MS)


def value_text(text: str) -> str:
    """Return a value that a table stores as text: numbers formatted, any other text unchanged."""
    try:
        return _number_text(float(text))
    except ValueError:
        return text


def deviation_text(share: float | None) -> str:
    """Return a relative deviation: `+4.2 %`, `-12 %`; empty when unknown."""
    if share is None:
        return ""
    return f"{'+' if share > 0 else '-' if share < 0 else ''}{share_text(abs(share))}"


def day_text(value_ms: int) -> str:
    """Return the UTC day of an instant: `8 Feb 2013`."""
    at = utc_datetime(value_ms)
    return f"{at.day} {at:%b %Y}"


def short_day_text(value_ms: int) -> str:
    """Return the UTC day of an instant without its year: `8 Feb`."""
    at = utc_datetime(value_ms)
    return f"{at.day} {at:%b}"


def sentence(text: str) -> str:
    """Return the text with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}." if text else ""
