"""Generate queries of the records of files, in DuckDB's SQL.

Columns of the source get aliases, so that they cannot collide with other columns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import ONLY_PARTITION
from backstream.native.sql import (
    PARTITION_TEXT,
    floor_to_step,
    is_true,
    local_time,
    quote_name,
    quote_path,
    quote_text,
)
from backstream.native.task import TIMES, ReadSpec, RestTask, duckdb_type
from backstream.source.arrival_index import BucketGrid

FILE_NUMBER = "file_index"
"""DuckDB's own column with the number of a file in a list; no source column may have this name."""
ROW_NUMBER = "file_row_number"
"""DuckDB's own column with the position of a row in its file; no source column may have this name."""


INSTANT_OF_EVENT = "instant_ms"
"""The column of the instant of an event, if event times are local."""


class ScanGroup(NamedTuple):
    """Files with the same columns. The columns in `complete` have no nulls, according to the footers."""

    files: Sequence[str]
    columns: Sequence[str]
    complete: frozenset[str]


Groups = Sequence[ScanGroup]


def scan_query(groups: Groups, reading: ReadSpec, interval: Interval | None = None, *more: str) -> str:
    """Return a query of the readable records, which `is_readable` defines.

    `file` is the position in `list_group_files(groups)`.

    Args:
        groups: the files; a column that a file lacks is null.
        reading: the columns to read.
        interval: the interval of event time to which the records belong, if any.
        more: further expressions with their names, over the columns of the source and `ROW_NUMBER`.
    """
    if reading.zone:
        reading = replace(reading, zone=reading.zone.around(interval or reading.zone.local_span(reading.valid)))
    conditions = [
        is_readable(reading, group.complete)
        if interval is None
        else _readable_within(reading, interval, group.complete)
        for group in groups
    ]
    return _scan(groups, reading, conditions, *more)


def _scan(groups: Groups, reading: ReadSpec, conditions: Sequence[str], *more: str) -> str:
    """Return a query of the records that meet the condition of their group.

    `more` are further expressions over the columns of the source, with their names.
    """
    first_number, queries = 0, []
    for group, where in zip(groups, conditions, strict=True):
        number = f"{FILE_NUMBER} + {first_number} AS file"
        queries.append(_scan_group(group.files, group.columns, reading, where, [number, *more]))
        first_number += len(group.files)
    return "\nUNION ALL\n".join(queries)


def list_group_files(groups: Groups) -> list[str]:
    """Return the files in the order of their numbers."""
    return [file for group in groups for file in group.files]


def _scan_group(
    files: Sequence[str], columns: Sequence[str], reading: ReadSpec, where: str, more: Sequence[str]
) -> str:
    paths = ", ".join(quote_path(file) for file in files)
    existing = [quote_name(name) for name in reading.types if name in columns]
    missing = [
        f"NULL::{duckdb_type(type_name)} AS {quote_name(name)}"
        for name, type_name in reading.types.items()
        if name not in columns
    ]
    # Both numbers are available because DuckDB numbers the files of a list, and the rows of a file.
    source = f"(SELECT {', '.join([*existing, *missing, FILE_NUMBER, ROW_NUMBER])} FROM read_parquet([{paths}]))"
    values = [
        f"CAST({quote_name(name)} AS {duckdb_type(type_name)}) AS {column_alias(reading, name)}"
        for name, type_name in reading.types.items()
    ]
    event, arrival = quote_name(reading.event_time), quote_name(reading.arrival_time)
    partition = quote_name(reading.partition) if reading.partition else quote_text(ONLY_PARTITION)
    sequence = f"CAST({quote_name(reading.sequence)} AS BIGINT)" if reading.sequence else "0::BIGINT"
    selected = ", ".join(
        [
            f"{_event_ms(reading, event)} AS event_ms",
            *([f"{time_in_ms(event)} AS {INSTANT_OF_EVENT}"] if reading.zone else []),
            f"{time_in_ms(arrival)} AS arrival_ms",
            f"{partition} AS source_partition",
            f"{sequence} AS arrival_seq",
            *values,
            *more,
        ]
    )
    return f"SELECT {selected} FROM {source} WHERE {where}"


def _event_ms(reading: ReadSpec, event: str) -> str:
    """Return the event time in ms: an instant, or local time."""
    instant_ms = time_in_ms(event, is_after_1970=reading.valid.start_ms >= 0)
    return local_time(reading.zone, instant_ms) if reading.zone else instant_ms


def column_alias(reading: ReadSpec, name: str) -> str:
    """Return the alias of a source column."""
    return f"c{list(reading.types).index(name)}"


