"""Write the unreadable records of files as rows of the table of quarantined records.

The texts are those of Spark for numbers, texts, booleans, dates, and timestamps. Spark writes these records if
executors share the home.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.definition.prepared_columns import (
    ARRIVAL_TEXT,
    EVENT_TEXT,
    FILE,
    LINE,
    PREPARED_COLUMNS,
    REASON,
    RECORD,
)
from backstream.native.record_scans import is_readable, is_within
from backstream.native.sql import STAGING_CHUNK, cast_columns, is_true, quote_name, quote_path, quote_text
from backstream.native.task import ReadSpec, TaskOutput, duckdb_type


class QuarantinedFile(NamedTuple):
    """A local file with unreadable records, its location, and the number of the chunk that owns these records."""

    path: str
    location: str
    chunk: int


def quarantine_query(reading: ReadSpec, files: Sequence[QuarantinedFile], output: TaskOutput) -> str:
    """Return a query of the rows of the table for all unreadable records of some files."""
    return "\nUNION ALL\n".join(_query_file(reading, file, output) for file in files)


def _query_file(reading: ReadSpec, file: QuarantinedFile, output: TaskOutput) -> str:
    schema = pq.read_schema(file.path)

    def first_of(name: str, expression: str) -> str:
        """Return the value that the preparation of the source left for a record; another one without it."""
        return f"coalesce({quote_name(name)}, {expression})" if name in schema.names else expression

    missing = [
        f"NULL::{duckdb_type(type_name)} AS {quote_name(name)}"
        for name, type_name in reading.types.items()
        if name not in schema.names
    ]
    values = {
        "reason": first_of(REASON, _reason(reading)),
        "source_partition": f"{quote_name(reading.partition)}::VARCHAR" if reading.partition else "NULL",
        "event_time": first_of(EVENT_TEXT, _time_text(reading, reading.event_time)),
        "arrival_time": first_of(
            ARRIVAL_TEXT, _time_text(reading, reading.arrival_time) if _has_arrival(reading) else "NULL"
        ),
        "record": first_of(RECORD, _record(schema)),
        "file": first_of(FILE, quote_text(file.location)),
        "line": quote_name(LINE) if LINE in schema.names else "NULL",
        "run_id": quote_text(output.run_id),
        STAGING_CHUNK: str(file.chunk),
    }
    rows = f"SELECT {', '.join(['*', *missing])} FROM read_parquet({quote_path(file.path)})"
    return f"SELECT {cast_columns(values, output)} FROM ({rows}) WHERE NOT {is_true(is_readable(reading))}"


def _has_arrival(reading: ReadSpec) -> bool:
    """Return whether the definition has an arrival time; otherwise it is the event time."""
    return reading.arrival_time != reading.event_time


def _reason(reading: ReadSpec) -> str:
    """Return the first reason why a record is unreadable, in the order of Spark."""
    names: Mapping[str, str | None] = {
        "null_source_partition": reading.partition,
        "null_sequence": reading.sequence,
        "null_arrival_time": reading.arrival_time if _has_arrival(reading) else None,
    }
    cases = [
        f"WHEN {quote_name(reading.event_time)} IS NULL THEN 'null_event_time'",
        f"WHEN NOT ({is_within(reading, reading.valid)}) THEN 'absurd_event_time'",
        *(f"WHEN {quote_name(name)} IS NULL THEN {quote_text(reason)}" for reason, name in names.items() if name),
    ]
    return f"CASE {' '.join(cases)} END"


def _time_text(reading: ReadSpec, name: str) -> str:
    column = quote_name(name)
    in_utc = f"{column} AT TIME ZONE 'UTC'" if reading.types[name] == "timestamp" else column
    return f"CAST({in_utc} AS VARCHAR)"


def _record(schema: pa.Schema) -> str:
    """Return all columns of a record as JSON."""
    fields = ", ".join(f"{quote_name(field.name)} := {_json_value(field)}" for field in _unique(schema))
    return f"to_json(struct_pack({fields}))::VARCHAR"


def _unique(schema: pa.Schema) -> Iterable[pa.Field]:
    return {field.name: field for field in schema if field.name not in PREPARED_COLUMNS}.values()


def _json_value(field: pa.Field) -> str:
    column = quote_name(field.name)
    if pa.types.is_floating(field.type):
        # JSON has no such numbers. By way of its text, a narrow number keeps its digits.
        word = f"CASE WHEN isnan({column}) THEN 'NaN' WHEN {column} > 0 THEN 'Infinity' ELSE '-Infinity' END"
        number = f"to_json({column}::VARCHAR::DOUBLE)"
        return f"CASE WHEN {column} IS NULL OR isfinite({column}) THEN {number} ELSE to_json({word}) END"
    if not pa.types.is_timestamp(field.type):
        return column
    in_utc, zone = (f"{column} AT TIME ZONE 'UTC'", " || 'Z'") if field.type.tz else (column, "")
    return f"strftime({in_utc}, '%Y-%m-%dT%H:%M:%S.%g'){zone}"
