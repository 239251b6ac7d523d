"""Pieces of the SQL that DuckDB runs: names and literals, how records are read, and the arithmetic of windows.

Times are whole milliseconds, floored as Spark floors them. Windows are numbers in a grid. Columns of the source
get names of their own, so that none of them can hide another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

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
"""Columns that files are split by; their folders are named after them."""
PARTITION_TEXT = "CAST(source_partition AS VARCHAR)"
FILE_NUMBER = "file_index"
"""DuckDB's own column of a list of files; no source column may have that name."""
Groups = Sequence[tuple[Sequence[str], Sequence[str]]]
"""Files, together where they have the same columns, and these."""
_ICEBERG = {
    "string": "VARCHAR",
    "long": "BIGINT",
    "int": "INTEGER",
    "double": "DOUBLE",
    "float": "FLOAT",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamptz": "TIMESTAMP WITH TIME ZONE",
}


def quote_name(name: str) -> str:
    """Return a name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(value: str) -> str:
    """Return a string as a literal."""
    return "'" + value.replace("'", "''") + "'"


def select_list(columns: Mapping[str, str]) -> str:
    """Return a list of expressions with their names."""
    return ", ".join(f"{value} AS {quote_name(name)}" for name, value in columns.items())


def quote_path(path: str) -> str:
    """Return a path as a literal that means one file: DuckDB expands wildcards."""
    return quote_text("".join(f"[{each}]" if each in "*?[" else each for each in path))


def scan_query(groups: Groups, reading: ReadSpec, where: str, *more: str) -> str:
    """Return the rows of files that meet a condition, as events; `file` is the place in `files_of(groups)`.

    Args:
        groups: the files; a column that some lack is null there.
        reading: what is read.
        where: over the source's own columns.
        more: expressions over the source's own columns that are wanted, too, with their names.
    """
    before, found = 0, []
    for files, columns in groups:
        found.append(_scan_alike(files, columns, reading, where, [f"{FILE_NUMBER} + {before} AS file", *more]))
        before += len(files)
    return "\nUNION ALL\n".join(found)


def list_group_files(groups: Groups) -> list[str]:
    """Return the files in the order of their numbers."""
    return [file for files, _ in groups for file in files]


def _scan_alike(
    files: Sequence[str], columns: Sequence[str], reading: ReadSpec, where: str, more: Sequence[str]
) -> str:
    paths = ", ".join(quote_path(file) for file in files)
    present = [quote_name(name) for name in reading.types if name in columns]
    absent = [
        f"NULL::{duckdb_type(kind)} AS {quote_name(name)}"
        for name, kind in reading.types.items()
        if name not in columns
    ]
    # DuckDB numbers the files of a list.
    source = f"(SELECT {', '.join([*present, *absent, FILE_NUMBER])} FROM read_parquet([{paths}]))"
    values = [
        f"CAST({quote_name(name)} AS {duckdb_type(kind)}) AS {column_alias(reading, name)}"
        for name, kind in reading.types.items()
    ]
    event, arrival = quote_name(reading.event_time), quote_name(reading.arrival_time)
    partition = quote_name(reading.partition) if reading.partition else quote_text(ONLY_PARTITION)
    sequence = f"CAST({quote_name(reading.sequence)} AS BIGINT)" if reading.sequence else "0::BIGINT"
    named = ", ".join(
        [
            f"{_ms(event, is_after_1970=reading.valid.start_ms >= 0)} AS event_ms",
            f"{_ms(arrival)} AS arrival_ms",
            f"{partition} AS source_partition",
            f"{sequence} AS arrival_seq",
            *values,
            *more,
        ]
    )
    return f"SELECT {named} FROM {source} WHERE {where}"


def column_alias(reading: ReadSpec, name: str) -> str:
    """Return the name that a column of the source has among the columns of an event."""
    return f"c{list(reading.types).index(name)}"


def _ms(instant: str, *, is_after_1970: bool = False) -> str:
    """Milliseconds since 1970, floored: DuckDB's division truncates."""
    us = f"epoch_us({instant})"
    return f"({us} // 1000)" if is_after_1970 else f"(({us} - (({us} % 1000 + 1000) % 1000)) // 1000)"