def is_counted(reading: ReadSpec) -> str:
    """Return the condition of a readable record that windows get; other ones only move the watermark."""
    return column_alias(reading, reading.filter) if reading.filter else "true"


def time_in_ms(instant: str, *, is_after_1970: bool = False) -> str:
    """Return milliseconds since 1970, rounded down; DuckDB's division truncates towards zero."""
    us = f"epoch_us({instant})"
    return f"({us} // 1000)" if is_after_1970 else f"(CASE WHEN {us} < 0 THEN {us} - 999 ELSE {us} END // 1000)"


def is_readable(reading: ReadSpec, complete: Collection[str] = ()) -> str:
    """Return the condition of a record that is not quarantined, as in Spark.

    Columns in `complete` have no nulls, so they are not read for this condition.
    """
    required = dict.fromkeys(name for name in (reading.arrival_time, reading.partition, reading.sequence) if name)
    return " AND ".join(
        [
            is_within(reading, reading.valid),
            *(f"{quote_name(name)} IS NOT NULL" for name in required if name not in complete),
        ]
    )


def is_within(reading: ReadSpec, interval: Interval) -> str:
    """Return the condition that the event time of a record is in an interval; null without an event time."""
    name = quote_name(reading.event_time)
    function = "make_timestamptz" if reading.types[reading.event_time] == "timestamp" else "make_timestamp"
    assert reading.types[reading.event_time] in TIMES  # noqa: S101 - the whitelist has checked the type
    return f"{name} >= {function}({interval.start_ms * 1000}) AND {name} < {function}({interval.end_ms * 1000})"


def _readable_within(reading: ReadSpec, interval: Interval, complete: Collection[str] = ()) -> str:
    """Return the condition of a readable record with an event time in the interval; see `is_readable`."""
    if reading.zone is None:
        return f"{is_readable(reading, complete)} AND {is_within(reading, interval)}"
    near = is_within(reading, reading.zone.instant_span(interval))
    event_ms = _event_ms(replace(reading, zone=reading.zone.around(interval)), quote_name(reading.event_time))
    is_inside = f"{event_ms} >= {interval.start_ms} AND {event_ms} < {interval.end_ms}"
    return f"{is_readable(reading, complete)} AND {near} AND {is_inside}"


def buckets_query(reading: ReadSpec, groups: Groups, grid: BucketGrid) -> str:
    """Return a query of the rows of the arrival index, each with the number of its file.

    Unreadable records have no position in arrival order: those of a file are one row with nulls.
    """
    positions = ", ".join(
        f"CASE WHEN is_readable THEN {name} END AS {name}"
        for name in ("event_ms", "arrival_ms", "source_partition")
    )
    records = _scan(groups, reading, ["true"] * len(groups), f"{is_true(is_readable(reading))} AS is_readable")
    start_ms = floor_to_step("event_ms", grid.first_cut_ms, grid.step_ms)
    number, is_second_half = (
        f"({start_ms} - {grid.first_cut_ms}) // {grid.step_ms}",
        f"event_ms - {start_ms} >= {grid.second_cut_ms}",
    )
    columns = {
        "file": "file",
        "source_partition": "source_partition",
        "event_bucket": f"2 * ({number}) + ({is_second_half})::BIGINT",
        "arrival_bucket": f"{floor_to_step('arrival_ms', 0, grid.arrival_width_ms)} // {grid.arrival_width_ms}",
        "events": "count(*)",
        "first_event_ms": "min(event_ms)",
        "last_event_ms": "max(event_ms)",
        "first_arrival_ms": "min(arrival_ms)",
        "last_arrival_ms": "max(arrival_ms)",
    }
    selected = ", ".join(f"{value} AS {name}" for name, value in columns.items())
    grouped = f"SELECT {selected} FROM (SELECT file, {positions} FROM ({records})) GROUP BY 1, 2, 3, 4"
    return f"SELECT * REPLACE ({PARTITION_TEXT} AS source_partition) FROM ({grouped})"


def rest_query(task: RestTask, groups: Groups) -> str:
    """Return a query of record counts outside of the task's interval, per file, partition, and readability."""
    reading = task.reading
    outside = f"NOT {is_true(_readable_within(reading, task.interval))}"
    is_counted = f"{is_true(is_readable(reading))} AS is_readable"
    rows = _scan(groups, reading, [outside] * len(groups), is_counted)
    columns = f"file, {PARTITION_TEXT} AS source_partition, is_readable, count(*) AS events"
    return f"SELECT {columns} FROM ({rows}) GROUP BY file, source_partition, is_readable"
