"""Parse the range of days that a user requests."""

from __future__ import annotations

from typing import NamedTuple

from backstream.eventtime.instants import instant_ms
from backstream.eventtime.intervals import Interval, LocalDays, backfill_range

_FAR_PAST_MS, _FAR_FUTURE_MS = (instant_ms(text, "bound") for text in ("0001-01-01", "9999-12-31"))


class RequestedRange(NamedTuple):
    """A requested range, with its local days if the range has a time zone."""

    interval: Interval
    local_days: LocalDays | None = None


class RangeNames(NamedTuple):
    """The names of the two ends of a range, for error messages."""

    since: str = "since"
    until: str = "until"


DEFAULT_NAMES = RangeNames()


def parse_range(
    since: str, until: str, time_zone: str | None = None, names: RangeNames = DEFAULT_NAMES
) -> RequestedRange:
    """Return the range between two instants, or between two local dates of a time zone.

    Raises:
        SpecError: when an end is not an instant, or the range is empty or reversed.
    """
    if time_zone is None:
        return RequestedRange(backfill_range(instant_ms(since, names.since), instant_ms(until, names.until)))
    local_days = LocalDays.from_dates(since, until, time_zone)
    return RequestedRange(local_days.utc_days, local_days)


def parse_open_range(since: str | None, until: str | None, names: RangeNames = DEFAULT_NAMES) -> Interval | None:
    """Return the range between two instants, each of which is optional, or None without both.

    Raises:
        SpecError: when an end is not an instant, or the range is empty or reversed.
    """
    if since is None and until is None:
        return None
    since_ms = _FAR_PAST_MS if since is None else instant_ms(since, names.since)
    until_ms = _FAR_FUTURE_MS if until is None else instant_ms(until, names.until)
    return backfill_range(since_ms, until_ms)
