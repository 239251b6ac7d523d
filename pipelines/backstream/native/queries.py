"""The queries of a task of windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backstream.core.fates import Fate
from backstream.core.instants import MAX_MS
from backstream.core.intervals import Interval
from backstream.core.tables import RECORD_COUNT, pane_count
from backstream.core.windows import Cumulate, Tumbling
from backstream.native.sql import (
    PARTITION_TEXT,
    Groups,
    alias,
    cast,
    chunk_of,
    columns_of,
    comes_after,
    ends,
    every_ms,
    floored,
    instant,
    literal_path,
    number_of,
    quoted,
    readable_within,
    scan,
    slice_width_ms,
    staging,
    text,
)
from backstream.native.task import Output, Thresholds, WindowTask
from backstream.native.types import Aggregate

_FATES = (Fate.ON_TIME, Fate.LATE, Fate.DROPPED, Fate.DUPLICATE)
_KEPT = "kept"
_PLACE = ("arrival_ms", "arrival_seq", "source_partition")
_LATE = ("late_arrival_time_ms", "late_arrival_seq", "late_source_partition")
_IN_PANE = {"first": "is_on_time", "live": "is_accepted", "final": ""}


class WindowQueries:
    """The queries of one `WindowTask` over a table `thresholds` and the files' rows."""

    def __init__(self, task: WindowTask, groups: Groups) -> None:
        self._task, self._groups, self._grid = task, groups, task.grid
        self._window = task.grid.window
        self._is_kept = False

    def copied(self) -> str:
        """Return the event times, and the columns that tell copies apart, that several records have in common."""
        by = ", ".join(["event_ms", *self._told_apart()])
        return f"SELECT {by} FROM ({self._scanned(self._span())}) GROUP BY {by} HAVING count(*) > 1"

    def kept(self) -> str:
        """Return all records with `is_duplicate`, out of the table `copies`; the other queries then read `kept`.

        The first of them in arrival order is not a duplicate. Few have copies, so that few have to be ordered.
        """
        self._is_kept = True
        same = [f"r.{name} IS NOT DISTINCT FROM c.{name}" for name in ("event_ms", *self._told_apart())]
        records, on = f"({self._scanned(self._span())}) r", " AND ".join(same)
        by = ", ".join(["event_ms", *self._told_apart()])
        order = ", ".join([*_PLACE[:2], PARTITION_TEXT])
        return (
            f"SELECT *, false AS is_duplicate FROM {records} ANTI JOIN copies c ON {on} UNION ALL"
            f" SELECT *, row_number() OVER (PARTITION BY {by} ORDER BY {order}) > 1"
            f" FROM (SELECT * FROM {records} SEMI JOIN copies c ON {on})"
        )

    def _told_apart(self) -> list[str]:
        return [alias(self._task.reading, name) for name in self._task.deduplicate_on]

    def _span(self) -> Interval:
        """The event times of all records that any query asks for."""
        stretch = self._task.stretch
        if self._task.numbers[0] == self._task.numbers[1]:
            return stretch
        windows = self._window_span()
        return Interval(min(windows.start_ms, stretch.start_ms), max(windows.end_ms, stretch.end_ms))

    def counts(self) -> str:
        """Return the records of the stretch by slice, source partition and fate, with the chunk that answers."""
        task, offset_ms = self._task, self._window.offset_ms
        slice_ms = floored("event_ms", offset_ms, slice_width_ms(self._window))
        start_ms = floored("slice_start_ms", offset_ms, every_ms(self._window))
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
            f" max(arrival_ms) AS last_arrival_ms FROM (SELECT {_named(marked)}, arrival_ms FROM ({records}))"
            f" GROUP BY {by}"
        )
        fates = " ".join(f"WHEN {code} THEN {text(each)}" for code, each in enumerate(_FATES))
        columns = {
            "event_time_ms": "slice_start_ms",
            "source_partition": PARTITION_TEXT,
            "fate": f"CASE fate {fates} END",
            "chunk_number": chunk_of(start_ms, task.chunks),
            **{name: name for name in (*late, "events", "first_arrival_ms", "last_arrival_ms")},
        }
        return f"SELECT {_named(columns)} FROM ({groups})"

    def dropped(self) -> str:
        """Return the columns of the table of dropped records, of those that the chunks answer for."""
        task = self._task
        assert task.dropped is not None  # noqa: S101 - asked for by a replay only
        records, fate = self._judged()
        start_ms = floored("event_ms", self._window.offset_ms, every_ms(self._window))
        known = {
            "event_time": instant("event_ms"),
            "arrival_time": instant("arrival_ms"),
            "source_partition": "source_partition",
            "arrival_seq": "arrival_seq",
            "gone_at": instant(f"nullif(t_gone_ms, {MAX_MS})"),
            "run_id": text(task.dropped.run_id),
            **{key: alias(task.reading, key) for key in task.keys},
            **staging(start_ms, task.chunks),
        }
        owned = f"{start_ms} >= {task.owned.start_ms} AND {start_ms} < {task.owned.end_ms}"
        return f"SELECT {cast(known, task.dropped)} FROM ({records}) WHERE ({fate}) = 2 AND {owned}"

    def _judged(self) -> tuple[str, str]:
        """The records of the stretch, and their fate as a place in `_FATES`."""
        start_ms = floored("event_ms", self._window.offset_ms, every_ms(self._window))
        number = self._number(f"({start_ms} + {self._window.size_ms})")
        records = f"SELECT *, {number} AS n FROM ({self._records(self._task.stretch)})"
        fate = "CASE " + ("WHEN is_duplicate THEN 3 " if self._is_kept else "")
        if self._task.thresholds is None:
            return records, fate + "ELSE 0 END" if self._is_kept else "0"
        joined = f"SELECT r.*, {self._columns_of('t')} FROM ({records}) r LEFT JOIN thresholds t USING (n)"
        fate += f"WHEN NOT {self._after('t_fired')} THEN 0 WHEN NOT {self._after('t_gone')} THEN 1 ELSE 2 END"
        return joined, fate

    def recomputed(self) -> str:
        """Return the columns of the table of windows."""
        rows, keys = self._grouped_rows(None)
        values = {RECORD_COUNT: self._count(""), **self._parts("", "")}
        grouped = f"SELECT {_named({'n': 'n', **keys, **values})} FROM ({rows}) GROUP BY {self._by()}"
        told = {each.name: self._value(each, "") for each in self._task.aggregates} | {RECORD_COUNT: RECORD_COUNT}
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
        told: dict[str, str] = {}
        for pane, condition in _IN_PANE.items():
            only, count = f" FILTER (WHERE {condition})" if condition else "", pane_count(pane)
            values |= {count: self._count(only), **self._parts(only, f"__{pane}")}
            told[count] = count
            for each in task.aggregates:
                told[f"{each.name}__{pane}"] = f"CASE WHEN {count} > 0 THEN {self._value(each, f'__{pane}')} END"
        told["late_firings"] = f"{pane_count('live')} - {pane_count('first')}"
        grouped = f"SELECT {_named({'n': 'n', **keys, **values})} FROM ({timed}) GROUP BY {self._by()}"
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
        split_by = staging("epoch_ms(window_start)", task.chunks)
        columns += "".join(f", {split_by[name]} AS {name}" for name in task.windows.split_by)
        count = quoted(pane_count(task.published))
        return f"SELECT {columns} FROM read_parquet({literal_path(task.panes.path)}) WHERE {count} > 0"

    def _placed(self, rows: str, values: Mapping[str, str], output: Output) -> str:
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
            "run_id": text(output.run_id),
            **staging(start_ms, self._task.chunks),
            **dict(zip(self._task.keys, self._key_names(), strict=True)),
        }
        return f"SELECT {cast(known, output)} FROM ({rows})"

    def _key_names(self) -> list[str]:
        return [f"k{number}" for number in range(len(self._task.keys))]

    def _keys(self) -> dict[str, str]:
        columns = (alias(self._task.reading, key) for key in self._task.keys)
        return dict(zip(self._key_names(), columns, strict=True))

    def _by(self) -> str:
        """What results are grouped by."""
        return ", ".join(["n", *self._key_names()])

    def _grouped_rows(self, thresholds: Thresholds | None) -> tuple[str, dict[str, str]]:
        """What is grouped into windows, each row with its window's number `n`, and the keys by their names."""
        if not isinstance(self._window, Tumbling):
            return self._sliced(thresholds), {name: name for name in self._key_names()}
        number = self._number(f"(event_ms + {self._grid.step_ms})")
        return f"SELECT *, {number} AS n FROM ({self._of_windows()})", self._keys()

    def _count(self, only: str) -> str:
        if isinstance(self._window, Tumbling):
            return f"count(*){only}"
        return f"coalesce(sum(events){only}, 0)::BIGINT"

    def _parts(self, only: str, suffix: str) -> dict[str, str]:
        """The parts of each aggregate over grouped rows that meet a condition: over records, or over slices."""
        found: dict[str, str] = {}
        for each in self._task.aggregates:
            for number, part in enumerate(self._partial(each)):
                name = _part(each, number)
                if isinstance(self._window, Tumbling):
                    found[name + suffix] = part + only
                else:
                    by = each.function if each.function in ("min", "max") else "sum"
                    found[name + suffix] = f"{by}({quoted(name)}){only}"
        return found

    def _partial(self, aggregate: Aggregate) -> list[str]:
        """The parts of an aggregate over records: sums of doubles and counts of an average."""
        column = "*" if aggregate.column is None else alias(self._task.reading, aggregate.column)
        if aggregate.function == "avg":
            return [f"sum({column}::DOUBLE)", f"count({column})"]
        return [f"{aggregate.function}({column})"]

    def _value(self, aggregate: Aggregate, suffix: str) -> str:
        """The value of an aggregate out of its parts."""
        first, second = (quoted(_part(aggregate, number) + suffix) for number in range(2))
        if aggregate.function == "avg":
            return f"{first} / nullif({second}, 0)"
        return f"coalesce({first}, 0)" if aggregate.function == "count" else first

    def _scanned(self, interval: Interval) -> str:
        """Readable records of an interval of event time."""
        columns = ", ".join(["event_ms", *_PLACE, *(alias(self._task.reading, name) for name in self._columns())])
        rows = scan(self._groups, self._task.reading, readable_within(self._task.reading, interval))
        return f"SELECT {columns} FROM ({rows})"

    def _records(self, interval: Interval) -> str:
        if not self._is_kept:
            return self._scanned(interval)
        return f"SELECT * FROM {_KEPT} WHERE event_ms >= {interval.start_ms} AND event_ms < {interval.end_ms}"

    def _columns(self) -> list[str]:
        """The columns that are read besides those that say when and where."""
        columns = [each.column for each in self._task.aggregates if each.column]
        return list(dict.fromkeys([*self._task.keys, *columns, *self._task.deduplicate_on]))

    def _window_span(self) -> Interval:
        """The event times of the task's windows."""
        first, end = self._task.numbers
        window, grid = self._window, self._grid
        first_end_ms = grid.first_end_ms + first * grid.step_ms
        start_ms = first_end_ms - window.size_ms
        if isinstance(window, Cumulate):
            start_ms = (first_end_ms - 1) - (first_end_ms - 1 - window.offset_ms) % window.size_ms
        return Interval(start_ms, grid.first_end_ms + (end - 1) * grid.step_ms)

    def _of_windows(self) -> str:
        """The records of the task's windows."""
        records = self._records(self._window_span())
        return f"SELECT * FROM ({records}) WHERE NOT is_duplicate" if self._is_kept else records

    def _sliced(self, thresholds: Thresholds | None) -> str:
        """One row per slice and window, with parts of aggregates and the place of late records."""
        first, end = self._task.numbers
        slice_ms = floored("event_ms", self._window.offset_ms, slice_width_ms(self._window))
        records = f"SELECT *, {slice_ms} AS slice_start_ms FROM ({self._of_windows()})"
        late: dict[str, str] = {}
        if thresholds is not None:
            records, late = self._with_late_place(records, "slice_start_ms")
        by = ", ".join([*self._key_names(), "slice_start_ms", *late])
        parts = {
            _part(each, number): part
            for each in self._task.aggregates
            for number, part in enumerate(self._partial(each))
        }
        marked = ", ".join(["*", *filter(None, [_named({**self._keys(), **late})])])
        sums = _named({"events": "count(*)", **parts})
        counted = f"SELECT {by}, {sums} FROM (SELECT {marked} FROM ({records}))"
        earliest, latest = ends(self._window, "slice_start_ms")
        low, high = f"greatest({self._number(earliest)}, {first})", f"least({self._number(latest)}, {end - 1})"
        return f"SELECT *, unnest(range({low}, {high} + 1))::INTEGER AS n FROM ({counted} GROUP BY {by})"

    def _with_late_place(self, records: str, time_ms: str) -> tuple[str, dict[str, str]]:
        """Records, and the columns of the place of those for which the earliest of their windows had fired."""
        earliest, _ = ends(self._window, time_ms)
        joined = (
            f"SELECT r.*, {self._columns_of('e')} FROM ({records}) r LEFT JOIN thresholds e"
            f" ON e.n = greatest({self._number(earliest)}, 0)"
        )
        fired = self._after("e_fired")
        return joined, {name: f"CASE WHEN {fired} THEN {place} END" for place, name in self._places()}

    def _columns_of(self, table: str) -> str:
        assert self._task.thresholds is not None  # noqa: S101 - asked for by a replay only
        return columns_of(table, self._task.thresholds)

    def _number(self, end_ms: str) -> str:
        return number_of(self._grid, end_ms)

    def _places(self) -> list[tuple[str, str]]:
        assert self._task.thresholds is not None  # noqa: S101 - asked for by a replay only
        every = list(zip((*_PLACE[:2], PARTITION_TEXT), _LATE, strict=True))
        return every[:1] if self._task.thresholds.are_ticks else every

    def _after(self, which: str, place: Sequence[str] = (*_PLACE[:2], PARTITION_TEXT)) -> str:
        assert self._task.thresholds is not None  # noqa: S101 - asked for by a replay only
        return comes_after(self._task.thresholds, which, place)


def _part(aggregate: Aggregate, number: int) -> str:
    """Return the name of a part of an aggregate; no aggregate has a name like it."""
    return f"part__{aggregate.name}__{number}"


def _named(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{value} AS {quoted(name)}" for name, value in columns.items())
