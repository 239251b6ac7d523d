"""Explain why no column of a sample is taken for the event time, and what the user can do."""

from __future__ import annotations

import re
from collections.abc import Sequence

from backstream.eventtime.instants import instant_text
from backstream.source.archive.columns import ColumnProfile
from backstream.source.archive.name_words import is_named_count, is_named_time
from backstream.source.archive.sampled import shown_text
from backstream.source.archive.times import FIRST_YEAR, LAST_YEAR, SampledTime, read_as_time

_MAX_NAMES = 20
_DATE_OR_CLOCK = re.compile(r"\d{1,4}[-/.:]\d{1,2}|\d{8}|[A-Z][a-z]{2} +\d{1,2}\b")


def explain_unread(columns: Sequence[ColumnProfile], location: str) -> str:
    """Return the message for an archive without plausible times: the likeliest column, a value, and a remedy."""
    names = ", ".join(shown_text(column.path) for column in columns[:_MAX_NAMES])
    likeliest = max(columns, key=_likelihood, default=None)
    fact, hint = _explain(likeliest) if likeliest and _likelihood(likeliest) > 0 else ("", _GENERAL_HINT)
    return (
        f"no column of {location} holds times: timestamps, ISO 8601, a pattern of Spark, or numbers since 1970"
        f" (--from){fact}\n  the columns are {names}\n\nhint: {hint}"
    )


_GENERAL_HINT = "name the column of the event time with --event-time COLUMN"


def _likelihood(column: ColumnProfile) -> int:
    """Return how likely a column holds times, by its name and its values; 0 if nothing shows it."""
    if not column.present or column.kind in ("boolean", "binary") or "<" in column.kind:
        return 0
    is_text = column.kind == "string" and bool(_DATE_OR_CLOCK.search(str(column.present[0])))
    is_typed = column.kind in ("timestamp", "timestamp_ntz", "date")
    return 4 * is_named_time(column) + 2 * is_text + 3 * is_typed - 3 * is_named_count(column)


def _explain(column: ColumnProfile) -> tuple[str, str]:
    """Return what the likeliest column holds, and what to do about it."""
    path, value = shown_text(column.path), shown_text(column.present[0])
    time = read_as_time(column)
    if time is not None and time.present_ms:
        return f"\n  the likeliest is {path}, but {_doubt(time)}", f"take it with --event-time {path}"
    likeliest = f"\n  the likeliest is {path}, e.g., {value!r}"
    write = f"write a definition with --event-time {path}, and complete"
    if time is not None and time.lacks == "expression":
        return f"{likeliest}, which has no year", f"{write} event_time with SQL that adds the year"
    return likeliest, f"{write} event_time_{'pattern' if column.kind == 'string' else 'unit'}"


def _doubt(time: SampledTime) -> str:
    """Return why a column that can be read was not taken: its years, or its other values."""
    first, last = instant_text(min(time.present_ms)), instant_text(max(time.present_ms))
    if unread := sum(time.unread.values()):
        text = shown_text(min(time.unread))
        return f"{unread:,} of its {len(time.column.present):,} values cannot be read, e.g., {text!r}"
    if time.present_ms and time.outside:
        values = zip(time.column.values, time.times_ms, strict=True)
        text = shown_text(next(value for value, at_ms in values if value is not None and at_ms is None))
        return (
            f"as {time.form} {len(time.outside):,} of its {len(time.column.present):,} values are outside of"
            f" {FIRST_YEAR} to {LAST_YEAR}, e.g., {text!r}"
        )
    return f"its times are {first} to {last}, and plausible years are {FIRST_YEAR} to {LAST_YEAR}"
