"""The queries of tasks that make units, and of those that make sessions of units.

The rules are those of `spark.sessions.islands`: both engines find the same islands, and the same of them clean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.records import Fate
from backstream.native.aggregates import (
    final_value,
    merge_partials,
    pane_values,
    partial_names,
    published_windows_query,
    storable_partials,
)
from backstream.native.records import RecordsQuery
from backstream.native.sessions.arrow_replay import FIRST, GAP, IN_WINDOW, LAST, LATENESS, MET, POSITION, SEQ
from backstream.native.sessions.task import BlockWatermarks, SessionTask, UnitTask
from backstream.native.sql import (
    PARTITION_TEXT,
    Groups,
    cast_columns,
    chunk_number,
    column_alias,
    floor_to_step,
    quote_path,
    quote_text,
    select_list,
    staging_columns,
    to_timestamp,
)
from backstream.native.task import TaskOutput
from backstream.runs.table_schemas import PANES_KEPT, RECORD_COUNT, pane_count

if TYPE_CHECKING:
    import duckdb

_ARRIVED = ("arrival_ms", "arrival_seq", "source_partition")
UNIT = "unit"
"""The column that numbers the units of dirty islands."""


class UnitQueries:
    """The queries of one `UnitTask` over the files' rows, and over the tables that it makes of them."""

    def __init__(self, task: UnitTask, groups: Groups) -> None:
        self._task = task
        columns = [*task.keys, *(each.column for each in task.aggregates if each.column)]
        self._records = RecordsQuery(task.reading, groups, columns, task.deduplicate_on)

    def mark_copies(self, opened: duckdb.DuckDBPyConnection) -> None:
        """Find the copies of the stretch; the other queries then tell them."""
        self._records.mark_copies(opened, self._task.stretch)

    def counts(self) -> str:
        """Return the records by cell, source partition and fate: on time, as long as nothing else is known."""
        task = self._task
        cell_ms = floor_to_step("event_ms", task.cells.offset_ms, task.cells.size_ms)
        fate = "is_duplicate" if self._records.has_copies else "false"
        groups = (
            f"SELECT cell_ms, source_partition, is_copy, count(*) AS events, min(arrival_ms) AS first_ms,"
            f" max(arrival_ms) AS last_ms FROM (SELECT {cell_ms} AS cell_ms, source_partition, {fate} AS is_copy,"
            f" arrival_ms FROM ({self._records.select(task.stretch)})) GROUP BY ALL"
        )
        columns = {
            "event_time_ms": "cell_ms",
            "source_partition": PARTITION_TEXT,
            "fate": f"CASE WHEN is_copy THEN {quote_text(Fate.DUPLICATE)} ELSE {quote_text(Fate.ON_TIME)} END",
            "chunk_number": chunk_number("cell_ms", task.chunks),
            "events": "events",
            "first_arrival_ms": "first_ms",
            "last_arrival_ms": "last_ms",
        }
        return f"SELECT {select_list(columns)} FROM ({groups})"

    def blocks(self, met: BlockWatermarks) -> str:
        """Return the watermarks that records can have met, by block: the table `blocks`."""
        first, end = met.blocks
        return f"SELECT * FROM read_parquet({quote_path(met.path)}) WHERE block >= {first} AND block < {end}"

    def stragglers(self) -> str:
        """Return the records that did not come in time, each with the watermark that it met."""
        return f"SELECT * FROM ({self._timed()}) WHERE NOT is_in_time"

    def units(self) -> str:
        """Return all units, of the table `stragglers` too, each with the share of its key."""
        task = self._task
        keys = {f"k{number}": column_alias(task.reading, key) for number, key in enumerate(task.keys)}
        share = f"(hash({', '.join(keys.values()) or '0'}) % {task.shares})::INTEGER"
        spans = {"first_ms": "min(event_ms)", "last_ms": "max(event_ms)", "events": "count(*)"}
        parts = storable_partials(task.aggregates, task.reading)
        by = ", ".join([*keys.values(), floor_to_step("event_ms", 0, task.gap_ms)])
        records = self._records.select_once(task.stretch) if task.watermarks is None else self._in_time()
        unmet = {} if task.watermarks is None else dict.fromkeys(("met_ms", *_ARRIVED), "NULL")
        columns = select_list({**keys, "share": share, **spans, **parts, **unmet})
        found = f"SELECT {columns} FROM ({records}) GROUP BY {by}"
        if task.watermarks is None:
            return found
        one = {name: f"any_value({value})" for name, value in {**keys, "share": share}.items()}
        arrived = {name: name for name in _ARRIVED} | {"source_partition": PARTITION_TEXT}
        met = {"met_ms": "watermark_ms", **arrived}
        met = {name: f"any_value({value})" for name, value in met.items()}
        # Stragglers may be alike in every column; each is a unit all the same.
        alone = f"SELECT {select_list({**one, **spans, **parts, **met})} FROM stragglers GROUP BY rowid"
        return f"{found} UNION ALL {alone}"

    def of_share(self, share: int) -> str:
        """Return those of the table `units` that are of a share of the keys."""
        return f"SELECT * EXCLUDE (share) FROM units WHERE share = {share}"

    def _in_time(self) -> str:
        return f"SELECT * FROM ({self._timed()}) WHERE is_in_time"

    def _timed(self) -> str:
        """The records with the watermark that they met, and whether they were at least 2 ms ahead of it."""
        met = self._task.watermarks
        assert met is not None  # noqa: S101 - asked for by a replay only
        records = self._records.select_once(self._task.stretch)
        joined = (
            f"SELECT r.*, coalesce(b.watermark_ms, {MIN_MS}) AS watermark_ms"
            f" FROM (SELECT *, {_ticks_before(met)} AS block FROM ({records})) r LEFT JOIN blocks b USING (block)"
        )
        return f"SELECT *, watermark_ms < event_ms - 1 AS is_in_time FROM ({joined})"


