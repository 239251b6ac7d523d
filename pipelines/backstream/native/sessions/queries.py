"""Generate the queries of tasks that make units, and of tasks that make sessions of units.

The rules are those of `spark.sessions.islands`, so that both engines find the same islands and the same clean
ones. An island is a group of units with gaps that are not too large. A clean island is one session in the stream
too. The backbone of an island are the units that are surely in a session that has not fired yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.records import Fate
from backstream.native.aggregates import (
    final_value,
    merge_partials,
    pane_values,
    published_windows_query,
    storable_partials,
)
from backstream.native.record_scans import Groups, column_alias
from backstream.native.records import RecordsQuery
from backstream.native.sessions.arrow_replay import (
    FIRST,
    GAP,
    IN_WINDOW,
    LAST,
    LATENESS,
    MET,
    POSITION,
    SEQ,
    UNTIL,
)
from backstream.native.sessions.task import BlockWatermarks, SessionTask, UnitTask
from backstream.native.sql import (
    PARTITION_TEXT,
    cast_columns,
    chunk_number,
    floor_to_step,
    floor_us,
    quote_path,
    quote_text,
    select_list,
    staging_columns,
    to_timestamp,
)
from backstream.native.task import TaskOutput
from backstream.runs.table_schemas import PANES_KEPT, RECORD_COUNT, pane_count_column

if TYPE_CHECKING:
    import duckdb

_ARRIVAL_COLUMNS = ("arrival_ms", "arrival_seq", "source_partition")
UNIT = "unit"
"""The column with the number of a unit in an island that is not clean."""


class UnitQueries:
    """The queries of one `UnitTask` over the records of its files, and over the tables made of them."""

    def __init__(self, task: UnitTask, groups: Groups) -> None:
        self._task = task
        columns = [*task.keys, *(aggregate.column for aggregate in task.aggregates if aggregate.column)]
        self._at = "event_ms"
        if task.window.per_ms > 1:
            columns.append(task.reading.event_time)
            self._at = f"epoch_us({column_alias(task.reading, task.reading.event_time)})"
        self._records = RecordsQuery(task.reading, groups, columns, task.identity)

    def mark_duplicates(self, database: duckdb.DuckDBPyConnection) -> None:
        """Find the duplicates of the interval; the other queries then use them."""
        self._records.mark_duplicates(database, self._task.stretch)

    def counts(self) -> str:
        """Return a query of record counts by cell, source partition, and fate, as if no record was late."""
        task = self._task
        cell_ms = floor_to_step("event_ms", task.cells.offset_ms, task.cells.size_ms)
        fate = quote_text(Fate.ON_TIME)
        for condition in self._records.is_counted:
            fate = f"CASE WHEN {condition} THEN {fate} ELSE {quote_text(Fate.FILTERED)} END"
        if self._records.has_duplicates:
            fate = f"CASE WHEN is_duplicate THEN {quote_text(Fate.DUPLICATE)} ELSE {fate} END"
        by = {"cell_ms": cell_ms, "source_partition": "source_partition", "fate": fate}
        sums = {
            "events": "count(*)",
            "first_arrival_ms": "min(arrival_ms)",
            "last_arrival_ms": "max(arrival_ms)",
            **self._records.count_gaps(task.keys),
        }
        records = self._records.select(task.stretch)
        groups = f"SELECT {select_list({**by, **sums})} FROM ({records}) GROUP BY 1, 2, 3"
        columns = {
            "event_time_ms": "cell_ms",
            "source_partition": PARTITION_TEXT,
            "fate": "fate",
            "chunk_number": chunk_number("cell_ms", task.chunks),
            **{name: name for name in sums},
        }
        return f"SELECT {select_list(columns)} FROM ({groups})"

    def blocks(self, watermarks: BlockWatermarks) -> str:
        """Return a query of the watermarks at arrival by block, for the table `blocks`."""
        first, end = watermarks.blocks
        return (
            f"SELECT * FROM read_parquet({quote_path(watermarks.path)}) WHERE block >= {first} AND block < {end}"
        )

    def stragglers(self) -> str:
        """Return a query of the records behind the watermark, each with the watermark at its arrival."""
        return f"SELECT * FROM ({self._add_watermarks()}) WHERE NOT is_in_time"

    def units(self) -> str:
        """Return a query of all units, including the table `stragglers`, each with the share of its key."""
        task = self._task
        keys = {f"k{number}": column_alias(task.reading, key) for number, key in enumerate(task.keys)}
        share = f"(hash({', '.join(keys.values()) or '0'}) % {task.shares})::INTEGER"
        spans = {"first_at": f"min({self._at})", "last_at": f"max({self._at})", "events": "count(*)"}
        parts = storable_partials(task.aggregates, task.reading)
        by = ", ".join([*keys.values(), self._slot()])
        records = self._records.select_once(task.stretch) if task.watermarks is None else self._records_ahead()
        no_arrival = {} if task.watermarks is None else dict.fromkeys(("met_at", *_ARRIVAL_COLUMNS), "NULL")
        columns = select_list({**keys, "share": share, **spans, **parts, **no_arrival})
        units = f"SELECT {columns} FROM ({records}) GROUP BY {by}"
        if task.watermarks is None:
            return units
        keys_and_share = {name: f"any_value({value})" for name, value in {**keys, "share": share}.items()}
        arrival_columns = {name: name for name in _ARRIVAL_COLUMNS} | {"source_partition": PARTITION_TEXT}
        arrival = {"met_at": self._met_at(), **arrival_columns}
        arrival = {name: f"any_value({value})" for name, value in arrival.items()}
        # Each record behind the watermark is a unit, even if several are equal in all columns.
        behind = (
            f"SELECT {select_list({**keys_and_share, **spans, **parts, **arrival})} FROM stragglers GROUP BY rowid"
        )
        return f"{units} UNION ALL {behind}"

    def of_share(self, share: int) -> str:
        """Return a query of the table `units` for one share of the keys."""
        return f"SELECT * EXCLUDE (share) FROM units WHERE share = {share}"

    def _slot(self) -> str:
        """Return the start of the slot, as long as the gap, in which a record is."""
        window = self._task.window
        return floor_to_step(self._at, 0, window.gap) if window.per_ms == 1 else floor_us(self._at, window.gap)

    def _met_at(self) -> str:
        """Return the last instant that the watermark of a record has reached; no session ends near -inf."""
        per_ms = self._task.window.per_ms
        if per_ms == 1:
            return "watermark_ms"
        return f"greatest(watermark_ms, {MIN_MS // per_ms}) * {per_ms} + {per_ms - 1}"

    def _records_ahead(self) -> str:
        return f"SELECT * FROM ({self._add_watermarks()}) WHERE is_in_time"

    def _add_watermarks(self) -> str:
        """Return a query of records, their watermark at arrival, and whether they were at least 2 ms ahead."""
        watermarks = self._task.watermarks
        assert watermarks is not None  # noqa: S101 - only replays need it
        records = self._records.select_once(self._task.stretch)
        joined = (
            f"SELECT r.*, coalesce(b.watermark_ms, {MIN_MS}) AS watermark_ms"
            f" FROM (SELECT *, {_block_of_arrival(watermarks)} AS block FROM ({records})) r"
            " LEFT JOIN blocks b USING (block)"
        )
        return f"SELECT *, watermark_ms < event_ms - 1 AS is_in_time FROM ({joined})"


def _block_of_arrival(watermarks: BlockWatermarks) -> str:
    """Return the expression of `SourceClock.ticks_before` for the column `arrival_ms`."""
    clock = watermarks.clock
    if not clock.interval_ms:
        return "0::BIGINT"
    elapsed_ms = f"greatest(least(arrival_ms, {clock.end_ms}) - {clock.start_ms}, 0)"
    return f"({elapsed_ms} // {clock.interval_ms})"


class SessionQueries:
    """The queries of one `SessionTask` over its units, and over the tables made of them."""

    def __init__(self, task: SessionTask) -> None:
        self._task = task
        self._keys = [f"k{number}" for number in range(len(task.keys))]
        per_ms = task.window.per_ms
        self._owned_from, self._owned_until = task.owned.start_ms * per_ms, task.owned.end_ms * per_ms
        self._is_owned = f"start_at >= {self._owned_from} AND start_at < {self._owned_until}"

    def units_in_islands(self) -> str:
        """Return a query of units and the start of their island; in a replay also whether they begin a chain.

        Units are sorted by their first event. Each unit of a chain surely joined the session of the previous one.
        """
        paths = ", ".join(quote_path(path) for path in self._task.units)
        is_replay = self._task.panes is not None
        ordered_by_key = f"PARTITION BY {', '.join(self._keys)}" if self._keys else ""
        ordered_by_key += " ORDER BY first_at" + (", met_at NULLS FIRST" if is_replay else "")
        preceding = f"OVER ({ordered_by_key} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        running = {"before_at": f"max(last_at) {preceding}"}
        if is_replay:
            running["chain_at"] = f"max(CASE WHEN {self._is_in_backbone()} THEN last_at END) {preceding}"
        rows = f"SELECT *, {select_list(running)} FROM read_parquet([{paths}])"
        begins = {"begins": self._is_after_gap("before_at")}
        if is_replay:
            joins_waiting = f"(met_at IS NULL OR coalesce(met_at < {self._fires_at('chain_at')}, false))"
            is_in_chain = f"({joins_waiting} AND NOT {self._is_after_gap('chain_at')})"
            begins["begins_chain"] = f"{self._is_in_backbone()} AND NOT {is_in_chain}"
        rows = f"SELECT *, {select_list(begins)} FROM ({rows})"
        start_at = f"max(CASE WHEN begins THEN first_at END) OVER ({ordered_by_key} ROWS UNBOUNDED PRECEDING)"
        return f"SELECT * EXCLUDE (begins, {', '.join(running)}), {start_at} AS start_at FROM ({rows})"

    def islands(self, units: str) -> str:
        """Return a query of a row per key and island, over placed units; in a replay with `is_clean`."""
        by = ", ".join([*self._keys, "start_at"])
        sums = {
            "last_at": "max(last_at)",
            "events": "sum(events)::BIGINT",
            **merge_partials(self._task.aggregates),
        }
        if self._task.panes is None:
            return f"SELECT {by}, {select_list(sums)} FROM ({units}) GROUP BY {by}"
        is_backbone = self._is_in_backbone()
        facts = {
            "chains": "count_if(begins_chain)",
            "backbone_first_at": f"min(CASE WHEN {is_backbone} THEN first_at END)",
            "backbone_last_at": f"max(CASE WHEN {is_backbone} THEN last_at END)",
            "others_first_at": f"min(CASE WHEN NOT {is_backbone} THEN first_at END)",
            "others_met_at": f"max(CASE WHEN NOT {is_backbone} THEN met_at END)",
        }
        grouped = f"SELECT {by}, {select_list({**sums, **facts})} FROM ({units}) GROUP BY {by}"
        joins_backbone = f"others_met_at < {self._fires_at('backbone_last_at')}"
        is_absorbed = f"coalesce(others_first_at >= backbone_first_at AND {joins_backbone}, false)"
        is_clean = f"chains = 1 AND (others_first_at IS NULL OR {is_absorbed})"
        if (until := self._task.window.emitted_until) is not None:
            is_clean = f"chains = 1 AND others_first_at IS NULL AND last_at + {self._task.window.gap} <= {until}"
        return f"SELECT * EXCLUDE ({', '.join(facts)}), {is_clean} AS is_clean FROM ({grouped})"

    def totals(self) -> str:
        """Return a query of the number of records in all islands, and in those that start in `owned`."""
        owned = f"coalesce(sum(events) FILTER (WHERE {self._is_owned}), 0)::BIGINT"
        return f"SELECT coalesce(sum(events), 0)::BIGINT, {owned} FROM islands"

    def recomputed_windows(self) -> str:
        """Return a query of the table of windows over `islands`."""
        values = {aggregate.name: final_value(aggregate) for aggregate in self._task.aggregates} | {
            RECORD_COUNT: "events"
        }
        rows = f"SELECT *, last_at + {self._task.window.gap} AS end_at FROM islands WHERE {self._is_owned}"
        return self._to_output(rows, values, self._task.windows)

    def dirty(self) -> str:
        """Return a query of the units of islands that overlap the owned interval and that lateness may have split.

        The units are numbered in the order of the replay. Units ahead of the watermark have no arrival order and
        come first.
        """
        overlaps = f"start_at < {self._owned_until} AND last_at >= {self._owned_from}"
        is_same_island = " AND ".join(
            f"u.{name} IS NOT DISTINCT FROM i.{name}" for name in (*self._keys, "start_at")
        )
        split_islands = f"SELECT * FROM islands WHERE NOT is_clean AND {overlaps}"
        units = f"SELECT * FROM placed u SEMI JOIN ({split_islands}) i ON {is_same_island}"
        arrival_order = (
            "arrival_ms NULLS FIRST, arrival_seq NULLS FIRST, source_partition_text NULLS FIRST, first_at"
        )
        by = ", ".join([*self._keys, "start_at"])
        rows = f"SELECT *, {PARTITION_TEXT} AS source_partition_text FROM ({units})"
        position = f"row_number() OVER (PARTITION BY {by} ORDER BY {arrival_order})"
        placed = f"SELECT *, {position} AS position FROM ({rows})"
        return f"SELECT *, row_number() OVER (ORDER BY {by}, position) AS {UNIT} FROM ({placed})"

    def to_play(self) -> str:
        """Return a query of the columns that the replay reads from the table `dirty`, in its order."""
        columns = {
            UNIT: UNIT,
            FIRST: "first_at",
            LAST: "last_at",
            MET: "met_at",
            SEQ: "arrival_seq",
            GAP: f"{self._task.window.gap}::BIGINT",
            LATENESS: f"{self._task.allowed_lateness_ms}::BIGINT",
            UNTIL: f"{'NULL' if (until := self._task.window.emitted_until) is None else until}::BIGINT",
            POSITION: "position",
        }
        return f"SELECT {select_list(columns)} FROM dirty ORDER BY {UNIT}"

    def panes(self, *, has_dirty: bool) -> str:
        """Return a query of the table of panes: of clean islands, and of replayed ones."""
        task = self._task
        assert task.panes is not None  # noqa: S101 - only replays need it
        values = [
            (f"{aggregate.name}__{pane}", final_value(aggregate))
            for pane in PANES_KEPT
            for aggregate in task.aggregates
        ]
        clean_values = {
            **dict(values),
            **{pane_count_column(pane): "events" for pane in PANES_KEPT},
            "late_firings": "0",
        }
        clean = f"SELECT *, last_at + {task.window.gap} AS end_at FROM islands WHERE is_clean AND {self._is_owned}"
        clean_panes = self._to_output(clean, clean_values, task.panes)
        if not has_dirty:
            return clean_panes
        replayed_values = {**pane_values(task.aggregates), "late_firings": "late_firings"}
        replayed = f"SELECT * FROM ({self._replayed_windows()}) WHERE {self._is_owned}"
        return f"{clean_panes} UNION ALL {self._to_output(replayed, replayed_values, task.panes)}"

    def _replayed_windows(self) -> str:
        """Return a query of the windows of replayed islands, with the partial values of each pane."""
        start_at, end_at = IN_WINDOW
        values: dict[str, str] = {"late_firings": "max(session__late_firings)"}
        for pane in PANES_KEPT:
            filter_clause = f" FILTER (WHERE session__in_{pane})"
            values[pane_count_column(pane)] = f"coalesce(sum(events){filter_clause}, 0)::BIGINT"
            values |= merge_partials(self._task.aggregates, filter_clause, f"__{pane}")
        bounds = {"start_at": start_at, "end_at": end_at}
        by = ", ".join([*self._keys, *bounds.values()])
        joined = f"SELECT d.*, m.* EXCLUDE ({UNIT}) FROM members m JOIN dirty d USING ({UNIT})"
        renamed = f"SELECT * EXCLUDE (start_at) FROM ({joined})"
        keys = {key: key for key in self._keys}
        return f"SELECT {select_list({**keys, **bounds, **values})} FROM ({renamed}) GROUP BY {by}"

    def published_windows(self) -> str:
        """Return a query of the table of windows over the file of panes."""
        task = self._task
        assert task.panes is not None  # noqa: S101 - only replays need it
        return published_windows_query(task.panes.path, task.windows, task.aggregates, task.published, task.chunks)

    def count_corrections(self) -> str:
        """Return a query of corrections of counts: plus one for the fate of a late record, minus one on time."""
        late = f"SELECT * FROM ({self._join_fates()}) WHERE fate <> {quote_text(Fate.ON_TIME)}"
        fates = f"unnest([1, -1]) AS change, unnest([fate, {quote_text(Fate.ON_TIME)}]) AS of_fate"
        changes = f"SELECT *, {fates} FROM ({late})"
        cell_ms = floor_to_step(self._in_ms("first_at"), self._task.cells.offset_ms, self._task.cells.size_ms)
        columns = {
            "event_time_ms": cell_ms,
            "source_partition": PARTITION_TEXT,
            "fate": "of_fate",
            "chunk_number": chunk_number(cell_ms, self._task.chunks),
        }
        grouped = (
            f"SELECT {select_list({**columns, 'events': 'sum(change)::BIGINT'})} FROM ({changes}) GROUP BY ALL"
        )
        no_arrival = select_list({"first_arrival_ms": "NULL::BIGINT", "last_arrival_ms": "NULL::BIGINT"})
        return f"SELECT *, {no_arrival} FROM ({grouped})"

    def dropped_events(self) -> str:
        """Return a query of the table of dropped records, for events in the owned interval."""
        task = self._task
        assert task.dropped is not None  # noqa: S101 - only replays need it
        is_owned = f"first_at >= {self._owned_from} AND first_at < {self._owned_until}"
        cell_ms = floor_to_step(self._in_ms("first_at"), task.cells.offset_ms, task.cells.size_ms)
        values = {
            "event_time": to_timestamp(self._in_ms("first_at")),
            "arrival_time": to_timestamp("arrival_ms"),
            "source_partition": "source_partition",
            "arrival_seq": "arrival_seq",
            "cleaned_up_at": "NULL",
            "run_id": quote_text(task.dropped.run_id),
            **dict(zip(task.keys, self._keys, strict=True)),
            **staging_columns(cell_ms, task.chunks),
        }
        dropped = f"SELECT * FROM ({self._join_fates()}) WHERE fate = {quote_text(Fate.DROPPED)} AND {is_owned}"
        return f"SELECT {cast_columns(values, task.dropped)} FROM ({dropped})"

    def _join_fates(self) -> str:
        return f"SELECT d.*, f.fate FROM fates f JOIN dirty d USING ({UNIT})"

    def _to_output(self, rows: str, values: dict[str, str], output: TaskOutput) -> str:
        """Return a query of the columns of a table, over rows with `start_at`, `end_at`, and the keys."""
        columns = {
            **values,
            "window_start": self._timestamp("start_at"),
            "window_end": self._timestamp("end_at"),
            "run_id": quote_text(output.run_id),
            **staging_columns(self._in_ms("start_at"), self._task.chunks),
            **dict(zip(self._task.keys, self._keys, strict=True)),
        }
        return f"SELECT {cast_columns(columns, output)} FROM ({rows})"

    def _timestamp(self, at: str) -> str:
        return to_timestamp(at) if self._task.window.per_ms == 1 else f"make_timestamptz({at})"

    def _in_ms(self, at: str) -> str:
        """Return the millisecond of an instant."""
        per_ms = self._task.window.per_ms
        return at if per_ms == 1 else f"({floor_us(at, per_ms)} // {per_ms})"

    def _is_in_backbone(self) -> str:
        """Return the condition that a unit is surely in a waiting session: it arrived before its window fired."""
        return f"(met_at IS NULL OR met_at < {self._fires_at('first_at')})"

    def _fires_at(self, last_at: str) -> str:
        """Return the watermark that fires a session with this last event."""
        return f"({last_at} + {self._task.window.gap - 1})"

    def _is_after_gap(self, before_at: str) -> str:
        """Return the condition that a unit begins more than a gap after the preceding ones, or is the first."""
        return f"coalesce(first_at - {before_at} > {self._task.window.gap}, true)"
