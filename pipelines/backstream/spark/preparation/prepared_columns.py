"""Compute the columns of prepared files from raw records."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backstream.definition.prepared import column_of_path, list_paths
from backstream.definition.prepared_columns import (
    ARRIVAL_TEXT,
    ARRIVAL_TIME,
    EVENT_TEXT,
    EVENT_TIME,
    FILE,
    LINE,
    MALFORMED_RECORD,
    MARKER,
    PARTITION,
    PREPARED_COLUMNS,
    REASON,
    RECORD,
    SEQUENCE,
)
from backstream.errors import SpecError
from backstream.eventtime.records import ONLY_PARTITION
from backstream.eventtime.union import SEPARATOR
from backstream.source.column_types import quote_column
from backstream.spark.preparation.expressions import resolve_expression
from backstream.spark.preparation.settings import MALFORMED, Preparation
from backstream.spark.preparation.times import WrittenTime, parse_time
from backstream.spark.source import marker_ms_column

IS_KEPT = "prepared_is_kept"
"""Column with whether a record meets `source.where`, if there is one."""


def add_derived_columns(rows: DataFrame, preparation: Preparation) -> DataFrame:
    """Add the columns of `[source.derive]`, each over the columns of the files and the earlier ones."""
    source = preparation.source
    for name, expression in source.derive.items():
        rows = rows.withColumn(name, resolve_expression(rows, f"source.derive.{name}", expression, preparation))
    return rows


def select_prepared_columns(rows: DataFrame, preparation: Preparation) -> DataFrame:
    """Select the columns of prepared files; with `source.where`, also `IS_KEPT`."""
    source = preparation.source
    times = [(WrittenTime.event(source), EVENT_TIME, EVENT_TEXT)]
    if arrival := WrittenTime.arrival(source):
        times.append((arrival, ARRIVAL_TIME, ARRIVAL_TEXT))
    malformed = F.col(MALFORMED) if MALFORMED in rows.columns else F.lit(None).cast("string")
    reasons = [F.when(malformed.isNotNull(), F.lit(MALFORMED_RECORD))]
    instants: dict[str, Column] = {}
    texts: dict[str, Column] = {}
    for time, column, text_column in times:
        written, parsed = parse_time(rows, time, preparation)
        instant = F.col(column)
        instants[column] = F.when(malformed.isNull(), parsed)
        texts[text_column] = written.cast("string")
        reasons += [
            F.when(written.isNull(), F.lit(f"null_{time.name}")),
            F.when(instant.isNull(), F.lit(f"unparsable_{time.name}")),
        ]
    reason = F.coalesce(*reasons)
    whole = F.to_json(
        F.struct(*(F.col(quote_column(name)) for name in rows.columns if name not in (MALFORMED, FILE))),
        {"ignoreNullFields": "false"},
    )
    columns = {name: F.when(reason.isNull(), F.col(name)) for name in instants}
    columns |= _payload(rows, preparation)
    if source.name:
        columns |= _columns_of_union(rows, preparation, F.when(reason.isNull(), F.col(EVENT_TIME)))
    columns |= {name: F.when(reason.isNotNull(), F.make_valid_utf8(text)) for name, text in texts.items()}
    columns[RECORD] = F.when(reason.isNotNull(), F.make_valid_utf8(F.coalesce(malformed, whole)))
    columns[REASON] = reason
    if FILE in rows.columns:  # a transformation may remove it
        columns[FILE] = F.col(FILE)
    columns[LINE] = F.lit(None).cast("long")  # `number_malformed_lines` sets it
    if source.where:
        condition = resolve_expression(rows, "source.where", source.where, preparation)
        columns[IS_KEPT] = malformed.isNotNull() | F.coalesce(condition, F.expr("false"))
    # Conditions use an instant, too. Spark parses a text once if the instant is a column, and else once per use.
    return rows.withColumns(instants).select(*(column.alias(name) for name, column in columns.items()))


def _columns_of_union(rows: DataFrame, preparation: Preparation, event: Column) -> dict[str, Column]:
    """Return the columns that all sources of a union have: partition, sequence, and the watermark of a record."""
    source, watermark = preparation.source, preparation.definition.watermark
    sequence = F.col(source.sequence).try_cast("long") if source.sequence else F.lit(0).cast("long")
    partition = F.col(source.partition).cast("string") if source.partition else F.lit(ONLY_PARTITION)
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
        paths += [name for name in rows.columns if name not in {MALFORMED, FILE, *paths} and "." not in name]
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
        quoted = ".".join(map(quote_column, path.split(".")))
        payload[name] = resolve_expression(rows, path, quoted, preparation)
    return payload
