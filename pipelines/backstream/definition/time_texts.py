"""Define the ISO 8601 texts that are instants, for all engines.

An instant is a whole date, or a date with at least hours and minutes. No part of it is guessed: `2024`, `2024-03`,
and `08:00` are no instants. Spark matches texts with the same regular expressions, which mean the same in Python
and in Java.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Self
from zoneinfo import ZoneInfo

WHITESPACE = " \t\n\r\f\v"
"""The characters that have no meaning around the text of a time."""
_DATE = r"((?!0000)[0-9]{4})(-?)(0[1-9]|1[0-2])\2(0[1-9]|[12][0-9]|3[01])"
_HOUR = "[01][0-9]|2[0-3]"
_MIDNIGHT = "24(?=:?00(?::?00(?:[.,]0+)?)?(?:[^0-9:.,]|$))"
_OFFSET = "[+-](?:(?:0[0-9]|1[0-7])(?::?[0-5][0-9])?|18(?::?00)?)"
_GO_ZONE = "(?<=[0-9]) (?:[A-Z]{3,5}|[+-][0-9]{2}(?:[0-9]{2})?)(?: m=[+-][0-9.]+)?"
_REGION = (
    "(?:Africa|America|Antarctica|Arctic|Asia|Atlantic|Australia|Brazil|Canada|Chile|Etc|Europe|Indian|Mexico|Pacific"
    "|US)/[A-Za-z0-9_+/-]+"
)
_ZONE = (
    rf"(?: ?([Zz]|UTC|GMT|{_OFFSET})(?:{_GO_ZONE}|\[[A-Za-z0-9_+:/-]+\])?"
    rf"| ({_REGION})|\[({_REGION}|UTC|GMT)\])?"
)


def _form_with_hour(hour: str) -> str:
    time = rf"({hour})(:?)([0-5][0-9])(?:\6([0-5][0-9])(?:[.,]([0-9]{{1,9}}))?)?"
    return f"^{_DATE}[Tt ]{time}{_ZONE}$"


DATE_FORM = "^(?!0000)[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])$"
"""The form of a whole date."""
TIME_FORM = _form_with_hour(_HOUR)
"""The form of a date with a time.

Its groups are the year, a separator, the month, the day, the hour, a separator, the minute, the second, the
fraction, the offset, and the region of a time zone after a space or in brackets.
"""
MIDNIGHT_FORM = _form_with_hour(_MIDNIGHT)
"""The form of the end of a day, `24:00`, with the same groups."""
USUAL_FORM = (
    "^(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.][0-9]{1,9})?"
    "(?:Z|[+-][0-9]{2}:[0-9]{2})?$"
)
"""The form of most texts, whose numbers can be too large. It is quick to match."""
LOCAL_FORM = r"^\s*[0-9-]{8,10}(?:[Tt ][0-9:.,]+)?\s*$"
"""The form of texts without a time zone, if they are instants."""
_ANY_TIME = re.compile(_form_with_hour(f"{_HOUR}|{_MIDNIGHT}"))
_ANY_DATE = re.compile(DATE_FORM)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class WrittenTime:
    """An instant that a text names: microseconds since 1970, rounded down.

    `has_zone` is False if the text has a local time; `epoch_us` is then the instant of this time in UTC.
    """

    epoch_us: int
    has_zone: bool

    @classmethod
    def from_parts(cls, year: int, month: int, day: int, time_us: int, zone: str | None) -> Self | None:
        """Return an instant by its parts; None if there is no such date or time zone.

        Args:
            year: the year from 1 to 9999.
            month: the month.
            day: the day of the month.
            time_us: the microseconds since midnight, up to a whole day.
            zone: an offset from UTC such as `+0100`, a name of UTC, or an IANA name; None: the time is local.
        """
        try:
            days = date(year, month, day).toordinal() - _EPOCH_DAY
        except ValueError:
            return None
        local_us = days * _DAY_US + time_us
        offset_us = 0 if zone is None else _offset_us(local_us, zone)
        return None if offset_us is None else cls(local_us - offset_us, has_zone=zone is not None)


def parse_iso(text: str) -> WrittenTime | None:
    """Return the instant of an ISO 8601 text; None if it is none."""
    stripped = text.strip(WHITESPACE)
    if _ANY_DATE.fullmatch(stripped):
        year, month, day = stripped.split("-")
        return WrittenTime.from_parts(int(year), int(month), int(day), 0, None)
    found = _ANY_TIME.fullmatch(stripped)
    if found is None:
        return None
    year, _, month, day, hour, _, minute, second, fraction, offset, *regions = found.groups()
    seconds = int(hour) * 3_600 + int(minute) * 60 + int(second or 0)
    time_us = seconds * 1_000_000 + int(f"{fraction or '':0<6.6}")
    return WrittenTime.from_parts(int(year), int(month), int(day), time_us, offset or regions[0] or regions[1])


def _offset_us(local_us: int, zone: str) -> int | None:
    """Return the offset of a zone from UTC at a local time; None if there is no such zone.

    A local time that exists twice is the first one. One that the clocks skip has the offset before the change.
    """
    if zone[0] in "+-":
        digits = zone[1:].replace(":", "")
        seconds = int(digits[:2]) * 3_600 + int(digits[2:4] or 0) * 60 + int(digits[4:6] or 0)
        return (-seconds if zone[0] == "-" else seconds) * 1_000_000
    if zone.upper() in ("Z", "UTC", "GMT"):
        return 0
    try:
        region = ZoneInfo(zone)
        local = datetime.fromtimestamp(local_us // 1_000_000, UTC).replace(tzinfo=region)
    except (KeyError, ValueError, OSError):  # a name of no zone, of a file outside of the zones, of a folder
        return None
    offset = local.utcoffset()
    return None if offset is None else int(offset.total_seconds()) * 1_000_000