def _ticks_before(met: BlockWatermarks) -> str:
    """`Clock.ticks_before` of the column `arrival_ms`."""
    clock = met.clock
    if not clock.interval_ms:
        return "0::BIGINT"
    elapsed_ms = f"greatest(least(arrival_ms, {clock.end_ms}) - {clock.start_ms}, 0)"
    return f"({elapsed_ms} // {clock.interval_ms})"


class SessionQueries:
    """The queries of one `SessionTask` over its units, and over the tables that are made of them."""

    def __init__(self, task: SessionTask) -> None:
        self._task = task
        self._keys = [f"k{number}" for number in range(len(task.keys))]
        self._is_ours = f"start_ms >= {task.owned.start_ms} AND start_ms < {task.owned.end_ms}"
        self._parts = [name for each in task.aggregates for name in partial_names(each)]

    def placed(self) -> str:
        """Return the units with the start of their island; in a replay also whether a chain begins with them.

        Units follow one another by their first event. Of those in a chain each is sure to meet the one before.
        """
        paths = ", ".join(quote_path(path) for path in self._task.units)
        is_replay = self._task.panes is not None
        of_key = f"PARTITION BY {', '.join(self._keys)}" if self._keys else ""
        of_key += " ORDER BY first_ms" + (", met_ms NULLS FIRST" if is_replay else "")
        before = f"OVER ({of_key} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        told = {"before_ms": f"max(last_ms) {before}"}
        if is_replay:
            told["chain_ms"] = f"max(CASE WHEN {self._is_backbone()} THEN last_ms END) {before}"
        rows = f"SELECT *, {select_list(told)} FROM read_parquet([{paths}])"
        begins = {"begins": self._is_apart("before_ms")}
        if is_replay:
            is_met = f"(met_ms IS NULL OR coalesce(met_ms < {self._fires_ms('chain_ms')}, false))"
            is_in_chain = f"({is_met} AND NOT {self._is_apart('chain_ms')})"
            begins["begins_chain"] = f"{self._is_backbone()} AND NOT {is_in_chain}"
        rows = f"SELECT *, {select_list(begins)} FROM ({rows})"
        start_ms = f"max(CASE WHEN begins THEN first_ms END) OVER ({of_key} ROWS UNBOUNDED PRECEDING)"
        return f"SELECT * EXCLUDE (begins, {', '.join(told)}), {start_ms} AS start_ms FROM ({rows})"

    def islands(self, units: str) -> str:
        """Return a row per key and island, out of units that are placed; in a replay with `is_clean`."""
        by = ", ".join([*self._keys, "start_ms"])
        sums = {
            "last_ms": "max(last_ms)",
            "events": "sum(events)::BIGINT",
            **merge_partials(self._task.aggregates),
        }
        if self._task.panes is None:
            return f"SELECT {by}, {select_list(sums)} FROM ({units}) GROUP BY {by}"
        is_backbone = self._is_backbone()
        of_island = {
            "chains": "count_if(begins_chain)",
            "backbone_first_ms": f"min(CASE WHEN {is_backbone} THEN first_ms END)",
            "backbone_last_ms": f"max(CASE WHEN {is_backbone} THEN last_ms END)",
            "others_first_ms": f"min(CASE WHEN NOT {is_backbone} THEN first_ms END)",
            "others_met_ms": f"max(CASE WHEN NOT {is_backbone} THEN met_ms END)",
        }
        grouped = f"SELECT {by}, {select_list({**sums, **of_island})} FROM ({units}) GROUP BY {by}"
        finds_it = f"others_met_ms < {self._fires_ms('backbone_last_ms')}"
        is_taken = f"coalesce(others_first_ms >= backbone_first_ms AND {finds_it}, false)"
        is_clean = f"chains = 1 AND (others_first_ms IS NULL OR {is_taken})"
        return f"SELECT * EXCLUDE ({', '.join(of_island)}), {is_clean} AS is_clean FROM ({grouped})"

    def totals(self) -> str:
        """Return the number of records in all islands, and in those that start in what is owned."""
        ours = f"coalesce(sum(events) FILTER (WHERE {self._is_ours}), 0)::BIGINT"
        return f"SELECT coalesce(sum(events), 0)::BIGINT, {ours} FROM islands"

    def recomputed(self) -> str:
        """Return the columns of the table of windows, out of `islands`."""
        values = {each.name: final_value(each) for each in self._task.aggregates} | {RECORD_COUNT: "events"}
        rows = f"SELECT *, last_ms + {self._task.gap_ms} AS end_ms FROM islands WHERE {self._is_ours}"
        return f"SELECT {cast_columns(self._known(values, self._task.windows), self._task.windows)} FROM ({rows})"

    def dirty(self) -> str:
        """Return the units of the islands that lateness may have split and that reach into what is owned.

        They are in the order in which the fold plays them, numbered: units in time, which have no place in arrival
        order, come first.
        """
        owned = self._task.owned
        reaches = f"start_ms < {owned.end_ms} AND last_ms >= {owned.start_ms}"
        same = " AND ".join(f"u.{name} IS NOT DISTINCT FROM i.{name}" for name in (*self._keys, "start_ms"))
        touched = f"SELECT * FROM islands WHERE NOT is_clean AND {reaches}"
        units = f"SELECT * FROM placed u SEMI JOIN ({touched}) i ON {same}"
        arrived = "arrival_ms NULLS FIRST, arrival_seq NULLS FIRST, source_partition_text NULLS FIRST, first_ms"
        by = ", ".join([*self._keys, "start_ms"])
        rows = f"SELECT *, {PARTITION_TEXT} AS source_partition_text FROM ({units})"
        position = f"row_number() OVER (PARTITION BY {by} ORDER BY {arrived})"
        placed = f"SELECT *, {position} AS position FROM ({rows})"
        return f"SELECT *, row_number() OVER (ORDER BY {by}, position) AS {UNIT} FROM ({placed})"

    def to_play(self) -> str:
        """Return what the fold asks of the table `dirty`, in its order."""
        columns = {
            UNIT: UNIT,
            FIRST: "first_ms",
            LAST: "last_ms",
            MET: "met_ms",
            SEQ: "arrival_seq",
            GAP: f"{self._task.gap_ms}::BIGINT",
            LATENESS: f"{self._task.allowed_lateness_ms}::BIGINT",
            POSITION: "position",
        }
        return f"SELECT {select_list(columns)} FROM dirty ORDER BY {UNIT}"

    def panes(self, *, has_dirty: bool) -> str:
        """Return the columns of the table of panes: of clean islands, and of what the fold made of dirty ones."""
        task = self._task
        assert task.panes is not None  # noqa: S101 - asked for by a replay only
        values = [(f"{each.name}__{pane}", final_value(each)) for pane in PANES_KEPT for each in task.aggregates]
        whole = {**dict(values), **{pane_count(pane): "events" for pane in PANES_KEPT}, "late_firings": "0"}
        clean = f"SELECT *, last_ms + {task.gap_ms} AS end_ms FROM islands WHERE is_clean AND {self._is_ours}"
        found = f"SELECT {cast_columns(self._known(whole, task.panes), task.panes)} FROM ({clean})"
        if not has_dirty:
            return found
        told = {**pane_values(task.aggregates), "late_firings": "late_firings"}
        split = f"SELECT * FROM ({self._split()}) WHERE {self._is_ours}"
        return f"{found} UNION ALL SELECT {cast_columns(self._known(told, task.panes), task.panes)} FROM ({split})"

    def _split(self) -> str:
        """The windows of islands that were played, with the parts of each pane."""
        start_ms, end_ms = IN_WINDOW
        values: dict[str, str] = {"late_firings": "max(session__late_firings)"}
        for pane in PANES_KEPT:
            only = f" FILTER (WHERE session__in_{pane})"
            values[pane_count(pane)] = f"coalesce(sum(events){only}, 0)::BIGINT"
            values |= merge_partials(self._task.aggregates, only, f"__{pane}")
        bounds = {"start_ms": start_ms, "end_ms": end_ms}
        by = ", ".join([*self._keys, *bounds.values()])
        joined = f"SELECT d.*, m.* EXCLUDE ({UNIT}) FROM members m JOIN dirty d USING ({UNIT})"
        renamed = f"SELECT * EXCLUDE (start_ms) FROM ({joined})"
        keys = {key: key for key in self._keys}
        return f"SELECT {select_list({**keys, **bounds, **values})} FROM ({renamed}) GROUP BY {by}"

    def published(self) -> str:
        """Return the columns of the table of windows, out of the file of panes."""
        task = self._task
        assert task.panes is not None  # noqa: S101 - asked for by a replay only
        return published_windows_query(task.panes.path, task.windows, task.aggregates, task.published, task.chunks)

    def moved(self) -> str:
        """Return what the counts of records lack: each straggler with another fate, less one on time."""
        late = f"SELECT * FROM ({self._judged()}) WHERE fate <> {quote_text(Fate.ON_TIME)}"
        fates = f"unnest([1, -1]) AS change, unnest([fate, {quote_text(Fate.ON_TIME)}]) AS of_fate"
        both = f"SELECT *, {fates} FROM ({late})"
        cell_ms = floor_to_step("first_ms", self._task.cells.offset_ms, self._task.cells.size_ms)
        columns = {
            "event_time_ms": cell_ms,
            "source_partition": PARTITION_TEXT,
            "fate": "of_fate",
            "chunk_number": chunk_number(cell_ms, self._task.chunks),
        }
        grouped = f"SELECT {select_list({**columns, 'events': 'sum(change)::BIGINT'})} FROM ({both}) GROUP BY ALL"
        no_arrival = select_list({"first_arrival_ms": "NULL::BIGINT", "last_arrival_ms": "NULL::BIGINT"})
        return f"SELECT *, {no_arrival} FROM ({grouped})"

    def dropped(self) -> str:
        """Return the columns of the table of dropped records, of those that happened in what is owned."""
        task = self._task
        assert task.dropped is not None  # noqa: S101 - asked for by a replay only
        owned = task.owned
        is_ours = f"first_ms >= {owned.start_ms} AND first_ms < {owned.end_ms}"
        cell_ms = floor_to_step("first_ms", task.cells.offset_ms, task.cells.size_ms)
        known = {
            "event_time": to_timestamp("first_ms"),
            "arrival_time": to_timestamp("arrival_ms"),
            "source_partition": "source_partition",
            "arrival_seq": "arrival_seq",
            "cleaned_up_at": "NULL",
            "run_id": quote_text(task.dropped.run_id),
            **dict(zip(task.keys, self._keys, strict=True)),
            **staging_columns(cell_ms, task.chunks),
        }
        gone = f"SELECT * FROM ({self._judged()}) WHERE fate = {quote_text(Fate.DROPPED)} AND {is_ours}"
        return f"SELECT {cast_columns(known, task.dropped)} FROM ({gone})"

    def _judged(self) -> str:
        return f"SELECT d.*, f.fate FROM fates f JOIN dirty d USING ({UNIT})"

    def _known(self, values: dict[str, str], output: TaskOutput) -> dict[str, str]:
        """What a column of a table is, of rows with `start_ms`, `end_ms` and the keys."""
        return {
            **values,
            "window_start": to_timestamp("start_ms"),
            "window_end": to_timestamp("end_ms"),
            "run_id": quote_text(output.run_id),
            **staging_columns("start_ms", self._task.chunks),
            **dict(zip(self._task.keys, self._keys, strict=True)),
        }

    def _is_backbone(self) -> str:
        """Whether a unit is sure to be in a session that waits: in time, or before its own window was due."""
        return f"(met_ms IS NULL OR met_ms < {self._fires_ms('first_ms')})"

    def _fires_ms(self, last_ms: str) -> str:
        """The watermark that fires a session whose last event this is."""
        return f"({last_ms} + {self._task.gap_ms - 1})"

    def _is_apart(self, before_ms: str) -> str:
        """Whether a unit begins more than a gap after what was before, or nothing was."""
        return f"coalesce(first_ms - {before_ms} > {self._task.gap_ms}, true)"
