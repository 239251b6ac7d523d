"""Convert texts to instants on Spark, by the grammar of `definition/time_texts.py` and `time_patterns.py`."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from backstream.definition.time_patterns import pattern_form
from backstream.definition.time_texts import (
    DATE_FORM,
    LOCAL_FORM,
    MIDNIGHT_FORM,
    TIME_FORM,
    USUAL_FORM,
    WHITESPACE,
)

_DATE = "$1-$3-$4"
_ZONE = "$10 $11$12"


def instant_of_text(text: Column, pattern: str | None, zone: str | None) -> Column:
    """Return the instant of a text, rounded down to microseconds; null if it is none.

    Args:
        text: the column.
        pattern: the pattern of its texts; None for ISO 8601.
        zone: the time zone of texts that are written without one; None for UTC.
    """
    parsed = _instant_of_iso(text) if pattern is None else _instant_of_pattern(text, pattern)
    if zone is None:
        return parsed
    return F.when(is_local(text, pattern), F.to_utc_timestamp(parsed, zone)).otherwise(parsed)


def is_local(text: Column, pattern: str | None) -> Column:
    """Return whether a text, if it is an instant, is written without a time zone."""
    if pattern is None:
        return text.rlike(LOCAL_FORM)
    form = pattern_form(pattern)
    if form.has_zone is not None:
        return F.lit(not form.has_zone)
    zones = "".join(f"${number}" for number in form.zone_groups)
    return F.regexp_replace(_trim(text), form.expression, zones) == F.lit("")


def _instant_of_iso(text: Column) -> Column:
    """Return the instant of an ISO 8601 text.

    Spark's own parser also reads a part of a time, so it gets only texts that are whole. Only a text in an unusual
    form is changed, to one that the parser reads.
    """
    usual = F.when(text.rlike(USUAL_FORM), text)
    return F.coalesce(F.try_to_timestamp(usual), F.try_to_timestamp(_usual_text(_trim(text))))


def _usual_text(text: Column) -> Column:
    """Return an ISO 8601 text with `-`, `:`, seconds, and a fraction; null for another text."""
    time = F.regexp_replace(text, TIME_FORM, f"{_DATE}T$5:$7:$8.$90{_ZONE}")  # a zero behind the fraction, $9
    with_seconds = F.replace(time, F.lit(":."), F.lit(":00."))
    last_day = F.regexp_replace(text, MIDNIGHT_FORM, _DATE).try_cast("date")
    midnight = F.concat(
        F.date_add(last_day, 1).cast("string"),
        F.lit("T00:00:00.0"),
        F.regexp_replace(text, MIDNIGHT_FORM, _ZONE),
    )
    found = (
        F.when(text.rlike(DATE_FORM), text)
        .when(text.rlike(TIME_FORM), with_seconds)
        .when(text.rlike(MIDNIGHT_FORM), midnight)
    )
    return F.replace(found, F.lit("0z"), F.lit("0Z"))


def _instant_of_pattern(text: Column, pattern: str) -> Column:
    whole = _trim(text)
    form = pattern_form(pattern)
    if any(field[0] in "zV" for field in form.fields):
        # Spark takes PST for the time of Los Angeles, also in summer, and guesses the zone of IST.
        whole = F.when(whole.rlike(form.expression), whole)
    return F.try_to_timestamp(whole, F.lit(pattern.strip(WHITESPACE)))


def _trim(text: Column) -> Column:
    return F.btrim(text, F.lit(WHITESPACE))
