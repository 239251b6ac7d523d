"""Which columns name an instant, told by their type before anything is read."""

from __future__ import annotations

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_INSTANTS = ("timestamp", "string")
"""Text is read record by record: what of it names no instant goes to quarantine."""


def reason_not_a_time(key: str, expression: str, kind: str, where: str = "") -> str | None:
    """Return what to say of a time that is no instant, with what to write instead; None: it is one.

    Args:
        key: of the definition, such as `source.event_time`.
        expression: its value.
        kind: the Spark SQL type of that.
        where: the definition's file.
    """
    if kind in _INSTANTS:
        return None
    hint = ""
    if kind in _INTEGERS:
        hint = f"\n\nhint: timestamp_millis({expression}) or timestamp_seconds({expression}) says the unit"
    if kind == "timestamp_ntz":
        utc = f"to_utc_timestamp(cast({expression} as timestamp), 'America/New_York')"
        hint = f"\n\nhint: {utc} says the zone"
    place = f" ({where})" if where else ""
    return f"{key} must be an instant, got {kind} from {expression!r}{place}{hint}"