def is_readable(reading: ReadSpec) -> str:
    """Return the condition that Spark's reasons for quarantine leave."""
    needed = [quote_name(reading.arrival_time)]
    needed += [quote_name(name) for name in (reading.partition, reading.sequence) if name]
    return " AND ".join(
        [_within(reading, reading.valid), *(f"{name} IS NOT NULL" for name in dict.fromkeys(needed))]
    )


def _within(reading: ReadSpec, interval: Interval) -> str:
    name = quote_name(reading.event_time)
    make = "make_timestamptz" if reading.types[reading.event_time] == "timestamp" else "make_timestamp"
    assert reading.types[reading.event_time] in TIMES  # noqa: S101 - the whitelist has asked
    return f"{name} >= {make}({interval.start_ms * 1000}) AND {name} < {make}({interval.end_ms * 1000})"


def readable_within(reading: ReadSpec, interval: Interval) -> str:
    """Return the condition of a record that is read, with an event time of the interval."""
    return f"{is_readable(reading)} AND {_within(reading, interval)}"


def buckets_query(reading: ReadSpec, groups: Groups, grid: BucketGrid) -> str:
    """Return the rows of the arrival index, each with the number of its file.

    Records that cannot be read have no place: of each file they are a row of nulls.
    """
    placed = ", ".join(
        f"CASE WHEN is_readable THEN {name} END AS {name}"
        for name in ("event_ms", "arrival_ms", "source_partition")
    )
    records = scan_query(groups, reading, "true", f"{_truth(is_readable(reading))} AS is_readable")
    cut_ms = floor_to_step("event_ms", grid.first_cut_ms, grid.step_ms)
    number, is_second = (
        f"({cut_ms} - {grid.first_cut_ms}) // {grid.step_ms}",
        f"event_ms - {cut_ms} >= {grid.second_cut_ms}",
    )
    columns = {
        "file": "file",
        "source_partition": "source_partition",
        "event_bucket": f"2 * ({number}) + ({is_second})::BIGINT",
        "arrival_bucket": f"{floor_to_step('arrival_ms', 0, grid.arrival_width_ms)} // {grid.arrival_width_ms}",
        "events": "count(*)",
        "first_event_ms": "min(event_ms)",
        "last_event_ms": "max(event_ms)",
        "first_arrival_ms": "min(arrival_ms)",
        "last_arrival_ms": "max(arrival_ms)",
    }
    wanted = ", ".join(f"{value} AS {name}" for name, value in columns.items())
    grouped = f"SELECT {wanted} FROM (SELECT file, {placed} FROM ({records})) GROUP BY 1, 2, 3, 4"
    return f"SELECT * REPLACE ({PARTITION_TEXT} AS source_partition) FROM ({grouped})"


def _truth(condition: str) -> str:
    """A condition that is false where it is not known."""
    return f"coalesce({condition}, false)"


def rest_query(task: RestTask, groups: Groups) -> str:
    """Return per file, partition and readability how many records are not within the task's interval."""
    reading = task.reading
    outside = f"NOT {_truth(readable_within(reading, task.interval))}"
    rows = scan_query(groups, reading, outside, f"{_truth(is_readable(reading))} AS is_readable")
    columns = f"file, {PARTITION_TEXT} AS source_partition, is_readable, count(*) AS events"
    return f"SELECT {columns} FROM ({rows}) GROUP BY file, source_partition, is_readable"


def slice_width(window: Tumbling | Sliding | Cumulate) -> int:
    """Return the widest stretch that no window begins or ends within, in ms."""
    if isinstance(window, Sliding):
        return math.gcd(window.size_ms, window.slide_ms)
    return window.step_ms if isinstance(window, Cumulate) else window.size_ms


