"""The SQL that DuckDB runs for one task.

Times are whole milliseconds, floored as Spark floors them. Windows are numbers in a grid. Columns of the source get
names of their own, so that none of them can hide another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from backstream.core.arrivals import BucketGrid
from backstream.core.fates import Fate
from backstream.core.instants import MAX_MS
from backstream.core.intervals import Interval
from backstream.core.records import ONLY_PARTITION
from backstream.core.tables import PANES_KEPT, RECORD_COUNT, pane_count
from backstream.core.windows import Cumulate, Sliding, Tumbling
from backstream.native.task import Chunks, Grid, Output, Reading, RestTask, Thresholds, WindowTask
from backstream.native.types import TIMES, Aggregate, duckdb_type

FATES = (Fate.ON_TIME, Fate.LATE, Fate.DROPPED)
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
_PLACE = ("arrival_ms", "arrival_seq", "source_partition")
_PARTITION = "CAST(source_partition AS VARCHAR)"
_LATE = ("late_arrival_time_ms", "late_arrival_seq", "late_source_partition")


def quoted(name: str) -> str:
    """Return a name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """Return a string as a literal."""
    return "'" + value.replace("'", "''") + "'"


def literal_path(path: str) -> str:
    """Return a path as a literal that means one file: DuckDB expands wildcards."""
    return text("".join(f"[{each}]" if each in "*?[" else each for each in path))


STAGING_CHUNK, STAGING_DAY = "staging_chunk", "staging_day"
"""Columns that files are split by; their folders are named after them."""
FILE_NUMBER = "file_index"
"""DuckDB's own column of a list of files; no source column may have that name."""
Groups = Sequence[tuple[Sequence[str], Sequence[str]]]
"""Files, together where they have the same columns, and these."""


def scan(groups: Groups, reading: Reading, where: str, *more: str) -> str:
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


def files_of(groups: Groups) -> list[str]:
    """Return the files in the order of their numbers."""
    return [file for files, _ in groups for file in files]


def _scan_alike(
    files: Sequence[str], columns: Sequence[str], reading: Reading, where: str, more: Sequence[str]
) -> str:
    paths = ", ".join(literal_path(file) for file in files)
    present = [quoted(name) for name in reading.types if name in columns]
    absent = [
        f"NULL::{duckdb_type(kind)} AS {quoted(name)}"
        for name, kind in reading.types.items()
        if name not in columns
    ]
    # DuckDB numbers the files of a list.
    source = f"(SELECT {', '.join([*present, *absent, FILE_NUMBER])} FROM read_parquet([{paths}]))"
    values = [
        f"CAST({quoted(name)} AS {duckdb_type(kind)}) AS {_alias(reading, name)}"
        for name, kind in reading.types.items()
    ]
    event, arrival = quoted(reading.event_time), quoted(reading.arrival_time)
    partition = quoted(reading.partition) if reading.partition else text(ONLY_PARTITION)
    sequence = f"CAST({quoted(reading.sequence)} AS BIGINT)" if reading.sequence else "0::BIGINT"
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


def _alias(reading: Reading, name: str) -> str:
    return f"c{list(reading.types).index(name)}"


def _ms(instant: str, *, is_after_1970: bool = False) -> str:
    """Milliseconds since 1970, floored: DuckDB's division truncates."""
    us = f"epoch_us({instant})"
    return f"({us} // 1000)" if is_after_1970 else f"(({us} - (({us} % 1000 + 1000) % 1000)) // 1000)"


def is_readable(reading: Reading) -> str:
    """Return the condition that Spark's reasons for quarantine leave."""
    needed = [quoted(reading.arrival_time)]
    needed += [quoted(name) for name in (reading.partition, reading.sequence) if name]
    return " AND ".join(
        [_within(reading, reading.valid), *(f"{name} IS NOT NULL" for name in dict.fromkeys(needed))]
    )


def _within(reading: Reading, interval: Interval) -> str:
    name = quoted(reading.event_time)
    make = "make_timestamptz" if reading.types[reading.event_time] == "timestamp" else "make_timestamp"
    assert reading.types[reading.event_time] in TIMES  # noqa: S101 - the whitelist has asked
    return f"{name} >= {make}({interval.start_ms * 1000}) AND {name} < {make}({interval.end_ms * 1000})"


