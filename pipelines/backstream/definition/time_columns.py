"""Check by their types which columns are instants, before any record is read."""

from __future__ import annotations

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_INSTANTS = ("timestamp", "string")
"""Accepted types. A text column is parsed per record; a record with an invalid instant is quarantined."""


def reason_not_a_time(key: str, expression: str, kind: str, where: str = "") -> str | None:
    """Return the error message for an expression that is not an instant, with a hint; None for an instant.

    Args:
        key: key of the definition, e.g., `source.event_time`.
        expression: value of the key.
        kind: Spark SQL type of the expression.
        where: file of the definition.
    """
    if kind in _INSTANTS:
        return None
    hint = ""
    if kind in _INTEGERS:
        hint = f"\n\nhint: use timestamp_millis({expression}) or timestamp_seconds({expression})"
    if kind == "timestamp_ntz":
        utc = f"to_utc_timestamp(cast({expression} as timestamp), 'America/New_York')"
        hint = f"\n\nhint: use {utc}"
    location = f" ({where})" if where else ""
    return f"{key} must be an instant, got {kind} from {expression!r}{location}{hint}"
