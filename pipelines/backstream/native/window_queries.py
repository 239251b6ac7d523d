"""The queries of a task of windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from backstream.eventtime.instants import MAX_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import Fate
from backstream.eventtime.windows import Cumulate, Tumbling
from backstream.native.aggregates import (
    aggregates_over_records,
    final_value,
    merge_partials,
    pane_values,
    partial_aggregate,
    published_windows_query,
)
from backstream.native.records import PLACE, RecordsQuery
from backstream.native.sql import (
    PARTITION_TEXT,
    Groups,
    cast_columns,
    chunk_number,
    column_alias,
    floor_to_step,
    is_after,
    quote_text,
    select_list,
    slice_width,
    staging_columns,
    threshold_columns,
    time_step_ms,
    to_timestamp,
    window_ends,
    window_number,
)
from backstream.native.task import TaskOutput, TaskThresholds, WindowTask
from backstream.runs.table_schemas import RECORD_COUNT, pane_count

if TYPE_CHECKING:
    import duckdb

_FATES = (Fate.ON_TIME, Fate.LATE, Fate.DROPPED, Fate.DUPLICATE)
_LATE = ("late_arrival_time_ms", "late_arrival_seq", "late_source_partition")
_IN_PANE = {"first": "is_on_time", "live": "is_accepted", "final": ""}


class WindowQueries:
    """The queries of one `WindowTask` over a table `thresholds` and the files' rows."""

    def __init__(self, task: WindowTask, groups: Groups) -> None:
        self._task, self._grid = task, task.grid
        self._window = task.grid.window
        columns = [*task.keys, *(each.column for each in task.aggregates if each.column)]
        self._records = RecordsQuery(task.reading, groups, columns, task.deduplicate_on)

    def mark_copies(self, opened: duckdb.DuckDBPyConnection) -> None:
        """Find copies among all records that any query asks for; the other queries then tell them."""
        stretch = self._task.stretch
        windows = stretch if self._task.numbers[0] == self._task.numbers[1] else self._window_span()
        start_ms, end_ms = min(windows.start_ms, stretch.start_ms), max(windows.end_ms, stretch.end_ms)
        self._records.mark_copies(opened, Interval(start_ms, end_ms))

    def counts(self) -> str:
        """Return the records of the stretch by slice, source partition and fate, with the chunk that answers."""
        task, offset_ms = self._task, self._window.offset_ms
        slice_ms = floor_to_step("event_ms", offset_ms, slice_width(self._window))
        start_ms = floor_to_step("slice_start_ms", offset_ms, time_step_ms(self._window))
        records, fate = self._judged()
        late: dict[str, str] = {}
        if task.cell_late:
            records, late = self._with_late_place(records, "event_ms")
        marked = {
            "slice_start_ms": slice_ms,
            "source_partition": "source_partition",
            "fate": f"({fate})::TINYINT",
            **late,
        }
        by = ", ".join(marked)
        groups = (
            f"SELECT {by}, count(*) AS events, min(arrival_ms) AS first_arrival_ms,"
            f" max(arrival_ms) AS last_arrival_ms FROM (SELECT {select_list(marked)}, arrival_ms FROM ({records}))"
            f" GROUP BY {by}"
        )
        fates = " ".join(f"WHEN {code} THEN {quote_text(each)}" for code, each in enumerate(_FATES))
        columns = {
            "event_time_ms": "slice_start_ms",
            "source_partition": PARTITION_TEXT,
            "fate": f"CASE fate {fates} END",
            "chunk_number": chunk_number(start_ms, task.chunks),
            **{name: name for name in (*late, "events", "first_arrival_ms", "last_arrival_ms")},
        }
        return f"SELECT {select_list(columns)} FROM ({groups})"

    def dropped(self) -> str:
        """Return the columns of the table of dropped records, of those that the chunks answer for."""
        task = self._task
        assert task.dropped is not None  # noqa: S101 - asked for by a replay only
        records, fate = self._judged()
        start_ms = floor_to_step("event_ms", self._window.offset_ms, time_step_ms(self._window))
        known = {
            "event_time": to_timestamp("event_ms"),
            "arrival_time": to_timestamp("arrival_ms"),
            "source_partition": "source_partition",
            "arrival_seq": "arrival_seq",
            "cleaned_up_at": to_timestamp(f"nullif(t_gone_ms, {MAX_MS})"),
            "run_id": quote_text(task.dropped.run_id),
            **{key: column_alias(task.reading, key) for key in task.keys},
            **staging_columns(start_ms, task.chunks),
        }
        owned = f"{start_ms} >= {task.owned.start_ms} AND {start_ms} < {task.owned.end_ms}"
        return f"SELECT {cast_columns(known, task.dropped)} FROM ({records}) WHERE ({fate}) = 2 AND {owned}"

    def _judged(self) -> tuple[str, str]:
        """The records of the stretch, and their fate as a place in `_FATES`."""
        start_ms = floor_to_step("event_ms", self._window.offset_ms, time_step_ms(self._window))
        number = self._number(f"({start_ms} + {self._window.size_ms})")
        records = f"SELECT *, {number} AS n FROM ({self._records.select(self._task.stretch)})"
        fate = "CASE " + ("WHEN is_duplicate THEN 3 " if self._records.has_copies else "")
        if self._task.thresholds is None:
            return records, fate + "ELSE 0 END" if self._records.has_copies else "0"
        joined = f"SELECT r.*, {self._columns_of('t')} FROM ({records}) r LEFT JOIN thresholds t USING (n)"
        fate += f"WHEN NOT {self._after('t_fired')} THEN 0 WHEN NOT {self._after('t_gone')} THEN 1 ELSE 2 END"
        return joined, fate

    def recomputed(self) -> str:
        """Return the columns of the table of windows."""
        rows, keys = self._grouped_rows(None)
        values = {RECORD_COUNT: self._count(""), **self._parts("", "")}
        grouped = f"SELECT {select_list({'n': 'n', **keys, **values})} FROM ({rows}) GROUP BY {self._by()}"
        told = {each.name: final_value(each) for each in self._task.aggregates} | {RECORD_COUNT: RECORD_COUNT}
        return self._placed(grouped, told, self._task.windows)

    def panes(self) -> str:
        """Return the columns of the table of panes."""
        task = self._task
        assert task.panes is not None  # noqa: S101 - asked for by a replay only
        rows, keys = self._grouped_rows(task.thresholds)
        place = [place if isinstance(self._window, Tumbling) else name for place, name in self._places()]
        fired, gone = self._after("t_fired", place), self._after("t_gone", place)
        early = "false" if isinstance(self._window, Tumbling) else f"{_LATE[0]} IS NULL"
        timed = (
            f"SELECT *, {early} OR NOT {fired} AS is_on_time, {early} OR NOT {gone} AS is_accepted"
            f" FROM (SELECT r.*, {self._columns_of('t')} FROM ({rows}) r JOIN thresholds t USING (n))"
        )
        values: dict[str, str] = {}
        for pane, condition in _IN_PANE.items():
            only = f" FILTER (WHERE {condition})" if condition else ""
            values |= {pane_count(pane): self._count(only), **self._parts(only, f"__{pane}")}
        late_firings = f"{pane_count('live')} - {pane_count('first')}"
        told = {**pane_values(task.aggregates), "late_firings": late_firings}
        grouped = f"SELECT {select_list({'n': 'n', **keys, **values})} FROM ({timed}) GROUP BY {self._by()}"
        return self._placed(grouped, told, task.panes)

    def published(self) -> str:
        """Return the columns of the table of windows, out of the file of panes."""
        task = self._task
        assert task.panes is not None  # noqa: S101 - asked for by a replay only
        return published_windows_query(task.panes.path, task.windows, task.aggregates, task.published, task.chunks)

    def _placed(self, rows: str, values: Mapping[str, str], output: TaskOutput) -> str:
        """Put each value into its column, and the window's start and end in place of its number."""
        grid = self._grid
        end_ms = f"({grid.first_end_ms} + n::BIGINT * {grid.step_ms})"
        start_ms = f"({end_ms} - {self._window.size_ms})"
        if isinstance(self._window, Cumulate):
            start_ms = floor_to_step(f"({end_ms} - 1)", self._window.offset_ms, self._window.size_ms)
        known = {
            **values,
            "window_start": to_timestamp(start_ms),
            "window_end": to_timestamp(end_ms),
            "run_id": quote_text(output.run_id),
            **staging_columns(start_ms, self._task.chunks),
            **dict(zip(self._task.keys, self._key_names(), strict=True)),
        }
        return f"SELECT {cast_columns(known, output)} FROM ({rows})"

    def _key_names(self) -> list[str]:
        return [f"k{number}" for number in range(len(self._task.keys))]

    def _keys(self) -> dict[str, str]:
        columns = (column_alias(self._task.reading, key) for key in self._task.keys)
        return dict(zip(self._key_names(), columns, strict=True))

    def _by(self) -> str:
        """What results are grouped by."""
        return ", ".join(["n", *self._key_names()])

    def _grouped_rows(self, thresholds: TaskThresholds | None) -> tuple[str, dict[str, str]]:
        """What is grouped into windows, each row with its window's number `n`, and the keys by their names."""
        if not isinstance(self._window, Tumbling):
            return self._sliced(thresholds), {name: name for name in self._key_names()}
        number = self._number(f"(event_ms + {self._grid.step_ms})")
        return f"SELECT *, {number} AS n FROM ({self._records.select_once(self._window_span())})", self._keys()

    def _count(self, only: str) -> str:
        if isinstance(self._window, Tumbling):
            return f"count(*){only}"
        return f"coalesce(sum(events){only}, 0)::BIGINT"

    def _parts(self, only: str, suffix: str) -> dict[str, str]:
        """The parts of each aggregate over grouped rows that meet a condition: over records, or over slices."""
        if not isinstance(self._window, Tumbling):
            return merge_partials(self._task.aggregates, only, suffix)
        return {name + suffix: over + only for name, over in self._over_records().items()}

    def _over_records(self) -> dict[str, str]:
        return {
            partial_aggregate(each, number): over
            for each in self._task.aggregates
            for number, over in enumerate(aggregates_over_records(each, self._task.reading))
        }

    def _window_span(self) -> Interval:
        """The event times of the task's windows."""
        first, end = self._task.numbers
        window, grid = self._window, self._grid
        first_end_ms = grid.first_end_ms + first * grid.step_ms
        start_ms = first_end_ms - window.size_ms
        if isinstance(window, Cumulate):
            start_ms = (first_end_ms - 1) - (first_end_ms - 1 - window.offset_ms) % window.size_ms
        return Interval(start_ms, grid.first_end_ms + (end - 1) * grid.step_ms)

    def _sliced(self, thresholds: TaskThresholds | None) -> str:
        """One row per slice and window, with parts of aggregates and the place of late records."""
        first, end = self._task.numbers
        slice_ms = floor_to_step("event_ms", self._window.offset_ms, slice_width(self._window))
        records = f"SELECT *, {slice_ms} AS slice_start_ms FROM ({self._records.select_once(self._window_span())})"
        late: dict[str, str] = {}
        if thresholds is not None:
            records, late = self._with_late_place(records, "slice_start_ms")
        by = ", ".join([*self._key_names(), "slice_start_ms", *late])
        marked = ", ".join(["*", *filter(None, [select_list({**self._keys(), **late})])])
        sums = select_list({"events": "count(*)", **self._over_records()})
        counted = f"SELECT {by}, {sums} FROM (SELECT {marked} FROM ({records}))"
        earliest, latest = window_ends(self._window, "slice_start_ms")
        low, high = f"greatest({self._number(earliest)}, {first})", f"least({self._number(latest)}, {end - 1})"
        return f"SELECT *, unnest(range({low}, {high} + 1))::INTEGER AS n FROM ({counted} GROUP BY {by})"

    def _with_late_place(self, records: str, time_ms: str) -> tuple[str, dict[str, str]]:
        """Records, and the columns of the place of those for which the earliest of their windows had fired."""
        earliest, _ = window_ends(self._window, time_ms)
        joined = (
            f"SELECT r.*, {self._columns_of('e')} FROM ({records}) r LEFT JOIN thresholds e"
            f" ON e.n = greatest({self._number(earliest)}, 0)"
        )
        fired = self._after("e_fired")
        return joined, {name: f"CASE WHEN {fired} THEN {place} END" for place, name in self._places()}

    def _columns_of(self, table: str) -> str:
        assert self._task.thresholds is not None  # noqa: S101 - asked for by a replay only
        return threshold_columns(table, self._task.thresholds)

    def _number(self, end_ms: str) -> str:
        return window_number(self._grid, end_ms)

    def _places(self) -> list[tuple[str, str]]:
        assert self._task.thresholds is not None  # noqa: S101 - asked for by a replay only
        every = list(zip((*PLACE[:2], PARTITION_TEXT), _LATE, strict=True))
        return every[:1] if self._task.thresholds.are_ticks else every

    def _after(self, which: str, place: Sequence[str] = (*PLACE[:2], PARTITION_TEXT)) -> str:
        assert self._task.thresholds is not None  # noqa: S101 - asked for by a replay only
        return is_after(self._task.thresholds, which, place)