def readable_within(reading: Reading, interval: Interval) -> str:
    """Return the condition of a record that is read, with an event time of the interval."""
    return f"{is_readable(reading)} AND {_within(reading, interval)}"


def buckets(reading: Reading, groups: Groups, grid: BucketGrid) -> str:
    """Return the rows of the arrival index, each with the number of its file; unreadable records have no place."""
    names = ("event_ms", "arrival_ms", "source_partition")
    placed = ", ".join(f"CASE WHEN is_readable THEN {name} END AS {name}" for name in names)
    records = f"SELECT file, {placed} FROM ({scan(groups, reading, 'true', f'{_truth(is_readable(reading))} AS is_readable')})"
    cut_ms = floored("event_ms", grid.first_cut_ms, grid.step_ms)
    arrived_ms = floored("arrival_ms", 0, grid.arrival_width_ms)
    event_bucket = f"2 * (({cut_ms} - {grid.first_cut_ms}) // {grid.step_ms}) + (event_ms - {cut_ms} >= {grid.second_cut_ms})::BIGINT"
    return (
        "SELECT file, CAST(source_partition AS VARCHAR) AS source_partition, event_bucket, arrival_bucket, events,"
        " first_event_ms, last_event_ms, first_arrival_ms, last_arrival_ms FROM ("
        f"SELECT file, source_partition, {event_bucket} AS event_bucket,"
        f" {arrived_ms} // {grid.arrival_width_ms} AS arrival_bucket, count(*) AS events,"
        " min(event_ms) AS first_event_ms, max(event_ms) AS last_event_ms,"
        f" min(arrival_ms) AS first_arrival_ms, max(arrival_ms) AS last_arrival_ms FROM ({records})"
        " GROUP BY 1, 2, 3, 4)"
    )


def _truth(condition: str) -> str:
    """A condition that is false where it is not known."""
    return f"coalesce({condition}, false)"


def rest(task: RestTask, groups: Groups) -> str:
    """Return per file, partition and readability how many records are not within the task's interval."""
    reading = task.reading
    outside = f"NOT {_truth(readable_within(reading, task.interval))}"
    rows = scan(groups, reading, outside, f"{_truth(is_readable(reading))} AS is_readable")
    columns = "file, CAST(source_partition AS VARCHAR) AS source_partition, is_readable, count(*) AS events"
    return f"SELECT {columns} FROM ({rows}) GROUP BY file, source_partition, is_readable"


