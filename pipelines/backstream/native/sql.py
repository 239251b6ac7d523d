"""Generate the SQL that DuckDB runs: names and literals, scans of records, and the arithmetic of windows.

Times are whole milliseconds, rounded down as in Spark. Windows are numbers in a grid. Columns of the source get
aliases, so that they cannot collide with other columns.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import ONLY_PARTITION
from backstream.eventtime.windows import Cumulate, Sliding, Tumbling
from backstream.native.task import (
    TIMES,
    ChunkGrid,
    ReadSpec,
    RestTask,
    TaskGrid,
    TaskOutput,
    TaskThresholds,
    duckdb_type,
)
from backstream.source.arrival_index import BucketGrid

STAGING_CHUNK, STAGING_DAY = "staging_chunk", "staging_day"
"""The columns by which files are split; the folders have their names."""
PARTITION_TEXT = "CAST(source_partition AS VARCHAR)"
FILE_NUMBER = "file_index"
"""DuckDB's own column with the number of a file in a list; no source column may have this name."""
ICEBERG_TYPES = {
    "string": "VARCHAR",
    "long": "BIGINT",
    "int": "INTEGER",
    "double": "DOUBLE",
    "float": "FLOAT",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamptz": "TIMESTAMP WITH TIME ZONE",
}
"""The types of DuckDB by those of Iceberg."""


_FIRST_INSTANT_MS = -(2**63) // 1000
"""A timestamp in DuckDB has 64 bits and counts microseconds."""


class ScanGroup(NamedTuple):
    """Files with the same columns. The columns in `complete` have no nulls, according to the footers."""

    files: Sequence[str]
    columns: Sequence[str]
    complete: frozenset[str]


Groups = Sequence[ScanGroup]


def quote_name(name: str) -> str:
    """Return a name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(value: str) -> str:
    """Return a string as a literal."""
    return "'" + value.replace("'", "''") + "'"


def select_list(columns: Mapping[str, str]) -> str:
    """Return expressions with their names as the list of a SELECT."""
    return ", ".join(f"{value} AS {quote_name(name)}" for name, value in columns.items())


def quote_path(path: str) -> str:
    """Return a path as a literal for exactly one file, with DuckDB's wildcards escaped."""
    return quote_text("".join(f"[{character}]" if character in "*?[" else character for character in path))


def scan_query(groups: Groups, reading: ReadSpec, interval: Interval | None = None) -> str:
    """Return a query of the readable records, which `is_readable` defines.

    `file` is the position in `list_group_files(groups)`.

    Args:
        groups: the files; a column that a file lacks is null.
        reading: the columns to read.
        interval: the interval of event time to which the records belong, if any.
    """
    return _scan(
        groups,
        reading,
        [
            _readable_within(reading, interval, group.complete)
            if interval
            else is_readable(reading, group.complete)
            for group in groups
        ],
    )


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
    # FILE_NUMBER is available because DuckDB numbers the files of a list.
    source = f"(SELECT {', '.join([*existing, *missing, FILE_NUMBER])} FROM read_parquet([{paths}]))"
    values = [
        f"CAST({quote_name(name)} AS {duckdb_type(type_name)}) AS {column_alias(reading, name)}"
        for name, type_name in reading.types.items()
    ]
    event, arrival = quote_name(reading.event_time), quote_name(reading.arrival_time)
    partition = quote_name(reading.partition) if reading.partition else quote_text(ONLY_PARTITION)
    sequence = f"CAST({quote_name(reading.sequence)} AS BIGINT)" if reading.sequence else "0::BIGINT"
    selected = ", ".join(
        [
            f"{_to_ms(event, is_after_1970=reading.valid.start_ms >= 0)} AS event_ms",
            f"{_to_ms(arrival)} AS arrival_ms",
            f"{partition} AS source_partition",
            f"{sequence} AS arrival_seq",
            *values,
            *more,
        ]
    )
    return f"SELECT {selected} FROM {source} WHERE {where}"


def column_alias(reading: ReadSpec, name: str) -> str:
    """Return the alias of a source column."""
    return f"c{list(reading.types).index(name)}"


def _to_ms(instant: str, *, is_after_1970: bool = False) -> str:
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
    return f"{is_readable(reading, complete)} AND {is_within(reading, interval)}"


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


def is_true(condition: str) -> str:
    """Return the condition with false instead of null."""
    return f"coalesce({condition}, false)"


def rest_query(task: RestTask, groups: Groups) -> str:
    """Return a query of record counts outside of the task's interval, per file, partition, and readability."""
    reading = task.reading
    outside = f"NOT {is_true(_readable_within(reading, task.interval))}"
    is_counted = f"{is_true(is_readable(reading))} AS is_readable"
    rows = _scan(groups, reading, [outside] * len(groups), is_counted)
    columns = f"file, {PARTITION_TEXT} AS source_partition, is_readable, count(*) AS events"
    return f"SELECT {columns} FROM ({rows}) GROUP BY file, source_partition, is_readable"


