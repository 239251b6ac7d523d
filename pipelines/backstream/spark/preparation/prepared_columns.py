"""Compute the columns of prepared files from raw records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Self, cast

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegralType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from backstream.chunks.preparation.settings import MALFORMED, WORKING_COLUMNS, Preparation
from backstream.definition.prepared import column_of_path, list_paths
from backstream.definition.prepared_columns import (
    ARRIVAL_TEXT,
    ARRIVAL_TIME,
    EVENT_TEXT,
    EVENT_TIME,
    FILE,
    FILTER,
    LINE,
    MALFORMED_RECORD,
    MARKER,
    PARTITION,
    PREPARED_COLUMNS,
    REASON,
    RECORD,
    SEQUENCE,
)
from backstream.definition.source_section import Source
from backstream.definition.values import TimeUnit
from backstream.errors import SpecError, format_problems
from backstream.eventtime.records import ONLY_PARTITION
from backstream.eventtime.union import SEPARATOR
from backstream.source.column_types import quote_column, reason_not_prepared_time
from backstream.source.raw_files import TEXT_FORMATS
from backstream.spark.schemas import int64_literal, integer_quotient
from backstream.spark.source import marker_ms_column
from backstream.spark.time_texts import instant_of_text

IS_KEPT = "prepared_is_kept"
"""Column with whether a record meets `source.where`, if there is one."""
_MICROS: Mapping[TimeUnit, int] = {
    TimeUnit.SECONDS: 1_000_000,
    TimeUnit.MILLISECONDS: 1_000,
    TimeUnit.MICROSECONDS: 1,
}
_MAX_EPOCH_US = 2**62


def add_derived_columns(rows: DataFrame, preparation: Preparation) -> DataFrame:
    """Add the columns of `[source.derive]`, each over the columns of the files and the earlier ones."""
    source = preparation.source
    for name, expression in source.derive.items():
        rows = rows.withColumn(name, _resolve_expression(rows, f"source.derive.{name}", expression, preparation))
    return rows


def select_prepared_columns(rows: DataFrame, preparation: Preparation) -> DataFrame:
    """Select the columns of prepared files; with `source.where`, also `IS_KEPT`."""
    source = preparation.source
    times = [(_WrittenTime.event(source), EVENT_TIME, EVENT_TEXT)]
    if arrival := _WrittenTime.arrival(source):
        times.append((arrival, ARRIVAL_TIME, ARRIVAL_TEXT))
    malformed = F.col(MALFORMED) if MALFORMED in rows.columns else F.lit(None).cast("string")
    payload, is_text = _without_other_bytes(rows, _payload(rows, preparation), preparation.source)
    reasons = [F.when(malformed.isNotNull() | ~is_text, F.lit(MALFORMED_RECORD))]
    instants: dict[str, Column] = {}
    texts: dict[str, Column] = {}
    for time, column, text_column in times:
        written, parsed = _parse_time(rows, time, preparation)
        if text_column in rows.columns:  # a declared time, which is null if its text is no time
            written = F.coalesce(F.col(text_column), written.cast("string"))
        instant = F.col(column)
        instants[column] = F.when(malformed.isNull() & is_text, parsed)
        texts[text_column] = written.cast("string")
        reasons += [
            F.when(written.isNull(), F.lit(f"null_{time.name}")),
            F.when(instant.isNull(), F.lit(f"unparsable_{time.name}")),
        ]
    reason = F.coalesce(*reasons)
    whole = F.to_json(F.struct(*map(F.col, map(quote_column, _names(rows)))), {"ignoreNullFields": "false"})
    if RECORD in rows.columns:
        whole = F.coalesce(F.col(RECORD), whole)
    columns = {name: F.when(reason.isNull(), F.col(name)) for name in instants}
    columns |= payload
    if source.name:
        columns |= _columns_of_union(rows, preparation, F.when(reason.isNull(), F.col(EVENT_TIME)))
    columns |= {name: F.when(reason.isNotNull(), F.make_valid_utf8(text)) for name, text in texts.items()}
    columns[RECORD] = F.when(reason.isNotNull(), F.make_valid_utf8(F.coalesce(malformed, whole)))
    columns[REASON] = reason
    if FILE in rows.columns:  # a transformation may remove it
        columns[FILE] = F.col(FILE)
    columns[LINE] = F.lit(None).cast("long")  # `number_malformed_lines` sets it
    if source.where:
        condition = _resolve_condition(rows, "source.where", source.where, preparation)
        columns[IS_KEPT] = malformed.isNotNull() | condition
    if section := preparation.definition.filter:
        condition = _resolve_condition(rows, "filter.where", section.where, preparation)
        columns[FILTER] = F.when(reason.isNull(), condition)
    # Conditions use an instant, too. Spark parses a text once if the instant is a column, and else once per use.
    return rows.withColumns(instants).select(*(column.alias(name) for name, column in columns.items()))


def _without_other_bytes(
    rows: DataFrame, payload: Mapping[str, Column], source: Source
) -> tuple[dict[str, Column], Column]:
    """Return the columns with null for texts that are not UTF-8, and whether all texts of a record are UTF-8.

    The bytes of text files are checked before.
    """
    kinds = rows.select(*(column.alias(name) for name, column in payload.items())).schema if payload else ()
    texts = {field.name: payload[field.name] for field in kinds if "string" in field.dataType.simpleString()}
    if source.format in TEXT_FORMATS or not texts:
        return dict(payload), F.expr("true")
    checks = {name: column.isNull() | F.is_valid_utf8(column.cast("string")) for name, column in texts.items()}
    kept = {name: F.when(checks[name], column) for name, column in texts.items()}
    return {**payload, **kept}, reduce(and_, checks.values())


def _names(rows: DataFrame) -> list[str]:
    """Return the names of the columns of the files."""
    return [name for name in rows.columns if name not in WORKING_COLUMNS]


def _columns_of_union(rows: DataFrame, preparation: Preparation, event: Column) -> dict[str, Column]:
    """Return the columns that all sources of a union have: partition, sequence, and the watermark of a record."""
    source, watermark = preparation.source, preparation.definition.watermark
    sequence, partition = F.lit(0).cast("long"), F.lit(ONLY_PARTITION)
    if source.sequence:
        sequence = F.col(_quote_path(rows, source.sequence)).try_cast("long")
    if source.partition:
        partition = F.col(_quote_path(rows, source.partition)).cast("string")
    marker = F.lit(None).cast("timestamp")
    if watermark.marker:
        marker = F.timestamp_millis(marker_ms_column(rows, watermark.marker, event, watermark.delay))
    return {
        PARTITION: F.concat(F.lit(f"{source.name}{SEPARATOR}"), partition),
        SEQUENCE: sequence,
        MARKER: F.when(event.isNotNull(), marker),
    }


def _payload(rows: DataFrame, preparation: Preparation) -> dict[str, Column]:
    """Return the columns that a result needs, each as a plain column."""
    payload: dict[str, Column] = {}
    paths = list_paths(preparation.definition)
    if preparation.definition.reads_all_columns:
        paths += [name for name in _names(rows) if name not in paths and "." not in name]
    for path in paths:
        name = column_of_path(path)
        if name.lower() in PREPARED_COLUMNS:
            msg = f"column {name!r} cannot be used, because backstream reserves this name ({preparation.where})"
            raise SpecError(msg)
        if name in payload:
            msg = (
                f"{path!r} and another column of the source both become the column {name!r}"
                f" ({preparation.where})\n\nhint: give one of them another name in [source.derive]"
            )
            raise SpecError(msg)
        payload[name] = _resolve_expression(rows, path, _quote_path(rows, path), preparation)
    return payload


def _quote_path(rows: DataFrame, path: str) -> str:
    """Return the SQL for a column with this name, or else for a dotted path into a column."""
    is_column = path.lower() in map(str.lower, rows.columns)
    return quote_column(path) if is_column else ".".join(map(quote_column, path.split(".")))


def _resolve_expression(rows: DataFrame, key: str, expression: str, preparation: Preparation) -> Column:
    """Return an expression over the columns of the files.

    Raises:
        SpecError: with the key, and the columns of the files, if Spark cannot resolve it.
    """
    try:
        column = F.expr(expression)
        rows.select(column).schema  # noqa: B018 - it resolves the columns
    except AnalysisException as error:
        reason = _first_sentence(error)
        names = ", ".join(_names(rows))
        msg = (
            f"{key} cannot be computed from the source: {reason} ({preparation.where})"
            f"\n\nhint: the source has {names}"
        )
        raise SpecError(msg) from None
    return column


def _resolve_condition(rows: DataFrame, key: str, condition: str, preparation: Preparation) -> Column:
    """Return whether a record meets a condition; null counts as false."""
    column = _resolve_expression(rows, key, condition, preparation)
    kind = rows.select(column).schema.fields[0].dataType
    if not isinstance(kind, BooleanType):
        given = f"{kind.simpleString()} from {condition!r}"
        msg = f"{key} must be true or false, got {given} ({preparation.where})"
        raise SpecError(msg)
    return F.coalesce(column, F.expr("false"))


def _first_sentence(error: AnalysisException) -> str:
    """Return the reason of an error of Spark, in one line."""
    return " ".join(str(error).partition("SQLSTATE")[0].split())


@dataclass(frozen=True, slots=True)
class _WrittenTime:
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


def _parse_time(rows: DataFrame, time: _WrittenTime, preparation: Preparation) -> tuple[Column, Column]:
    """Return a time as it is written, and as an instant; the instant is null if it cannot be parsed."""
    key, zone = f"source.{time.name}", preparation.source.time_zone
    written = _resolve_expression(rows, key, time.expression, preparation)
    kind = rows.select(written).schema.fields[0].dataType
    if problem := reason_not_prepared_time(key, time.expression, kind.simpleString(), unit=time.unit, zone=zone):
        raise SpecError(format_problems("problems", [problem], preparation.where))
    if isinstance(kind, TimestampType):
        return written, written
    if isinstance(kind, TimestampNTZType):
        return written, F.to_utc_timestamp(written.cast("timestamp"), str(zone))
    if not isinstance(kind, StringType):
        return written, instant_of_number(written, kind, cast("TimeUnit", time.unit))
    if time.unit is not None:
        return written, _instant_of_decimal(F.trim(written).try_cast("decimal(38,6)"), time.unit)
    return written, instant_of_text(written, time.pattern, zone)


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
