"""Replay the units of groups of touching events with late ones; no other rows of a run are processed in Python.

The units of many groups (islands) are one sorted stream of batches, because a call costs more than the replay of
an island.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from backstream.errors import PlanError
from backstream.eventtime.instants import MIN_MS
from backstream.eventtime.window_operator import PaneTiming
from backstream.native.sessions.window_replay import ReplayedIsland, SessionFiring, Span, replay_island

FIRST, LAST, MET = "session__first_ms", "session__last_ms", "session__in_force_ms"
"""The first and last event time of a unit, and the watermark at the arrival of an event behind it; null for units
ahead of the watermark."""
GAP, LATENESS, UNTIL = "session__gap_ms", "session__lateness_ms", "session__emitted_until"
"""The parameters of the replay; the last is `Session.emitted_until`."""
POSITION, SEQ = "session__position", "session__seq"
"""The position of a unit in its island, from 1, and the arrival sequence of an event behind the watermark."""
IN_WINDOW = ("session__window_start_ms", "session__window_end_ms")

FATES: Mapping[str, str] = {"fate": "string", "refusal": "string"}
WINDOWS: Mapping[str, str] = {
    **dict.fromkeys(IN_WINDOW, "long"),
    **dict.fromkeys(("session__in_first", "session__in_live", "session__in_final"), "boolean"),
    "session__late_firings": "long",
}
PANES: Mapping[str, str] = {
    **dict.fromkeys(IN_WINDOW, "long"),
    "session__fate": "string",
    "session__pane_index": "long",
    "session__pane_timing": "string",
    "session__in_final": "boolean",
}
FIRINGS: Mapping[str, str] = {
    **dict.fromkeys(IN_WINDOW, "long"),
    "session__pane_index": "long",
    "session__pane_timing": "string",
    "session__met_ms": "long",
    "session__by_record": "long",
}
_ARROW_TYPES = {"string": pa.string(), "long": pa.int64(), "boolean": pa.bool_()}

Batches = Iterator[pa.RecordBatch]


class Island(NamedTuple):
    """One island among rows of several: its first row, the columns of its units, and the result of its replay."""

    begin: int
    spans_ms: Sequence[Span]
    met_ms: Sequence[int | None]
    arrival_seqs: Sequence[int | None]
    gap_ms: int
    replayed: ReplayedIsland

    def window(self) -> Span:
        """Return the session of all its units."""
        return min(first for first, _ in self.spans_ms), max(last for _, last in self.spans_ms) + self.gap_ms


@dataclass(frozen=True, slots=True)
class ReplayColumns:
    """Columns to add to units: their names, SQL types, and values for each island.

    `rows_of` yields lists of equal length: the numbers of some rows, counted within the island, and the values of
    each column.
    """

    types: Mapping[str, str]
    rows_of: Callable[[Island], Iterator[tuple[list[int], list[list[Any]]]]]

    def __call__(self, batches: Batches) -> Batches:
        """Yield the batches of whole islands, each in arrival order, with the added columns."""
        for (table,) in replay_islands(batches, self):
            yield from table.to_batches()

    def collect(self, rows: pa.Table, islands: Sequence[Island]) -> pa.Table:
        """Return the rows of islands with the added columns."""
        numbers: list[int] = []
        added: list[list[Any]] = [[] for _ in self.types]
        for island in islands:
            for members, columns in self.rows_of(island):
                numbers += [island.begin + number for number in members]
                for column_values, values in zip(added, columns, strict=True):
                    column_values.extend(values)
        table = rows.take(pa.array(numbers, pa.int64()))
        for (name, type_name), values in zip(self.types.items(), added, strict=True):
            table = table.append_column(name, pa.array(values, _ARROW_TYPES[type_name]))
        return table


def replay_islands(batches: Batches, *several: ReplayColumns) -> Iterator[list[pa.Table]]:
    """Replay each island once, and yield, for several islands at a time, a table per `ReplayColumns`."""
    for rows in _whole_islands(batches):
        islands = list(_replay_all(rows))
        yield [columns.collect(rows, islands) for columns in several]


_Rows = tuple[list[int], list[list[Any]]]


def _list_fates(island: Island) -> Iterator[_Rows]:
    count = len(island.spans_ms)
    fates: list[str | None] = [*island.replayed.fates]
    missing = count - len(fates)
    refusals: list[str | None] = [None] * count
    if missing:
        refusals[len(fates)] = island.replayed.refusal
    fates += [None] * missing
    behind = [number for number, met_ms in enumerate(island.met_ms) if met_ms is not None]
    yield behind, [[fates[number] for number in behind], [refusals[number] for number in behind]]


def _list_windows(island: Island) -> Iterator[_Rows]:
    """Yield the rows of each fired window, and of the session of all units."""
    final, all_units = island.window(), range(len(island.spans_ms))
    fired: dict[tuple[int, int], list[SessionFiring]] = {final: []}
    if island.replayed.refusal:
        raise PlanError(island.replayed.refusal)
    for firing in island.replayed.firings:
        fired.setdefault(firing[:2], []).append(firing)
    for window in island.replayed.open:
        fired.setdefault(window, [])
    for window, firings in fired.items():
        is_first = bool(firings) and firings[0].by is None
        first = firings[0].size if is_first else 0
        live = firings[-1].members[: firings[-1].size] if firings else island.replayed.open.get(window, [])
        is_final = window == final
        not_fired: list[int] = []
        if is_final and len(live) < len(all_units):
            not_fired = sorted(set(all_units).difference(live))
        count = len(live) + len(not_fired)
        constants = [*window, is_final, len(firings) - is_first]
        start_ms, end_ms, in_final, late_firings = ([value] * count for value in constants)
        in_first = [True] * first + [False] * (count - first)
        in_live = [True] * len(live) + [False] * len(not_fired)
        yield live + not_fired, [start_ms, end_ms, in_first, in_live, in_final, late_firings]


def _list_panes(island: Island) -> Iterator[_Rows]:
    """Yield the rows of each fired window, and of the session of all units, with the first pane of each unit."""
    final, fates = island.window(), island.replayed.fates
    fired: dict[tuple[int, int], list[SessionFiring]] = {final: []}
    if island.replayed.refusal:
        raise PlanError(island.replayed.refusal)
    for firing in island.replayed.firings:
        fired.setdefault(firing[:2], []).append(firing)
    for window, firings in fired.items():
        index_by_unit: dict[int, int | None] = {}
        for index, firing in enumerate(firings):
            for unit in firing.members[: firing.size]:
                index_by_unit.setdefault(unit, index)
        if window == final:
            for unit in range(len(island.spans_ms)):
                index_by_unit.setdefault(unit, None)
        first_index = 0 if firings and firings[0].by is None else -1
        units, indexes = list(index_by_unit), list(index_by_unit.values())
        timings = [_timing(index, first_index) for index in indexes]
        constants = [[value] * len(units) for value in window]
        in_final = [window == final] * len(units)
        yield units, [*constants, [fates[unit] for unit in units], indexes, timings, in_final]


def _timing(index: int | None, first_index: int) -> str | None:
    if index is None:
        return None
    return PaneTiming.ON_TIME.value if index == first_index else PaneTiming.LATE.value


def _list_firings(island: Island) -> Iterator[_Rows]:
    firing_counts: dict[tuple[int, int], int] = {}
    for firing in island.replayed.firings:
        window, late_unit = firing[:2], firing.by
        index = firing_counts.get(window, 0)
        firing_counts[window] = index + 1
        cause: tuple[str, int | None, int | None] = (PaneTiming.ON_TIME.value, None, None)
        if late_unit is not None:
            cause = PaneTiming.LATE.value, island.met_ms[late_unit], island.arrival_seqs[late_unit]
        members = firing.members[: firing.size]
        yield members, [[value] * firing.size for value in (*window, index, *cause)]


fated = ReplayColumns(FATES, _list_fates)
"""The fate of each unit behind the watermark; null from the unit at which the stream failed, with a `refusal`."""
in_windows = ReplayColumns(WINDOWS, _list_windows)
"""A row per unit and window that contains it, with the panes that count it; it fails if the stream failed."""
in_panes = ReplayColumns(PANES, _list_panes)
"""A row per unit and window that contains it, with its fate and its first pane; it fails if the stream failed."""
in_firings = ReplayColumns(FIRINGS, _list_firings)
"""A row per unit and firing that contains it, up to a failure of the stream."""


def _whole_islands(batches: Batches) -> Iterator[pa.Table]:
    """Yield tables of whole islands; an island may span several batches."""
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        starts = np.flatnonzero(batch[POSITION].to_numpy() == 1)
        cut = int(starts[-1]) if len(starts) else 0
        if len(starts) and (pending or cut):
            yield pa.Table.from_batches([*pending, batch.slice(0, cut)]).combine_chunks()
            pending = []
        pending.append(batch.slice(cut))
    if pending:
        yield pa.Table.from_batches(pending).combine_chunks()


def _replay_all(rows: pa.Table) -> Iterator[Island]:
    starts = np.flatnonzero(rows[POSITION].to_numpy() == 1).tolist()
    spans_ms = list(zip(rows[FIRST].to_pylist(), rows[LAST].to_pylist(), strict=True))
    met_ms, arrival_seqs = rows[MET].to_pylist(), rows[SEQ].to_pylist()
    in_force_ms = rows[MET].fill_null(MIN_MS).to_pylist()
    gaps, latenesses, untils = (rows[name].to_pylist() for name in (GAP, LATENESS, UNTIL))
    for start, end in pairwise([*starts, rows.num_rows]):
        rows_of_island = slice(start, end)
        replay = replay_island(
            spans_ms[rows_of_island], in_force_ms[rows_of_island], gaps[start], latenesses[start], untils[start]
        )
        yield Island(
            start,
            spans_ms[rows_of_island],
            met_ms[rows_of_island],
            arrival_seqs[rows_of_island],
            gaps[start],
            replay,
        )