def slice_width(window: Tumbling | Sliding | Cumulate) -> int:
    """Return the greatest slice width, in ms, for which windows start and end only at slice bounds."""
    if isinstance(window, Sliding):
        return math.gcd(window.size_ms, window.slide_ms)
    return window.step_ms if isinstance(window, Cumulate) else window.size_ms


def is_after(thresholds: TaskThresholds, which: str, place: Sequence[str]) -> str:
    """Return the condition that a position in arrival order is after a threshold; null without a threshold.

    Args:
        thresholds: the thresholds, which define the kind of positions.
        which: the prefix of the threshold's columns, e.g., `t_fired`.
        place: the columns of arrival time, sequence, and partition.
    """
    positions = thresholds.fired if which.endswith("fired") else thresholds.cleaned_up
    if not len(positions.seq):
        return f"({place[0]} >= {which}_ms)"
    time_ms, seq, partition = place
    is_later_record = f"({seq} > {which}_seq OR ({seq} = {which}_seq AND {partition} > {which}_partition))"
    return f"({time_ms} > {which}_ms OR ({time_ms} = {which}_ms AND {is_later_record}))"


def window_number(grid: TaskGrid, end_ms: str) -> str:
    """Return the number of the window with an end."""
    return f"(({end_ms} - {grid.first_end_ms}) // {grid.step_ms})::INTEGER"


def window_step_ms(window: Tumbling | Sliding | Cumulate) -> int:
    """Return the distance of window ends, in ms."""
    return window.step_ms if isinstance(window, Cumulate) else time_step_ms(window)


def time_step_ms(window: Tumbling | Sliding | Cumulate) -> int:
    """Return the distance of window starts, in ms."""
    return window.slide_ms if isinstance(window, Sliding) else window.size_ms


def window_ends(window: Tumbling | Sliding | Cumulate, time_ms: str) -> tuple[str, str]:
    """Return the first and the last end of the windows that contain an instant."""
    if isinstance(window, Sliding):
        first = (
            f"({floor_to_step(time_ms, window.offset_ms + window.size_ms, window.slide_ms)} + {window.slide_ms})"
        )
        return first, f"({floor_to_step(time_ms, window.offset_ms, window.slide_ms)} + {window.size_ms})"
    width_ms = slice_width(window)
    first = f"({floor_to_step(time_ms, window.offset_ms, width_ms)} + {width_ms})"
    return first, f"({floor_to_step(time_ms, window.offset_ms, window.size_ms)} + {window.size_ms})"


def to_timestamp(time_ms: str) -> str:
    """Return an instant in milliseconds as a timestamp."""
    return f"make_timestamptz({time_ms} * 1000)"


def cast_columns(values: Mapping[str, str], output: TaskOutput) -> str:
    """Return the columns of a table in their types, and those by which its file is split."""
    columns = [
        f"CAST({values[name]} AS {ICEBERG_TYPES.get(type_name) or type_name.upper()}) AS {quote_name(name)}"
        for name, type_name, _ in output.columns
    ]
    return ", ".join([*columns, *(f"{values[name]} AS {name}" for name in output.split_by)])


def chunk_number(start_ms: str, chunks: ChunkGrid) -> str:
    """Return the number of the chunk that owns windows with a start."""
    number = f"least(greatest({start_ms} - {chunks.start_ms}, 0) // {chunks.length_ms}, {chunks.count - 1})"
    return "0" if chunks.count == 1 else f"({number})::INTEGER"


def staging_columns(start_ms: str, chunks: ChunkGrid) -> dict[str, str]:
    """Return the values of the columns by which files are split, for windows with a start."""
    return {STAGING_CHUNK: chunk_number(start_ms, chunks), STAGING_DAY: f"CAST({to_timestamp(start_ms)} AS DATE)"}


def threshold_columns(table: str, thresholds: TaskThresholds) -> str:
    """Return the columns of thresholds that `is_after` compares, with aliases such as `t_fired_ms`."""
    suffixes_by_threshold = {
        "fired": ("ms", "seq", "partition") if len(thresholds.fired.seq) else ("ms",),
        "cleaned_up": ("ms", "seq", "partition") if len(thresholds.cleaned_up.seq) else ("ms",),
    }
    names = [f"{which}_{suffix}" for which, suffixes in suffixes_by_threshold.items() for suffix in suffixes]
    return ", ".join(f"{table}.{name} AS {table}_{name}" for name in names)


def floor_to_step(time_ms: str, offset_ms: int, size_ms: int) -> str:
    """Return the last multiple of a size, from an offset on, that is not after an instant.

    A remainder in DuckDB has the sign of the dividend, so times are counted from a multiple before all instants.
    """
    first_ms = offset_ms + (_FIRST_INSTANT_MS - offset_ms) // size_ms * size_ms
    return f"({time_ms} - ({time_ms} + {-first_ms}) % {size_ms})"
