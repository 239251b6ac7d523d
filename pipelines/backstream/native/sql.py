"""Generate the SQL that DuckDB runs: names and literals, and the arithmetic of windows.

Times are whole milliseconds, rounded down as in Spark. Windows are numbers in a grid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backstream.eventtime.time_zones import TimeZone
from backstream.eventtime.windows import FixedWindow, Sliding
from backstream.native.task import ChunkGrid, TaskOutput
from backstream.watermarks.firing_times import FiringTimes, WindowGrid

STAGING_CHUNK, STAGING_DAY = "staging_chunk", "staging_day"
"""The columns by which files are split; the folders have their names."""
PARTITION_TEXT = "CAST(source_partition AS VARCHAR)"
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


_MAX_INTEGER = 2**31 - 1
_FIRST_INSTANT_MS = -(2**63) // 1000
"""A timestamp in DuckDB has 64 bits and counts microseconds."""


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


def is_true(condition: str) -> str:
    """Return the condition with false instead of null."""
    return f"coalesce({condition}, false)"


def is_after(firing_times: FiringTimes, which: str, place: Sequence[str]) -> str:
    """Return the condition that a position in arrival order is after a firing time; null without one.

    Args:
        firing_times: the firing times of all windows, which define the kind of positions.
        which: the prefix of the columns of the firing time, e.g., `t_fired`.
        place: the columns of arrival time, sequence, and partition.
    """
    positions = firing_times.fired if which.endswith("fired") else firing_times.cleaned_up
    if positions.are_ticks:
        return f"({place[0]} >= {which}_ms)"
    time_ms, seq, partition = place
    is_later_record = f"({seq} > {which}_seq OR ({seq} = {which}_seq AND {partition} > {which}_partition))"
    return f"({time_ms} > {which}_ms OR ({time_ms} = {which}_ms AND {is_later_record}))"


def window_number(grid: WindowGrid, end_ms: str) -> str:
    """Return the number of the window with an end."""
    return f"(({end_ms} - {grid.first_end_ms}) // {grid.step_ms})::{number_type(grid)}"


def number_type(grid: WindowGrid) -> str:
    """Return the type of the numbers of windows: the smaller one makes groups faster."""
    return "INTEGER" if grid.count <= _MAX_INTEGER else "BIGINT"


def window_start(window: FixedWindow, end_ms: str) -> str:
    """Return the start of the window with an end."""
    if window.windows_per_start == 1:
        return f"({end_ms} - {window.size_ms})"
    return floor_to_step(f"({end_ms} - 1)", window.offset_ms, window.size_ms)


def window_ends(window: FixedWindow, time_ms: str) -> tuple[str, str]:
    """Return the first and the last end of the windows that contain an instant."""
    if isinstance(window, Sliding):
        first = (
            f"({floor_to_step(time_ms, window.offset_ms + window.size_ms, window.slide_ms)} + {window.slide_ms})"
        )
        return first, f"({floor_to_step(time_ms, window.offset_ms, window.slide_ms)} + {window.size_ms})"
    width_ms = window.slice_ms
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


def floor_us(time_us: str, size_us: int) -> str:
    """Return the last multiple of a size that is not after an instant, both in microseconds."""
    return f"({time_us} - ({time_us} % {size_us} + {size_us}) % {size_us})"


def join_firing_times(rows: str, number: str, firing_times: FiringTimes, table: str = "t") -> str:
    """Return a query of rows `r` with the firing times of a window, null outside of the grid, as in `t_fired_ms`.

    Args:
        rows: the query of the rows.
        number: the number of the window, an expression of the rows.
        firing_times: the firing times of all windows, which are in the table `firing_times`.
        table: the prefix of the columns of the firing times.
    """
    # A search for a stretch costs a sort of the rows, a listed window none.
    kind, compare = ("LEFT", "=") if firing_times.is_listed else ("ASOF LEFT", ">=")
    columns = _firing_time_columns(table, firing_times)
    return (
        f"SELECT r.*, {columns} FROM ({rows}) r {kind} JOIN firing_times {table} ON {number} {compare} {table}.n"
    )


def _firing_time_columns(table: str, firing_times: FiringTimes) -> str:
    """Return the columns of firing times that `is_after` compares, with aliases such as `t_fired_ms`."""
    positions_by_name = {"fired": firing_times.fired, "cleaned_up": firing_times.cleaned_up}
    names = [
        f"{which}_{suffix}"
        for which, positions in positions_by_name.items()
        for suffix in (("ms",) if positions.are_ticks else ("ms", "seq", "partition"))
    ]
    return ", ".join(f"{table}.{name} AS {table}_{name}" for name in names)


def local_time(zone: TimeZone, time_ms: str) -> str:
    """Return the local time of an instant, in SQL that Spark has, too."""
    offsets = "".join(
        f" WHEN {time_ms} < {at_ms} THEN {offset_ms}"
        for at_ms, offset_ms in zip(zone.changes_ms, zone.offsets_ms, strict=False)
    )
    last_ms = zone.offsets_ms[-1]
    return f"({time_ms} + CASE{offsets} ELSE {last_ms} END)" if offsets else f"({time_ms} + {last_ms})"


def floor_to_step(time_ms: str, offset_ms: int, size_ms: int) -> str:
    """Return the last multiple of a size, from an offset on, that is not after an instant.

    A remainder in DuckDB has the sign of the dividend, so times are counted from a multiple before all instants.
    """
    first_ms = offset_ms + (_FIRST_INSTANT_MS - offset_ms) // size_ms * size_ms
    return f"({time_ms} - ({time_ms} + {-first_ms}) % {size_ms})"
