"""Generate the queries of a task of windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from backstream.eventtime.instants import MAX_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import Fate
from backstream.native.aggregates import (
    aggregates_over_records,
    final_value,
    merge_partials,
    pane_values,
    partial_aggregate,
    published_windows_query,
)
from backstream.native.record_scans import Groups, column_alias
from backstream.native.records import PLACE, RecordsQuery
from backstream.native.sql import (
    PARTITION_TEXT,
    cast_columns,
    chunk_number,
    floor_to_step,
    is_after,
    join_firing_times,
    number_type,
    quote_text,
    select_list,
    staging_columns,
    to_timestamp,
    window_ends,
    window_number,
    window_start,
)
from backstream.native.task import TaskOutput, WindowTask
from backstream.runs.table_schemas import RECORD_COUNT, pane_count_column
from backstream.watermarks.firing_times import FiringTimes

if TYPE_CHECKING:
    import duckdb

_FATE_CODES = (
    Fate.ON_TIME,
    Fate.LATE,
    Fate.DROPPED,
    Fate.DUPLICATE,
    Fate.FILTERED,
    Fate.UNDECIDED_COUNTED,
    Fate.UNDECIDED_DROPPED,
)
_CODE = {fate: code for code, fate in enumerate(_FATE_CODES)}
_LATE_POSITION = ("late_arrival_time_ms", "late_arrival_seq", "late_source_partition")
_PANE_CONDITIONS = {"first": "is_on_time", "live": "is_accepted", "final": ""}


class WindowQueries:
    """The queries of one `WindowTask` over the records of its files and a table `firing_times`."""

    def __init__(self, task: WindowTask, groups: Groups, locate: Callable[[str], str] = str) -> None:
        self._task, self._grid = task, task.grid
        self._window = task.grid.window
        columns = [*task.keys, *(aggregate.column for aggregate in task.aggregates if aggregate.column)]
        self._records = RecordsQuery(task.reading, groups, columns, task.identity, locate)

    def mark_duplicates(self, database: duckdb.DuckDBPyConnection) -> None:
        """Find the duplicates among all records that any query reads; the other queries then use them."""
        stretch = self._task.stretch
        windows = self._window_span() if self._task.numbers else stretch
        start_ms, end_ms = min(windows.start_ms, stretch.start_ms), max(windows.end_ms, stretch.end_ms)
        self._records.mark_duplicates(database, Interval(start_ms, end_ms))

    def counts(self) -> str:
        """Return a query of record counts by slice, source partition, and fate, with the owning chunk."""
        task, offset_ms = self._task, self._window.offset_ms
        slice_ms = floor_to_step("event_ms", offset_ms, self._window.slice_ms)
        start_ms = floor_to_step("slice_start_ms", offset_ms, self._window.start_step_ms)
        records, fate = self._classify()
        late: dict[str, str] = {}
        if task.cell_late:
            records, late = self._add_late_position(records, "event_ms")
        marked = {
            "slice_start_ms": slice_ms,
            "source_partition": "source_partition",
            "fate": f"({fate})::TINYINT",
            **late,
        }
        sums = {
            "events": "count(*)",
            "first_arrival_ms": "min(arrival_ms)",
            "last_arrival_ms": "max(arrival_ms)",
            **self._records.count_gaps(task.keys),
        }
        groups = f"SELECT {select_list({**marked, **sums})} FROM ({records}) GROUP BY {', '.join(marked.values())}"
        fates = " ".join(f"WHEN {code} THEN {quote_text(name)}" for code, name in enumerate(_FATE_CODES))
        columns = {
            "event_time_ms": "slice_start_ms",
            "source_partition": PARTITION_TEXT,
            "fate": f"CASE fate {fates} END",
            "chunk_number": chunk_number(start_ms, task.chunks),
            **{name: name for name in (*late, *sums)},
        }
        return f"SELECT {select_list(columns)} FROM ({groups})"

    def dropped_events(self) -> str:
        """Return a query of the table of dropped records, for those that the chunks own."""
        task = self._task
        assert task.dropped is not None  # noqa: S101 - only replays need it
        records, fate = self._classify()
        start_ms = floor_to_step("event_ms", self._window.offset_ms, self._window.start_step_ms)
        values = {
            "event_time": to_timestamp("event_ms"),
            "arrival_time": to_timestamp("arrival_ms"),
            "source_partition": "source_partition",
            "arrival_seq": "arrival_seq",
            "cleaned_up_at": to_timestamp(f"nullif(t_cleaned_up_ms, {MAX_MS})"),
            "run_id": quote_text(task.dropped.run_id),
            **{key: column_alias(task.reading, key) for key in task.keys},
            **staging_columns(start_ms, task.chunks),
        }
        owned = f"{start_ms} >= {task.owned.start_ms} AND {start_ms} < {task.owned.end_ms}"
        dropped = (_CODE[Fate.DROPPED], _CODE[Fate.UNDECIDED_DROPPED])
        return (
            f"SELECT {cast_columns(values, task.dropped)} FROM ({records}) WHERE ({fate}) IN {dropped} AND {owned}"
        )

    def _classify(self) -> tuple[str, str]:
        """Return a query of the task's records, and an expression of their index in `_FATE_CODES`."""
        start_ms = floor_to_step("event_ms", self._window.offset_ms, self._window.start_step_ms)
        number = self._number(f"({start_ms} + {self._window.size_ms})")
        records = f"SELECT *, {number} AS n FROM ({self._records.select(self._task.stretch)})"
        fate = "CASE "
        if self._records.has_duplicates:
            fate += f"WHEN is_duplicate THEN {_CODE[Fate.DUPLICATE]} "
        filtered = _CODE[Fate.FILTERED]
        fate += "".join(f"WHEN NOT {condition} THEN {filtered} " for condition in self._records.is_counted)
        if self._task.firing_times is None:
            return records, f"{fate}ELSE {_CODE[Fate.ON_TIME]} END" if "WHEN" in fate else f"{_CODE[Fate.ON_TIME]}"
        joined = join_firing_times(records, "r.n", self._task.firing_times)
        has_fired, is_removed = self._is_after("t_fired"), self._is_after("t_cleaned_up")
        on_time, late, dropped = (str(_CODE[fate]) for fate in (Fate.ON_TIME, Fate.LATE, Fate.DROPPED))
        if self._task.firing_times.undecided:
            joined = f"SELECT r.*, u.* FROM ({joined}) r LEFT JOIN undecided u ON r.arrival_ms = u.at_ms"
            earliest, _ = window_ends(self._window, "event_ms")
            is_undecided = f"(n >= start_n AND {self._number(earliest)} < stop_n)"
            on_time = f"if({is_undecided}, {_CODE[Fate.UNDECIDED_COUNTED]}, {on_time})"
            dropped = f"if({is_undecided}, {_CODE[Fate.UNDECIDED_DROPPED]}, {dropped})"
        fate += f"WHEN NOT {has_fired} THEN {on_time} WHEN NOT {is_removed} THEN {late} ELSE {dropped} END"
        return joined, fate

    def recomputed_windows(self) -> str:
        """Return a query of the table of windows."""
        rows, keys = self._grouped_rows(None)
        values = {RECORD_COUNT: self._count(""), **self._partials("", "")}
        grouped = (
            f"SELECT {select_list({'n': 'n', **keys, **values})} FROM ({rows}) GROUP BY {self._group_columns()}"
        )
        columns = {aggregate.name: final_value(aggregate) for aggregate in self._task.aggregates} | {
            RECORD_COUNT: RECORD_COUNT
        }
        return self._to_output(grouped, columns, self._task.windows)

    def panes(self) -> str:
        """Return a query of the table of panes."""
        task = self._task
        assert task.panes is not None  # noqa: S101 - only replays need it
        rows, keys = self._grouped_rows(task.firing_times)
        position = [position if not self._window.has_overlaps else name for position, name in self._late_columns()]
        fired, cleaned_up = self._is_after("t_fired", position), self._is_after("t_cleaned_up", position)
        early = "false" if not self._window.has_overlaps else f"{_LATE_POSITION[0]} IS NULL"
        has_fired = "true" if self._firing_times.fires_at_end else f"t_fired_ms < {MAX_MS}"
        classified = (
            f"SELECT *, ({early} OR NOT {fired}) AND {has_fired} AS is_on_time,"
            f" {early} OR NOT {cleaned_up} AS is_accepted"
            f" FROM ({join_firing_times(rows, 'r.n', self._firing_times)})"
        )
        values: dict[str, str] = {}
        for pane, condition in _PANE_CONDITIONS.items():
            filter_clause = f" FILTER (WHERE {condition})" if condition else ""
            values |= {
                pane_count_column(pane): self._count(filter_clause),
                **self._partials(filter_clause, f"__{pane}"),
            }
        late_firings = f"{pane_count_column('live')} - {pane_count_column('first')}"
        if not self._firing_times.fires_at_end:
            late_firings = "0"  # an open window has no first pane, and a fired one is removed
        columns = {**pane_values(task.aggregates), "late_firings": late_firings}
        selected = select_list({"n": "n", **keys, **values})
        grouped = f"SELECT {selected} FROM ({classified}) GROUP BY {self._group_columns()}"
        return self._to_output(grouped, columns, task.panes)

    def published_windows(self) -> str:
        """Return a query of the table of windows over the file of panes."""
        task = self._task
        assert task.panes is not None  # noqa: S101 - only replays need it
        return published_windows_query(task.panes.path, task.windows, task.aggregates, task.published, task.chunks)

    def _to_output(self, rows: str, values: Mapping[str, str], output: TaskOutput) -> str:
        """Return a query of the output columns, with the start and end of each window instead of its number."""
        grid = self._grid
        end_ms = f"({grid.first_end_ms} + n::BIGINT * {grid.step_ms})"
        start_ms = window_start(self._window, end_ms)
        columns = {
            **values,
            "window_start": to_timestamp(start_ms),
            "window_end": to_timestamp(end_ms),
            "run_id": quote_text(output.run_id),
            **staging_columns(start_ms, self._task.chunks),
            **dict(zip(self._task.keys, self._key_names(), strict=True)),
        }
        return f"SELECT {cast_columns(columns, output)} FROM ({rows})"

    def _key_names(self) -> list[str]:
        return [f"k{number}" for number in range(len(self._task.keys))]

    def _key_columns(self) -> dict[str, str]:
        columns = (column_alias(self._task.reading, key) for key in self._task.keys)
        return dict(zip(self._key_names(), columns, strict=True))

    def _group_columns(self) -> str:
        """Return the columns by which results are grouped."""
        return ", ".join(["n", *self._key_names()])

    def _grouped_rows(self, firing_times: FiringTimes | None) -> tuple[str, dict[str, str]]:
        """Return a query of rows with the number `n` of their window, and the key columns by name."""
        if self._window.has_overlaps:
            return self._slice_records(firing_times), {name: name for name in self._key_names()}
        number = self._number(f"(event_ms + {self._grid.step_ms})")
        return (
            f"SELECT *, {number} AS n FROM ({self._records.select_once(self._window_span())})",
            self._key_columns(),
        )

    def _count(self, filter_clause: str) -> str:
        if not self._window.has_overlaps:
            return f"count(*){filter_clause}"
        return f"coalesce(sum(events){filter_clause}, 0)::BIGINT"

    def _partials(self, filter_clause: str, suffix: str) -> dict[str, str]:
        """Return the partial values of grouped rows that meet a condition; the rows are records or slices."""
        if self._window.has_overlaps:
            return merge_partials(self._task.aggregates, filter_clause, suffix)
        return {name + suffix: value + filter_clause for name, value in self._partials_over_records().items()}

    def _partials_over_records(self) -> dict[str, str]:
        return {
            partial_aggregate(aggregate, number): value
            for aggregate in self._task.aggregates
            for number, value in enumerate(aggregates_over_records(aggregate, self._task.reading))
        }

    def _window_span(self) -> Interval:
        """Return the event times of the task's windows."""
        return self._grid.span(self._task.numbers)

    def _slice_records(self, firing_times: FiringTimes | None) -> str:
        """Return a query of partial values per slice and window, with the position of late records."""
        numbers = self._task.numbers
        slice_ms = floor_to_step("event_ms", self._window.offset_ms, self._window.slice_ms)
        records = f"SELECT *, {slice_ms} AS slice_start_ms FROM ({self._records.select_once(self._window_span())})"
        late: dict[str, str] = {}
        if firing_times is not None:
            records, late = self._add_late_position(records, "slice_start_ms")
        by = ", ".join([*self._key_names(), "slice_start_ms", *late])
        columns = ", ".join(["*", *filter(None, [select_list({**self._key_columns(), **late})])])
        sums = select_list({"events": "count(*)", **self._partials_over_records()})
        slices = f"SELECT {by}, {sums} FROM (SELECT {columns} FROM ({records}))"
        earliest, latest = window_ends(self._window, "slice_start_ms")
        low = f"greatest({self._number(earliest)}, {numbers.start})"
        high = f"least({self._number(latest)}, {numbers.stop - 1})"
        number = f"unnest(range({low}, {high} + 1))::{number_type(self._grid)}"
        return f"SELECT *, {number} AS n FROM ({slices} GROUP BY {by})"

    def _add_late_position(self, records: str, time_ms: str) -> tuple[str, dict[str, str]]:
        """Return records joined with firing times, and the columns of a late record's arrival position."""
        earliest, _ = window_ends(self._window, time_ms)
        joined = join_firing_times(records, f"greatest({self._number(earliest)}, 0)", self._firing_times, "e")
        fired = self._is_after("e_fired")
        return joined, {name: f"CASE WHEN {fired} THEN {place} END" for place, name in self._late_columns()}

    @property
    def _firing_times(self) -> FiringTimes:
        assert self._task.firing_times is not None  # noqa: S101 - only replays need it
        return self._task.firing_times

    def _number(self, end_ms: str) -> str:
        return window_number(self._grid, end_ms)

    def _late_columns(self) -> list[tuple[str, str]]:
        columns = list(zip((*PLACE[:2], PARTITION_TEXT), _LATE_POSITION, strict=True))
        return columns[:1] if self._firing_times.are_ticks else columns

    def _is_after(self, which: str, place: Sequence[str] = (*PLACE[:2], PARTITION_TEXT)) -> str:
        return is_after(self._firing_times, which, place)
