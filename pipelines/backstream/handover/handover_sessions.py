"""Find the sessions that are open at a cut, and their records.

Events of a key that are at most a gap apart form an island. If no watermark came near an island before its last
record arrived, it is one session that has accepted all records. The reference engine replays all other islands
that may have an open session, record by record; these are few.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.records import Record, SourceClock
from backstream.eventtime.watermarks import Watermarks
from backstream.eventtime.window_operator import WindowOperator
from backstream.eventtime.windows import Session
from backstream.native.handover_queries import islands_query
from backstream.native.sql import PARTITION_TEXT
from backstream.watermarks.timeline import Longs, WatermarkTimeline, to_int64

if TYPE_CHECKING:
    import duckdb

_SESSIONS = pa.schema(
    [(name, pa.int64()) for name in ("row_id", "window_start_ms", "window_end_ms", "next_pane_index")]
)
_FIRST_LOOK_GAPS = 10
"""The length of the first look back, in gaps."""


@dataclass(frozen=True, slots=True)
class SessionIslands:
    """The islands of a stream in the temporary tables of a database; `keys` are the aliases of the key columns."""

    database: duckdb.DuckDBPyConnection
    window: Session
    lateness_ms: int
    keys: Sequence[str]

    def create_candidates(self, select: Callable[[int], str], first_ms: int, watermark_ms: int) -> None:
        """Create the table of the records of islands that end late enough to have an open session.

        An island may begin long before. So the look back is extended until each of them has a gap before it.

        Args:
            select: returns a query of the records with an event time from an instant on.
            first_ms: the first readable event time.
            watermark_ms: the watermark at the cut.
        """
        gap_ms, closed_ms = self.window.gap_ms, watermark_ms - self.lateness_ms
        look_ms, start_ms = _FIRST_LOOK_GAPS * gap_ms, None
        while start_ms != first_ms:
            start_ms = max(first_ms, closed_ms - look_ms)
            islands = islands_query(select(start_ms), self.keys, self.window)
            by = ", ".join([*self.keys, "island"])
            self.database.execute(
                f"CREATE OR REPLACE TEMP TABLE candidates AS SELECT *, min(row_id) OVER (PARTITION BY {by})"
                f" AS island_id FROM (SELECT *, row_number() OVER () AS row_id FROM ({islands})"
                f" WHERE island_last_ms + {gap_ms} - 1 > {closed_ms})"
            )
            ((earliest_ms,),) = self.database.execute("SELECT min(island_start_ms) FROM candidates").fetchall()
            if earliest_ms is None or earliest_ms - gap_ms > start_ms:
                return
            look_ms *= 8

    def open_members(self, watermark_ms: int, rises: Rises) -> tuple[str, str]:
        """Return a query of the records of open sessions, and the index of the next pane as an aggregate."""
        islands = self.database.sql(
            "SELECT DISTINCT island_id, island_start_ms, island_arrival_ms FROM candidates"
        ).to_arrow_table()
        before_last_ms = rises.highest_until(_longs(islands, "island_arrival_ms"))
        is_quiet = before_last_ms < _longs(islands, "island_start_ms") + self.window.gap_ms - 1
        self.database.register("quiet_islands", islands.filter(pa.array(is_quiet)).select(["island_id"]))
        columns = f"island_id, row_id, event_ms, arrival_ms, arrival_seq, {PARTITION_TEXT} AS source_partition"
        loud = self.database.sql(
            f"SELECT {columns} FROM candidates ANTI JOIN quiet_islands USING (island_id)"
            " ORDER BY island_id, arrival_ms, arrival_seq, source_partition"
        ).to_arrow_table()
        sessions = [
            row
            for _, rows in groupby(_rows(loud), key=lambda row: row["island_id"])
            for row in self._replay_island(list(rows), rises, watermark_ms)
        ]
        self.database.register("replayed_sessions", pa.Table.from_pylist(sessions, _SESSIONS))
        end_ms = f"(island_last_ms + {self.window.gap_ms})"
        is_fired = f"({end_ms} - 1 <= {watermark_ms})::BIGINT"
        members = (
            "SELECT c.*, s.window_start_ms, s.window_end_ms, s.next_pane_index FROM candidates c"
            f" JOIN replayed_sessions s USING (row_id) UNION ALL SELECT c.*, island_start_ms, {end_ms}, {is_fired}"
            " FROM candidates c SEMI JOIN quiet_islands USING (island_id)"
        )
        return members, "max(next_pane_index)"

    def _replay_island(
        self, rows: Sequence[Mapping[str, Any]], rises: Rises, watermark_ms: int
    ) -> Iterator[dict[str, int]]:
        """Yield a row for each record of an open session of an island."""
        watermarks = Watermarks()
        for number, row in enumerate(rows):
            watermarks.at(number - 1, row["arrival_ms"])
            position = (row["arrival_ms"], row["arrival_seq"], row["source_partition"])
            watermarks.emit(rises.in_force_ms(position))
        watermarks.at(len(rows) - 1, rows[-1]["arrival_ms"])
        watermarks.emit(watermark_ms)
        operator = WindowOperator(self.window, self.lateness_ms)
        operator.run([Record(row["arrival_ms"], 0, "", row["event_ms"]) for row in rows], watermarks)
        for session in operator.snapshot():
            for number in session.records:
                values = (rows[number]["row_id"], session.start_ms, session.end_ms, session.firings)
                yield dict(zip(_SESSIONS.names, values, strict=True))


class Rises:
    """The rises of the watermark with their positions in arrival order."""

    def __init__(self, timeline: WatermarkTimeline, clock: SourceClock) -> None:
        every = timeline.expand()
        self._watermarks_ms = np.concatenate([to_int64([MIN_MS]), every.watermark_ms])
        self._positions = every.arrival_positions(clock)
        self._times_ms = to_int64([time_ms for time_ms, _, _ in self._positions])

    def highest_until(self, arrivals_ms: Longs) -> Longs:
        """Return the highest watermark that any record of these arrivals may have met."""
        highest: Longs = self._watermarks_ms[np.searchsorted(self._times_ms, arrivals_ms, side="right")]
        return highest

    def in_force_ms(self, position: tuple[int, int, str]) -> int:
        """Return the watermark that the record at a position met."""
        return int(self._watermarks_ms[bisect_left(self._positions, position)])


def _rows(table: pa.Table) -> Iterable[dict[str, Any]]:
    for batch in table.to_batches():
        yield from batch.to_pylist()


def _longs(table: pa.Table, name: str) -> Longs:
    return np.asarray(table[name].to_numpy(), dtype=np.int64)