class WindowQueries:
    """The queries of one `WindowTask` over a table `thresholds` and the files' rows."""

    def __init__(self, task: WindowTask, groups: Groups) -> None:
        self._task, self._groups, self._grid = task, groups, task.grid
        self._window = task.grid.window

    def counts(self) -> str:
        """Return the records of the stretch by slice, source partition and fate: the columns of `Counts.rows`."""
        task, width_ms = self._task, slice_width_ms(self._window)
        slice_ms = floored("event_ms", self._window.offset_ms, width_ms)
        start_ms = floored("slice_start_ms", self._window.offset_ms, every_ms(self._window))
        records, fate = self._judged(())
        late: list[str] = []
        if task.cell_late:
            earliest, _ = ends(self._window, "event_ms")
            records = (
                f"SELECT r.*, {self._columns_of('e')} FROM ({records}) r LEFT JOIN thresholds e"
                f" ON e.n = greatest({self._number(earliest)}, 0)"
            )
            late = [
                f"CASE WHEN {self._after('e_fired')} THEN {place} END AS {name}" for place, name in self._places()
            ]
        names = [name for _, name in self._places()] if late else []
        grouped = ["slice_start_ms", "source_partition", "fate", *names]
        marked = ", ".join(
            [
                f"{slice_ms} AS slice_start_ms",
                "source_partition",
                f"({fate})::TINYINT AS fate",
                *late,
                "arrival_ms",
            ]
        )
        fates = (
            "CASE fate " + " ".join(f"WHEN {code} THEN {text(each)}" for code, each in enumerate(FATES)) + " END"
        )
        columns = [
            "slice_start_ms AS event_time_ms",
            "CAST(source_partition AS VARCHAR) AS source_partition",
            f"{fates} AS fate",
            f"{chunk_of(start_ms, task.chunks)} AS chunk_number",
            *names,
            "events",
            "first_arrival_ms",
            "last_arrival_ms",
        ]
        groups = (
            f"SELECT {', '.join(grouped)}, count(*) AS events, min(arrival_ms) AS first_arrival_ms,"
            f" max(arrival_ms) AS last_arrival_ms FROM (SELECT {marked} FROM ({records})) GROUP BY {', '.join(grouped)}"
        )
        return f"SELECT {', '.join(columns)} FROM ({groups})"

    def dropped(self) -> str:
        """Return the columns of the table of dropped records, of those that the chunks answer for."""
        task = self._task
        assert task.dropped is not None  # noqa: S101 - asked for by a replay only
        records, fate = self._judged(task.keys)
        start_ms = floored("event_ms", self._window.offset_ms, every_ms(self._window))
        known = {
            "event_time": instant("event_ms"),
            "arrival_time": instant("arrival_ms"),
            "source_partition": "source_partition",
            "arrival_seq": "arrival_seq",
            "gone_at": instant(f"nullif(t_gone_ms, {MAX_MS})"),
            "run_id": text(task.windows.run_id),
            **{key: _alias(task.reading, key) for key in task.keys},
            **staging(start_ms, task.chunks),
        }
        owned = f"{start_ms} >= {task.owned.start_ms} AND {start_ms} < {task.owned.end_ms}"
        return f"SELECT {cast(known, task.dropped)} FROM ({records}) WHERE ({fate}) = 2 AND {owned}"

    def _judged(self, columns: Sequence[str]) -> tuple[str, str]:
        """The records of the stretch, and their fate as a place in `FATES`."""
        start_ms = floored("event_ms", self._window.offset_ms, every_ms(self._window))
        number = self._number(f"({start_ms} + {self._window.size_ms})")
        records = f"SELECT *, {number} AS n FROM ({self._records(self._task.stretch, columns)})"
        if self._task.thresholds is None:
            return records, "0"
        joined = f"SELECT r.*, {self._columns_of('t')} FROM ({records}) r LEFT JOIN thresholds t USING (n)"
        fate = f"CASE WHEN NOT {self._after('t_fired')} THEN 0 WHEN NOT {self._after('t_gone')} THEN 1 ELSE 2 END"
        return joined, fate

    def recomputed(self) -> str:
        """Return the columns of the table of windows."""
        task = self._task
        keys, names = self._keys(), self._key_names()
        if isinstance(self._window, Tumbling):
            values = [f"{_call(each, self._column(each))} AS {_value(each)}" for each in task.aggregates]
            grouped = (
                f"SELECT {', '.join(['n', *keys, 'count(*) AS record_count', *values])} FROM ({self._numbered()})"
            )
            return self._placed(f"{grouped} GROUP BY {', '.join(['n', *names])}", self._result_values())
        slices = self._sliced(None)
        merged = ["sum(events)::BIGINT AS record_count", *self._merged("true", "")]
        rows = f"SELECT {', '.join(['n', *names, *merged])} FROM ({slices}) GROUP BY {', '.join(['n', *names])}"
        return self._placed(rows, self._result_values())

    def panes(self) -> str:
        """Return the columns of the table of panes."""
        task, names = self._task, self._key_names()
        counts, values = [], []
        if isinstance(self._window, Tumbling):
            rows = (
                f"SELECT r.*, NOT {self._after('t_fired')} AS is_on_time, NOT {self._after('t_gone')} AS is_accepted"
                f" FROM (SELECT r.*, {self._columns_of('t')} FROM ({self._numbered()}) r JOIN thresholds t USING (n)) r"
            )
            for pane, condition in _IN_PANE.items():
                only = f" FILTER (WHERE {condition})" if condition else ""
                counts.append(f"count(*){only} AS {pane_count(pane)}")
                values += [
                    f"{_call(each, self._column(each), only)} AS {quoted(f'{each.name}__{pane}')}"
                    for each in task.aggregates
                ]
            keys = self._keys()
        else:
            early = f"{_LATE[0]} IS NULL"
            fired = self._after("t_fired", [name for _, name in self._places()])
            gone = self._after("t_gone", [name for _, name in self._places()])
            rows = (
                f"SELECT r.*, {early} OR NOT {fired} AS is_on_time, {early} OR NOT {gone} AS is_accepted"
                f" FROM (SELECT r.*, {self._columns_of('t')} FROM ({self._sliced(task.thresholds)}) r"
                " JOIN thresholds t USING (n)) r"
            )
            for pane, condition in _IN_PANE.items():
                only = f" FILTER (WHERE {condition})" if condition else ""
                counts.append(f"coalesce(sum(events){only}, 0)::BIGINT AS {pane_count(pane)}")
                values += self._merged(condition or "true", f"__{pane}")
            keys = names
        grouped = (
            f"SELECT {', '.join(['n', *keys, *counts, *values])} FROM ({rows}) GROUP BY {', '.join(['n', *names])}"
        )
        told = {}
        for pane in PANES_KEPT:
            for each in task.aggregates:
                column = f"{each.name}__{pane}"
                value = (
                    quoted(column) if isinstance(self._window, Tumbling) else self._merged_value(each, f"__{pane}")
                )
                told[column] = f"CASE WHEN {pane_count(pane)} > 0 THEN {value} END"
            told[pane_count(pane)] = pane_count(pane)
        told["late_firings"] = f"{pane_count('live')} - {pane_count('first')}"
        assert task.panes is not None  # noqa: S101 - asked for by a replay only
        return self._placed(grouped, told, task.panes)

    def published(self) -> str:
        """Return the columns of the table of windows, out of the file of panes."""
        task = self._task
        assert task.panes is not None  # noqa: S101 - asked for by a replay only
        names = {each.name: f"{each.name}__{task.published}" for each in task.aggregates}
        names[RECORD_COUNT] = pane_count(task.published)
        columns = ", ".join(
            f"{quoted(names.get(name, name))} AS {quoted(name)}" for name, _, _ in task.windows.columns
        )
        columns += "".join(f", {self._of_pane(name)} AS {name}" for name in task.windows.split_by)
        count = quoted(pane_count(task.published))
        return f"SELECT {columns} FROM read_parquet({literal_path(task.panes.path)}) WHERE {count} > 0"

    def _of_pane(self, name: str) -> str:
        """A column that files are split by, out of the file of panes."""
        return staging("epoch_ms(window_start)", self._task.chunks)[name]

    def _result_values(self) -> dict[str, str]:
        is_direct = isinstance(self._window, Tumbling)
        found = {
            each.name: _value(each) if is_direct else self._merged_value(each, "")
            for each in self._task.aggregates
        }
        return found | {RECORD_COUNT: "record_count"}

    def _placed(self, rows: str, values: dict[str, str], output: Output | None = None) -> str:
        """Put each value into its column, and the window's start and end in place of its number."""
        grid = self._grid
        end_ms = f"({grid.first_end_ms} + n::BIGINT * {grid.step_ms})"
        start_ms = f"({end_ms} - {self._window.size_ms})"
        if isinstance(self._window, Cumulate):
            start_ms = floored(f"({end_ms} - 1)", self._window.offset_ms, self._window.size_ms)
        known = {
            **values,
            "window_start": instant(start_ms),
            "window_end": instant(end_ms),
            "run_id": text(self._task.windows.run_id),
            **staging(start_ms, self._task.chunks),
            **dict(zip(self._task.keys, self._key_names(), strict=True)),
        }
        return f"SELECT {cast(known, output or self._task.windows)} FROM ({rows})"

    def _key_names(self) -> list[str]:
        return [f"k{number}" for number in range(len(self._task.keys))]

    def _keys(self) -> list[str]:
        return [
            f"{_alias(self._task.reading, key)} AS {name}"
            for key, name in zip(self._task.keys, self._key_names(), strict=True)
        ]

    def _column(self, aggregate: Aggregate) -> str | None:
        return None if aggregate.column is None else _alias(self._task.reading, aggregate.column)

    def _records(self, interval: Interval, columns: Sequence[str]) -> str:
        """Readable records of an interval of event time, with some columns besides those that say when and where."""
        needed = ", ".join(["event_ms", *_PLACE, *(_alias(self._task.reading, name) for name in columns)])
        where = readable_within(self._task.reading, interval)
        return f"SELECT {needed} FROM ({scan(self._groups, self._task.reading, where)})"

    def _of_windows(self) -> str:
        """The records of the task's windows."""
        first, end = self._task.numbers
        window, grid = self._window, self._grid
        last_end_ms = grid.first_end_ms + (end - 1) * grid.step_ms
        first_end_ms = grid.first_end_ms + first * grid.step_ms
        start_ms = first_end_ms - window.size_ms
        if isinstance(window, Cumulate):
            start_ms = (first_end_ms - 1) - (first_end_ms - 1 - window.offset_ms) % window.size_ms
        columns = dict.fromkeys(
            [*self._task.keys, *(each.column for each in self._task.aggregates if each.column)]
        )
        return self._records(Interval(start_ms, last_end_ms), list(columns))

    def _numbered(self) -> str:
        """The records of tumbling windows, with their windows' numbers."""
        return f"SELECT *, {self._number(f'(event_ms + {self._grid.step_ms})')} AS n FROM ({self._of_windows()})"

    def _sliced(self, thresholds: object) -> str:
        """One row per slice and window, with partial aggregates and the place of late records."""
        first, end = self._task.numbers
        slice_ms = floored("event_ms", self._window.offset_ms, slice_width_ms(self._window))
        records = f"SELECT *, {slice_ms} AS slice_start_ms FROM ({self._of_windows()})"
        late, names = [], []
        if thresholds is not None:
            earliest, _ = ends(self._window, "slice_start_ms")
            records = (
                f"SELECT r.*, {self._columns_of('e')} FROM ({records}) r LEFT JOIN thresholds e"
                f" ON e.n = greatest({self._number(earliest)}, 0)"
            )
            names = [name for _, name in self._places()]
            late = [
                f"CASE WHEN {self._after('e_fired')} THEN {place} END AS {name}" for place, name in self._places()
            ]
        by = ", ".join([*self._key_names(), "slice_start_ms", *names])
        parts = [sql for each in self._task.aggregates for sql in self._partial(each)]
        inner = (
            f"SELECT *, {', '.join([*self._keys(), *late])} FROM ({records})"
            if self._task.keys or late
            else records
        )
        counted = f"SELECT {', '.join([by, 'count(*) AS events', *parts])} FROM ({inner}) GROUP BY {by}"
        earliest, latest = ends(self._window, "slice_start_ms")
        low = f"greatest({self._number(earliest)}, {first})"
        high = f"least({self._number(latest)}, {end - 1})"
        return f"SELECT *, unnest(range({low}, {high} + 1))::INTEGER AS n FROM ({counted})"

    def _partial(self, aggregate: Aggregate) -> Iterator[str]:
        column, name = self._column(aggregate), aggregate.name
        if aggregate.function == "avg":
            yield f"sum({column}::DOUBLE) AS {quoted(f'part__{name}__0')}"
            yield f"count({column}) AS {quoted(f'part__{name}__1')}"
        else:
            yield f"{_call(aggregate, column)} AS {quoted(f'part__{name}__0')}"

    def _merged(self, condition: str, suffix: str) -> list[str]:
        found = []
        for each in self._task.aggregates:
            by = each.function if each.function in ("min", "max") else "sum"
            for part in range(2 if each.function == "avg" else 1):
                name = f"part__{each.name}__{part}"
                found.append(f"{by}({quoted(name)}) FILTER (WHERE {condition}) AS {quoted(name + suffix)}")
        return found

    def _merged_value(self, aggregate: Aggregate, suffix: str) -> str:
        first, second = (quoted(f"part__{aggregate.name}__{part}{suffix}") for part in range(2))
        if aggregate.function == "avg":
            return f"{first} / nullif({second}, 0)"
        return f"coalesce({first}, 0)" if aggregate.function == "count" else first

    def _columns_of(self, table: str) -> str:
        assert self._task.thresholds is not None  # noqa: S101 - asked for by a replay only
        return columns_of(table, self._task.thresholds)

    def _number(self, end_ms: str) -> str:
        return number_of(self._grid, end_ms)

    def _places(self) -> list[tuple[str, str]]:
        assert self._task.thresholds is not None  # noqa: S101 - asked for by a replay only
        every = list(zip((*_PLACE[:2], _PARTITION), _LATE, strict=True))
        return every[:1] if self._task.thresholds.are_ticks else every

    def _after(self, which: str, place: Sequence[str] = (*_PLACE[:2], _PARTITION)) -> str:
        assert self._task.thresholds is not None  # noqa: S101 - asked for by a replay only
        return comes_after(self._task.thresholds, which, place)


