"""Compute fates, records in windows, and the table of metrics from the counts of records.

Counts have a row per slice of event time, source partition, and fate. The tasks of some chunks write them into
files, which are small enough for the driver to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from backstream.eventtime.duplicates import RecordGap
from backstream.eventtime.instants import MAX_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.records import SIDE_OUTPUT, TIMING_BY_FATE, Fate
from backstream.eventtime.windows import FixedWindow, Sliding, Tumbling
from backstream.native import sql
from backstream.native.database import open_database, register_firing_times, split_output, write_query
from backstream.native.task import ChunkGrid, TaskOutput, WrittenFiles
from backstream.watermarks.firing_times import FiringTimes, WindowGrid


class ChunkCounts(NamedTuple):
    """The numbers of records by chunk number: `fates` by source partition and fate, and `gaps` by `RecordGap`.

    A record of a window that no chunk owns has the fate `halo`, and its gaps are not counted.
    """

    fates: dict[int, dict[str, dict[str, int]]]
    gaps: dict[int, dict[str, int]]

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[Any, ...]]) -> Self:
        """Return the counts of rows: chunk, source partition, fate, records, and records by `RecordGap`."""
        fates: dict[int, dict[str, dict[str, int]]] = {}
        gaps: dict[int, dict[str, int]] = {}
        for chunk, partition, fate, events, *counts in sorted(rows):
            fates.setdefault(chunk, {}).setdefault(partition, {})[fate] = events
            if fate != Fate.HALO:
                found = gaps.setdefault(chunk, dict.fromkeys(map(str, RecordGap), 0))
                for gap, count in zip(RecordGap, counts, strict=True):
                    found[gap.value] += count
        return cls(fates, gaps)


@dataclass(frozen=True, slots=True)
class NativeCounts:
    """Files of counts.

    `cells` are the windows of the metrics. `owned` contains the starts of the cells that the chunks own. `grid`
    are the windows of the results; sessions have none.
    """

    paths: Sequence[str]
    grid: WindowGrid | None
    cells: Tumbling | Sliding
    owned: Interval
    firing_times: FiringTimes | None
    memory_mb: int

    def by_chunk(self) -> ChunkCounts:
        """Return the numbers of records of each chunk.

        A record is `halo` if no chunk owns its latest window.
        """
        start_ms = sql.floor_to_step("event_time_ms", self.cells.offset_ms, self.cells.start_step_ms)
        is_owned = f"fate = {sql.quote_text(Fate.QUARANTINED)} OR ({self._is_owned(start_ms)})"
        fate = f"CASE WHEN {is_owned} THEN fate ELSE {sql.quote_text(Fate.HALO)} END"
        gaps = ", ".join(f"coalesce(sum({gap}), 0)::BIGINT" for gap in RecordGap)
        return ChunkCounts.from_rows(
            self._fetch(
                f"SELECT chunk_number, coalesce(source_partition, 'unknown'), {fate}, sum(events)::BIGINT, {gaps}"
                f" FROM ({self._scan_counts()}) GROUP BY 1, 2, 3"
            )
        )

    def read(self) -> dict[int, int]:
        """Return the number of records that each chunk read."""
        return dict(
            self._fetch(f"SELECT chunk_number, sum(events)::BIGINT FROM ({self._scan_counts()}) GROUP BY ALL")
        )

    def records_in_windows(self) -> int:
        """Return the number of records in the windows of the chunks; one in three windows counts three times."""
        assert self.grid is not None  # noqa: S101 - not called for sessions
        rows = self._assign_windows(self.grid.window)
        return sum(
            int(events) for (events,) in self._fetch(f"SELECT coalesce(sum(events), 0)::BIGINT FROM ({rows})")
        )

    def write_metrics(self, output: TaskOutput, chunks: ChunkGrid) -> WrittenFiles | None:
        """Write the metrics, a row per window and source partition, and return the files; None without rows."""
        if not self.paths:
            return None
        timing = "'on_time'"
        if isinstance(self.cells, Tumbling):
            cases = (
                f"WHEN {sql.quote_text(fate)} THEN {sql.quote_text(own)}" for fate, own in TIMING_BY_FATE.items()
            )
            timing = f"CASE fate {' '.join(cases)} END"
        elif self.firing_times is not None:
            late = "WHEN is_cleaned_up THEN 'expired' WHEN is_fired THEN 'late'"
            timing = f"CASE WHEN late IS NULL THEN 'on_time' {late} ELSE 'on_time' END"
        cleaned_up = "timing IN ('expired', 'dropped')"
        dropped = f"fate IN ({', '.join(map(sql.quote_text, SIDE_OUTPUT))})"
        counts = {
            "events": "true",
            "on_time": "timing = 'on_time'",
            "late": "timing = 'late'",
            "dropped": f"{cleaned_up} AND {dropped}",
            "expired": f"{cleaned_up} AND NOT {dropped}",
        }
        sums = [
            f"coalesce(sum(events) FILTER (WHERE {condition}), 0) AS {name}" for name, condition in counts.items()
        ]
        sums += ["min(first_arrival_ms) AS first_arrival_ms", "max(last_arrival_ms) AS last_arrival_ms"]
        by = "start_ms, end_ms, source_partition"
        with_timing = f"SELECT *, {timing} AS timing FROM ({self._join_firing_times()})"
        selected = f"{by}, any_value(fired_at_ms) AS fired_at_ms, {', '.join(sums)}"
        grouped = f"SELECT {selected} FROM ({with_timing}) GROUP BY {by}"
        values = {
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
        with open_database(self.memory_mb) as database:
            register_firing_times(database, self.firing_times)
            rows = write_query(
                database, f"SELECT {sql.cast_columns(values, output)} FROM ({grouped})", output.path, output
            )
        return split_output(rows, output) if rows else None

    def _join_firing_times(self) -> str:
        """Return a query of counts per window of `cells`, with `fired_at_ms` and needed lateness columns."""
        rows = self._assign_windows(self.cells)
        if self.firing_times is None or self.grid is None:
            return f"SELECT *, NULL::BIGINT AS fired_at_ms FROM ({rows})"
        number = sql.window_number(self.grid, "end_ms")
        lateness = ""
        if isinstance(self.cells, Sliding):
            position = ["late_arrival_time_ms", "late_arrival_seq", "late_source_partition"]
            fired, cleaned_up = (
                sql.is_after(self.firing_times, which, position) for which in ("t_fired", "t_cleaned_up")
            )
            lateness = f", late_arrival_time_ms AS late, {fired} AS is_fired, {cleaned_up} AS is_cleaned_up"
        joined = sql.join_firing_times(rows, number, self.firing_times)
        return f"SELECT *, nullif(t_fired_ms, {MAX_MS}) AS fired_at_ms{lateness} FROM ({joined})"

    def _assign_windows(self, window: FixedWindow) -> str:
        """Return a query of counts with `start_ms` and `end_ms` of each owned window that contains them."""
        fates = ", ".join(map(sql.quote_text, TIMING_BY_FATE))
        rows = f"SELECT * FROM ({self._scan_counts()}) WHERE fate IN ({fates})"
        first, last = sql.window_ends(window, "event_time_ms")
        step_ms = window.end_step_ms
        windows = f"SELECT *, unnest(range({first}, {last} + 1, {step_ms})) AS end_ms FROM ({rows})"
        start_ms = sql.window_start(window, "end_ms")
        return (
            f"SELECT * FROM (SELECT *, {start_ms} AS start_ms FROM ({windows})) WHERE {self._is_owned('start_ms')}"
        )

    def _is_owned(self, start_ms: str) -> str:
        return f"{start_ms} >= {self.owned.start_ms} AND {start_ms} < {self.owned.end_ms}"

    def _scan_counts(self) -> str:
        paths = ", ".join(sql.quote_path(path) for path in self.paths)
        return f"SELECT * FROM read_parquet([{paths}], union_by_name = true)"

    def _fetch(self, query: str) -> list[tuple[Any, ...]]:
        if not self.paths:
            return []
        with open_database(self.memory_mb) as database:
            return database.execute(query).fetchall()
