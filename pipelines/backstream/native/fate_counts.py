"""What the counts of records come to: fates, records in windows, and the rows of the table of metrics.

Counts are rows of a slice of event time, a source partition and a fate: the files that the tasks of some chunks
wrote. They are few, so that the driver reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backstream.eventtime.instants import MAX_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import Fate
from backstream.eventtime.windows import Cumulate, Sliding, Tumbling
from backstream.native import sql
from backstream.native.database import open_database, register_thresholds, split_output, write_query
from backstream.native.task import ChunkGrid, TaskGrid, TaskOutput, TaskThresholds, WrittenFiles

_IN_A_WINDOW = (Fate.ON_TIME, Fate.LATE, Fate.DROPPED)


@dataclass(frozen=True, slots=True)
class NativeCounts:
    """Files of counts. `cells` are the windows of the metrics; `owned` holds the starts of those of the chunks.

    `grid` are the windows of the results; sessions have none.
    """

    paths: Sequence[str]
    grid: TaskGrid | None
    cells: Tumbling | Sliding
    owned: Interval
    thresholds: TaskThresholds | None
    memory_mb: int

    def fates(self) -> dict[int, dict[str, dict[str, int]]]:
        """Return the number of the chunk, to source partition, to fate, to number of records.

        A record whose latest window none of the chunks owns is `halo`.
        """
        start_ms = sql.floor_to_step("event_time_ms", self.cells.offset_ms, sql.time_step_ms(self.cells))
        is_ours = f"fate = {sql.quote_text(Fate.QUARANTINED)} OR ({self._is_owned(start_ms)})"
        fate = f"CASE WHEN {is_ours} THEN fate ELSE {sql.quote_text(Fate.HALO)} END"
        found: dict[int, dict[str, dict[str, int]]] = {}
        for chunk, partition, of, events in self._ask(
            f"SELECT chunk_number, coalesce(source_partition, 'unknown'), {fate}, sum(events)::BIGINT"
            f" FROM ({self._rows()}) GROUP BY ALL ORDER BY ALL"
        ):
            found.setdefault(chunk, {}).setdefault(partition, {})[of] = events
        return found

    def read(self) -> dict[int, int]:
        """Return how many records each chunk read."""
        return dict(self._ask(f"SELECT chunk_number, sum(events)::BIGINT FROM ({self._rows()}) GROUP BY ALL"))

    def records_in_windows(self) -> int:
        """Return how many records the windows of the chunks hold: one in three windows counts three times."""
        assert self.grid is not None  # noqa: S101 - not asked of sessions
        rows = self._in_windows(self.grid.window)
        return sum(
            int(events) for (events,) in self._ask(f"SELECT coalesce(sum(events), 0)::BIGINT FROM ({rows})")
        )

    def write_metrics(self, output: TaskOutput, chunks: ChunkGrid) -> WrittenFiles | None:
        """Write the metrics, a row per window and source partition; None: there are none."""
        if not self.paths:
            return None
        timing = "'on_time'"
        if isinstance(self.cells, Tumbling):
            timing = "fate"
        elif self.thresholds is not None:
            late = "WHEN is_gone THEN 'expired' WHEN is_fired THEN 'late'"
            timing = f"CASE WHEN late IS NULL THEN 'on_time' {late} ELSE 'on_time' END"
        gone, dropped = "timing IN ('expired', 'dropped')", f"fate = {sql.quote_text(Fate.DROPPED)}"
        counts = {
            "events": "true",
            "on_time": "timing = 'on_time'",
            "late": "timing = 'late'",
            "dropped": f"{gone} AND {dropped}",
            "expired": f"{gone} AND NOT {dropped}",
        }
        sums = [f"coalesce(sum(events) FILTER (WHERE {each}), 0) AS {name}" for name, each in counts.items()]
        sums += ["min(first_arrival_ms) AS first_arrival_ms", "max(last_arrival_ms) AS last_arrival_ms"]
        by = "start_ms, end_ms, source_partition"
        timed = f"SELECT *, {timing} AS timing FROM ({self._timed()})"
        grouped = (
            f"SELECT {by}, any_value(fired_at_ms) AS fired_at_ms, {', '.join(sums)} FROM ({timed}) GROUP BY {by}"
        )
        known = {
            "window_start": sql.to_timestamp("start_ms"),
            "window_end": sql.to_timestamp("end_ms"),
            "source_partition": "coalesce(source_partition, 'unknown')",
            "first_arrival": sql.to_timestamp("first_arrival_ms"),
            "last_arrival": sql.to_timestamp("last_arrival_ms"),
            "fired_at": sql.to_timestamp("fired_at_ms"),
            "run_id": sql.quote_text(output.run_id),
            **{name: name for name in counts},
            **sql.staging_columns("start_ms", chunks),
        }
        with open_database(self.memory_mb) as opened:
            register_thresholds(opened, self.thresholds)
            rows = write_query(
                opened, f"SELECT {sql.cast_columns(known, output)} FROM ({grouped})", output.path, output
            )
        return split_output(rows, output) if rows else None

    def _timed(self) -> str:
        """Counts per window of `cells`, with `fired_at_ms`, and where it matters how the window finds them."""
        rows = self._in_windows(self.cells)
        if self.thresholds is None or self.grid is None:
            return f"SELECT *, NULL::BIGINT AS fired_at_ms FROM ({rows})"
        number = sql.window_number(self.grid, "end_ms")
        more = ""
        if isinstance(self.cells, Sliding):
            place = ["late_arrival_time_ms", "late_arrival_seq", "late_source_partition"]
            fired, gone = (sql.is_after(self.thresholds, which, place) for which in ("t_fired", "t_gone"))
            more = f", late_arrival_time_ms AS late, {fired} AS is_fired, {gone} AS is_gone"
        columns = f"r.*, {sql.threshold_columns('t', self.thresholds)}"
        joined = f"SELECT {columns} FROM ({rows}) r LEFT JOIN thresholds t ON t.n = {number}"
        return f"SELECT *, nullif(t_fired_ms, {MAX_MS}) AS fired_at_ms{more} FROM ({joined})"

    def _in_windows(self, window: Tumbling | Sliding | Cumulate) -> str:
        """Counts with the start and end of each window of the chunks that holds them: `start_ms` and `end_ms`."""
        fates = ", ".join(sql.quote_text(fate) for fate in _IN_A_WINDOW)
        rows = f"SELECT * FROM ({self._rows()}) WHERE fate IN ({fates})"
        first, last = sql.window_ends(window, "event_time_ms")
        step_ms = sql.window_step_ms(window)
        each = f"SELECT *, unnest(range({first}, {last} + 1, {step_ms})) AS end_ms FROM ({rows})"
        start_ms = f"end_ms - {window.size_ms}"
        if isinstance(window, Cumulate):
            start_ms = sql.floor_to_step("(end_ms - 1)", window.offset_ms, window.size_ms)
        return f"SELECT * FROM (SELECT *, {start_ms} AS start_ms FROM ({each})) WHERE {self._is_owned('start_ms')}"

    def _is_owned(self, start_ms: str) -> str:
        return f"{start_ms} >= {self.owned.start_ms} AND {start_ms} < {self.owned.end_ms}"

    def _rows(self) -> str:
        paths = ", ".join(sql.quote_path(path) for path in self.paths)
        return f"SELECT * FROM read_parquet([{paths}], union_by_name = true)"

    def _ask(self, query: str) -> list[tuple[Any, ...]]:
        if not self.paths:
            return []
        with open_database(self.memory_mb) as opened:
            return opened.execute(query).fetchall()