def is_after(thresholds: TaskThresholds, which: str, place: Sequence[str]) -> str:
    """Return whether a place in arrival order comes after that of a threshold; null where there is none.

    Args:
        thresholds: the kind of their places.
        which: like `t_fired`.
        place: arrival time, sequence and partition.
    """
    at = thresholds.fired if which.endswith("fired") else thresholds.gone
    if not len(at.seq):
        return f"({place[0]} >= {which}_ms)"
    time_ms, seq, partition = place
    behind = f"({seq} > {which}_seq OR ({seq} = {which}_seq AND {partition} > {which}_partition))"
    return f"({time_ms} > {which}_ms OR ({time_ms} = {which}_ms AND {behind}))"


def window_number(grid: TaskGrid, end_ms: str) -> str:
    """Return the number of the window with an end."""
    return f"(({end_ms} - {grid.first_end_ms}) // {grid.step_ms})::INTEGER"


def window_step_ms(window: Tumbling | Sliding | Cumulate) -> int:
    """Return how far apart windows end, in ms."""
    return window.step_ms if isinstance(window, Cumulate) else time_step_ms(window)


def time_step_ms(window: Tumbling | Sliding | Cumulate) -> int:
    """Return how far apart windows start, in ms."""
    return window.slide_ms if isinstance(window, Sliding) else window.size_ms


def window_ends(window: Tumbling | Sliding | Cumulate, time_ms: str) -> tuple[str, str]:
    """Return the first and the last end of the windows that hold an instant."""
    if isinstance(window, Sliding):
        first = (
            f"({floor_to_step(time_ms, window.offset_ms + window.size_ms, window.slide_ms)} + {window.slide_ms})"
        )
        return first, f"({floor_to_step(time_ms, window.offset_ms, window.slide_ms)} + {window.size_ms})"
    width_ms = slice_width(window)
    first = f"({floor_to_step(time_ms, window.offset_ms, width_ms)} + {width_ms})"
    return first, f"({floor_to_step(time_ms, window.offset_ms, window.size_ms)} + {window.size_ms})"


def to_timestamp(time_ms: str) -> str:
    """Return an instant of milliseconds."""
    return f"make_timestamptz({time_ms} * 1000)"


def cast_columns(values: Mapping[str, str], output: TaskOutput) -> str:
    """Return the columns of a table, each of its type, and those by which its file is split."""
    found = [
        f"CAST({values[name]} AS {_ICEBERG.get(kind) or kind.upper()}) AS {quote_name(name)}"
        for name, kind, _ in output.columns
    ]
    return ", ".join([*found, *(f"{values[name]} AS {name}" for name in output.split_by)])


def chunk_number(start_ms: str, chunks: ChunkGrid) -> str:
    """Return the number of the chunk that answers for windows that start at an instant."""
    number = f"least(greatest({start_ms} - {chunks.start_ms}, 0) // {chunks.length_ms}, {chunks.count - 1})"
    return "0" if chunks.count == 1 else f"({number})::INTEGER"


def staging_columns(start_ms: str, chunks: ChunkGrid) -> dict[str, str]:
    """Return the columns that files are split by: of windows that start at an instant."""
    return {STAGING_CHUNK: chunk_number(start_ms, chunks), STAGING_DAY: f"CAST({to_timestamp(start_ms)} AS DATE)"}


def threshold_columns(table: str, thresholds: TaskThresholds) -> str:
    """Return the columns of thresholds that comparing asks for, under names of their own such as `t_fired_ms`."""
    parts = {
        "fired": ("ms", "seq", "partition") if len(thresholds.fired.seq) else ("ms",),
        "gone": ("ms", "seq", "partition") if len(thresholds.gone.seq) else ("ms",),
    }
    names = [f"{which}_{part}" for which, several in parts.items() for part in several]
    return ", ".join(f"{table}.{name} AS {table}_{name}" for name in names)


def floor_to_step(time_ms: str, offset_ms: int, size_ms: int) -> str:
    """Return the last multiple of a size, from an offset on, that is not after an instant; also before 1970."""
    into = f"((({time_ms} - {offset_ms}) % {size_ms}) + {size_ms}) % {size_ms}"
    return f"({time_ms} - {into})"