_IN_PANE = {"first": "is_on_time", "live": "is_accepted", "final": ""}


def slice_width_ms(window: Tumbling | Sliding | Cumulate) -> int:
    """Return the widest stretch that no window begins or ends within, in ms."""
    if isinstance(window, Sliding):
        return math.gcd(window.size_ms, window.slide_ms)
    return window.step_ms if isinstance(window, Cumulate) else window.size_ms


def comes_after(thresholds: Thresholds, which: str, place: Sequence[str]) -> str:
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


def number_of(grid: Grid, end_ms: str) -> str:
    """Return the number of the window with an end."""
    return f"(({end_ms} - {grid.first_end_ms}) // {grid.step_ms})::INTEGER"


def step_ms(window: Tumbling | Sliding | Cumulate) -> int:
    """Return how far apart windows end, in ms."""
    return window.step_ms if isinstance(window, Cumulate) else every_ms(window)


def every_ms(window: Tumbling | Sliding | Cumulate) -> int:
    """Return how far apart windows start, in ms."""
    return window.slide_ms if isinstance(window, Sliding) else window.size_ms


def ends(window: Tumbling | Sliding | Cumulate, time_ms: str) -> tuple[str, str]:
    """Return the first and the last end of the windows that hold an instant."""
    if isinstance(window, Sliding):
        first = f"({floored(time_ms, window.offset_ms + window.size_ms, window.slide_ms)} + {window.slide_ms})"
        return first, f"({floored(time_ms, window.offset_ms, window.slide_ms)} + {window.size_ms})"
    width_ms = slice_width_ms(window)
    first = f"({floored(time_ms, window.offset_ms, width_ms)} + {width_ms})"
    return first, f"({floored(time_ms, window.offset_ms, window.size_ms)} + {window.size_ms})"


