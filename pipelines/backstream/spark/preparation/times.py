"""Compute the instants of times in any form: timestamps, numbers, and text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from backstream.definition.source_section import Source
from backstream.definition.values import TimeUnit
from backstream.errors import SpecError
from backstream.spark.preparation.expressions import resolve_expression
from backstream.spark.preparation.settings import Preparation
from backstream.spark.schemas import int64_literal, integer_quotient

_MICROS: Mapping[TimeUnit, int] = {
    TimeUnit.SECONDS: 1_000_000,
    TimeUnit.MILLISECONDS: 1_000,
    TimeUnit.MICROSECONDS: 1,
}
_MAX_EPOCH_US = 2**62
_ZONE = r"(?i)(z|utc|gmt|[+-]\d{2}(:?\d{2})?|\[[^\]]+\]|[a-z]+/[a-z_]+)\s*$"
"""Pattern of the end of a text that names its time zone."""


@dataclass(frozen=True, slots=True)
class WrittenTime:
    """The settings of a time of the source: `event_time` or `arrival_time`."""

    name: str
    expression: str
    unit: TimeUnit | None
    pattern: str | None

    @classmethod
    def event(cls, source: Source) -> Self:
        """Return the event time of a source."""
        return cls("event_time", source.event_time, source.event_time_unit, source.event_time_pattern)

    @classmethod
    def arrival(cls, source: Source) -> Self | None:
        """Return the arrival time of a source; None if it has none."""
        if source.arrival_time is None:
            return None
        return cls("arrival_time", source.arrival_time, source.arrival_time_unit, source.arrival_time_pattern)


def parse_time(rows: DataFrame, time: WrittenTime, preparation: Preparation) -> tuple[Column, Column]:
    """Return a time as it is written, and as an instant; the instant is null if it cannot be parsed."""
    key, zone = f"source.{time.name}", preparation.source.time_zone
    written = resolve_expression(rows, key, time.expression, preparation)
    kind = rows.select(written).schema.fields[0].dataType
    if isinstance(kind, TimestampType):
        return written, written
    if isinstance(kind, TimestampNTZType):
        if zone is None:
            raise _time_error(key, time.expression, kind, 'set source.time_zone, e.g., "UTC"', preparation)
        return written, F.to_utc_timestamp(written.cast("timestamp"), zone)
    if isinstance(kind, IntegralType | DoubleType | FloatType) or kind.typeName() == "decimal":
        if time.unit is None:
            hint = f'set {key}_unit to "s", "ms", "us", or "ns"'
            raise _time_error(key, time.expression, kind, hint, preparation)
        return written, instant_of_number(written, kind, time.unit)
    if isinstance(kind, StringType):
        return written, _instant_of_text(written, time, zone)
    raise _time_error(
        key, time.expression, kind, "use an expression that is a timestamp, a number, or text", preparation
    )


def _time_error(key: str, expression: str, kind: DataType, hint: str, preparation: Preparation) -> SpecError:
    return SpecError(
        f"{key} must be an instant, got {kind.simpleString()} from {expression!r} ({preparation.where})"
        f"\n\nhint: {hint}"
    )


def instant_of_number(number: Column, kind: DataType, unit: TimeUnit) -> Column:
    """Return the instant of a number since 1970, in microseconds rounded down; null if it is out of range."""
    if not isinstance(kind, IntegralType):
        return _instant_of_decimal(number.try_cast("decimal(38,6)"), unit)
    whole = number.cast("long")
    if unit is TimeUnit.NANOSECONDS:
        is_valid = whole > F.lit(-_MAX_EPOCH_US)
        rounded_down = whole - F.pmod(whole, int64_literal(1_000))
        return F.timestamp_micros(F.when(is_valid, integer_quotient(rounded_down, int64_literal(1_000))))
    factor = _MICROS[unit]
    is_valid = F.abs(F.greatest(whole, int64_literal(-_MAX_EPOCH_US))) < F.lit(_MAX_EPOCH_US // factor)
    return F.timestamp_micros(F.when(is_valid, whole * int64_literal(factor)))


def _instant_of_decimal(number: Column, unit: TimeUnit) -> Column:
    micros = number / F.lit(1_000) if unit is TimeUnit.NANOSECONDS else number * F.lit(_MICROS[unit])
    is_valid = F.abs(micros) < F.lit(_MAX_EPOCH_US)
    return F.timestamp_micros(F.when(is_valid, F.floor(micros).cast("long")))


def _instant_of_text(text: Column, time: WrittenTime, zone: str | None) -> Column:
    if time.unit is not None:
        return _instant_of_decimal(F.trim(text).try_cast("decimal(38,6)"), time.unit)
    parsed = F.try_to_timestamp(text, F.lit(time.pattern)) if time.pattern else F.try_to_timestamp(text)
    if zone is None:
        return parsed
    return F.when(text.rlike(_ZONE), parsed).otherwise(F.to_utc_timestamp(parsed, zone))
