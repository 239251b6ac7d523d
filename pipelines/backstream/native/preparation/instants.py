"""Convert texts and numbers to instants with the values that Spark has, or refuse them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backstream.definition.values import TimeUnit
from backstream.native.preparation.task import UnusualLinesError, UnusualRowsError

INSTANT = pa.timestamp("us", "UTC")
_LOCAL = pa.timestamp("us")
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
_ZONE = r"(?:Z|[+-](?:(?:0[0-9]|1[0-7])(?::?[0-5][0-9])?|18(?::?00)?))"
_WITH_ZONE, _WITHOUT_ZONE = f"{_DATE}{_TIME}{_ZONE}", f"{_DATE}(?:{_TIME})?"
"""The forms that Arrow reads as `definition/time_texts.py` defines them; Spark reads all others."""
_FIRST_US = pa.scalar(datetime(1, 1, 2, tzinfo=UTC), INSTANT).value
_LAST_US = pa.scalar(datetime(9999, 12, 30, tzinfo=UTC), INSTANT).value
"""Bounds within which the year of a text is from 1 to 9999 in any time zone."""
_FACTORS = {TimeUnit.SECONDS: 1_000_000, TimeUnit.MILLISECONDS: 1_000, TimeUnit.MICROSECONDS: 1}
_MAX_EPOCH_US = 2**62
"""The bound of numbers that Spark's preparation accepts."""


def instants_of_texts(texts: pa.StringArray, *, needs_zone: bool = False) -> pa.TimestampArray:
    """Return the instants of ISO 8601 texts in usual forms, e.g., `2024-03-01T08:00:00.5Z`; without a zone, UTC.

    Raises:
        UnusualRowsError: if some of them have another form, or a year outside of 1 to 9999.
        UnusualLinesError: if one of them is no time, e.g., 30 February.
    """
    has_zone = _find_zones(texts, needs_zone=needs_zone)
    try:
        if isinstance(has_zone, bool):
            instants = texts.cast(INSTANT if has_zone else _LOCAL).view(INSTANT)
        else:
            zoned, local = (pc.if_else(each, texts, None) for each in (has_zone, pc.invert(has_zone)))
            instants = pc.coalesce(zoned.cast(INSTANT), local.cast(_LOCAL).view(INSTANT))
    except pa.ArrowInvalid as error:
        raise UnusualLinesError(str(error)) from None
    bounds = pc.min_max(instants)
    if bounds["min"].is_valid and (bounds["min"].value < _FIRST_US or bounds["max"].value > _LAST_US):
        micros = instants.view(pa.int64())
        is_outside = pc.or_(pc.less(micros, _FIRST_US), pc.greater(micros, _LAST_US)).fill_null(fill_value=False)
        msg = "a time is not between the years 1 and 9999"
        raise UnusualRowsError(msg, is_outside)
    return instants


def _find_zones(texts: pa.StringArray, *, needs_zone: bool) -> bool | pa.BooleanArray:
    """Return whether all texts have a time zone, or none of them, or else for each text.

    Raises:
        UnusualRowsError: if some of them have another form, or have no zone and need one.
    """
    first = next((text.as_py() for text in texts if text.is_valid), None)
    if first is None:
        return True
    has_zone = re.fullmatch(_WITH_ZONE, first) is not None
    if has_zone or not needs_zone:
        form = _WITH_ZONE if has_zone else _WITHOUT_ZONE
        if re.fullmatch(form, first) and _are_like(first, texts):
            return has_zone
        if pc.all(_match(form, texts)).as_py():
            return has_zone
    zoned = _match(_WITH_ZONE, texts)
    if needs_zone:
        msg = "a time is not a usual ISO 8601 time with a time zone"
        raise UnusualRowsError(msg, pc.invert(zoned).fill_null(fill_value=False))
    is_full = pc.or_(zoned, _match(_WITHOUT_ZONE, texts))
    if not pc.all(is_full).as_py():
        msg = "a time is not a usual ISO 8601 time"
        raise UnusualRowsError(msg, pc.invert(is_full).fill_null(fill_value=False))
    return zoned


def _match(form: str, texts: pa.StringArray) -> pa.BooleanArray:
    return pc.match_substring_regex(texts, f"^(?:{form})$")


def _are_like(first: str, texts: pa.StringArray) -> bool:
    """Return whether texts differ from the first one in their digits only.

    Programs write all times in one form, and this is much faster than a regular expression.
    """
    if texts.null_count or not first.isascii():
        return False
    count, length = len(texts), len(first)
    _, offset_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32, count + 1, texts.offset * 4)
    if not (np.diff(offsets) == length).all():
        return False
    data = np.frombuffer(data_buffer, np.uint8, count * length, int(offsets[0]))
    ranges = _ranges_like(first)
    low = np.frombuffer(bytes(ord(least) for least, _ in ranges) * count, np.uint8)
    span = np.frombuffer(bytes(ord(most) - ord(least) for least, most in ranges) * count, np.uint8)
    return bool((data - low <= span).all())  # bytes wrap around below `low`


def _ranges_like(first: str) -> list[tuple[str, str]]:
    """Return the range of each character in texts that differ from the first one in their digits only.

    Arrow refuses numbers that are too large, except in an offset from UTC.
    """
    ranges = [("0", "9") if each.isdigit() else (each, each) for each in first]
    sign = max(first.rfind("+"), first.rfind("-", len("2024-03-01")))
    if sign < 0:
        return ranges
    tens, ones, *minutes = (index for index in range(sign + 1, len(first)) if first[index].isdigit())
    ranges[tens] = (first[tens], first[tens])
    ranges[ones] = ("0", "9" if first[tens] == "0" else "7")
    if minutes:
        ranges[minutes[0]] = ("0", "5")
    return ranges


def instants_of_numbers(numbers: pa.Array, unit: TimeUnit) -> pa.TimestampArray:
    """Return the instants of numbers since 1970 without nulls, in microseconds rounded down.

    Raises:
        UnusualRowsError: if some of them are out of range.
    """
    values = numbers.cast(pa.int64()).to_numpy(zero_copy_only=False)
    if unit is TimeUnit.NANOSECONDS:
        is_valid, micros = values > -_MAX_EPOCH_US, values // 1_000
    else:
        factor = _FACTORS[unit]
        limit = _MAX_EPOCH_US // factor
        is_valid, micros = (values > -limit) & (values < limit), values * factor
    if not is_valid.all():
        msg = "a time is out of range"
        raise UnusualRowsError(msg, ~is_valid)
    return pa.array(micros, pa.int64()).view(INSTANT)