def instant(time_ms: str) -> str:
    """Return an instant of milliseconds."""
    return f"make_timestamptz({time_ms} * 1000)"


def cast(values: Mapping[str, str], output: Output) -> str:
    """Return the columns of a table, each of its type, and those by which its file is split."""
    found = [
        f"CAST({values[name]} AS {_ICEBERG.get(kind) or kind.upper()}) AS {quoted(name)}"
        for name, kind, _ in output.columns
    ]
    return ", ".join([*found, *(f"{values[name]} AS {name}" for name in output.split_by)])


def chunk_of(start_ms: str, chunks: Chunks) -> str:
    """Return the number of the chunk that answers for windows that start at an instant."""
    number = f"least(greatest({start_ms} - {chunks.start_ms}, 0) // {chunks.length_ms}, {chunks.count - 1})"
    return "0" if chunks.count == 1 else f"({number})::INTEGER"


def staging(start_ms: str, chunks: Chunks) -> dict[str, str]:
    """Return the columns that files are split by: of windows that start at an instant."""
    return {STAGING_CHUNK: chunk_of(start_ms, chunks), STAGING_DAY: f"CAST({instant(start_ms)} AS DATE)"}


def _value(aggregate: Aggregate) -> str:
    return quoted(f"value__{aggregate.name}")


def _call(aggregate: Aggregate, column: str | None, only: str = "") -> str:
    if aggregate.function == "avg":
        return f"(sum({column}::DOUBLE){only} / nullif(count({column}){only}, 0))"
    return f"{aggregate.function}({column or '*'}){only}"


def columns_of(table: str, thresholds: Thresholds) -> str:
    """Return the columns of thresholds that comparing asks for, under names of their own such as `t_fired_ms`."""
    parts = {
        "fired": ("ms", "seq", "partition") if len(thresholds.fired.seq) else ("ms",),
        "gone": ("ms", "seq", "partition") if len(thresholds.gone.seq) else ("ms",),
    }
    names = [f"{which}_{part}" for which, several in parts.items() for part in several]
    return ", ".join(f"{table}.{name} AS {table}_{name}" for name in names)


def floored(time_ms: str, offset_ms: int, size_ms: int) -> str:
    """Return the last multiple of a size, from an offset on, that is not after an instant; also before 1970."""
    into = f"((({time_ms} - {offset_ms}) % {size_ms}) + {size_ms}) % {size_ms}"
    return f"({time_ms} - {into})"
