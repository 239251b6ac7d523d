"""Units of dirty islands through the fold: the one place where rows of a run go through Python.

The units of many islands come as one sorted stream of batches, since a call per island costs more than the island.
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
"""A unit of an island: its first and last event time, and of a straggler the watermark it met; null where all its
events came in time."""
GAP, LATENESS = "session__gap_ms", "session__lateness_ms"
POSITION, SEQ = "session__position", "session__seq"
"""A unit's place in its island, from 1, and of a straggler the sequence it arrived with."""
IN_WINDOW = ("session__window_start_ms", "session__window_end_ms")

FATES: Mapping[str, str] = {"fate": "string", "refusal": "string"}
WINDOWS: Mapping[str, str] = {
    **dict.fromkeys(IN_WINDOW, "long"),
    **dict.fromkeys(("session__in_first", "session__in_live", "session__in_final"), "boolean"),
    "session__late_firings": "long",
}
FIRINGS: Mapping[str, str] = {
    **dict.fromkeys(IN_WINDOW, "long"),
    "session__pane_index": "long",
    "session__pane_timing": "string",
    "session__met_ms": "long",
    "session__by_record": "long",
}
_ARROW = {"string": pa.string(), "long": pa.int64(), "boolean": pa.bool_()}

Batches = Iterator[pa.RecordBatch]


class Island(NamedTuple):
    """One island among rows of several: its first row, what the rows say, and what became of them."""

    begin: int
    spans_ms: Sequence[Span]
    met_ms: Sequence[int | None]
    arrival_seqs: Sequence[int | None]
    gap_ms: int
    fold: ReplayedIsland

    def window(self) -> Span:
        """The session that all of it is in the end."""
        return min(first for first, _ in self.spans_ms), max(last for _, last in self.spans_ms) + self.gap_ms


@dataclass(frozen=True, slots=True)
class ReplayColumns:
    """What is added to the units: names and SQL types, and the values that an island gives.

    `rows_of` yields lists as long as each other: the numbers of some rows, counted within the island, and the
    values of each column.
    """

    types: Mapping[str, str]
    rows_of: Callable[[Island], Iterator[tuple[list[int], list[list[Any]]]]]

    def __call__(self, batches: Batches) -> Batches:
        """The batches of whole islands, each in arrival order, with the columns."""
        for (table,) in replay_islands(batches, self):
            yield from table.to_batches()

    def collect(self, rows: pa.Table, islands: Sequence[Island]) -> pa.Table:
        """The rows of islands with the columns."""
        numbers: list[int] = []
        added: list[list[Any]] = [[] for _ in self.types]
        for island in islands:
            for members, columns in self.rows_of(island):
                numbers += [island.begin + number for number in members]
                for so_far, values in zip(added, columns, strict=True):
                    so_far.extend(values)
        table = rows.take(pa.array(numbers, pa.int64()))
        for (name, kind), values in zip(self.types.items(), added, strict=True):
            table = table.append_column(name, pa.array(values, _ARROW[kind]))
        return table


def replay_islands(batches: Batches, *several: ReplayColumns) -> Iterator[list[pa.Table]]:
    """Play each island once, and yield some of them at a time: per `Columns` a table."""
    for rows in _whole_islands(batches):
        islands = list(_islands(rows))
        yield [columns.collect(rows, islands) for columns in several]


_Rows = tuple[list[int], list[list[Any]]]


def _fates(island: Island) -> Iterator[_Rows]:
    many = len(island.spans_ms)
    fates: list[str | None] = [*island.fold.fates]
    missing = many - len(fates)
    refusals: list[str | None] = [None] * many
    if missing:
        refusals[len(fates)] = island.fold.refusal
    fates += [None] * missing
    stragglers = [number for number, met_ms in enumerate(island.met_ms) if met_ms is not None]
    yield stragglers, [[fates[number] for number in stragglers], [refusals[number] for number in stragglers]]


def _windows(island: Island) -> Iterator[_Rows]:
    """Each window that fired, and the island's own: where every unit is in the end."""
    final, every = island.window(), range(len(island.spans_ms))
    fired: dict[tuple[int, int], list[SessionFiring]] = {final: []}
    if island.fold.refusal:
        raise PlanError(island.fold.refusal)
    for firing in island.fold.firings:
        fired.setdefault(firing[:2], []).append(firing)
    for window, firings in fired.items():
        is_first = bool(firings) and firings[0].by is None
        first = firings[0].size if is_first else 0
        live = firings[-1].members[: firings[-1].size] if firings else []
        is_final = window == final
        missed: list[int] = []
        if is_final and len(live) < len(every):
            missed = sorted(set(every).difference(live))
        many = len(live) + len(missed)
        constant = [*window, is_final, len(firings) - is_first]
        start_ms, end_ms, in_final, late_firings = ([value] * many for value in constant)
        in_first = [True] * first + [False] * (many - first)
        in_live = [True] * len(live) + [False] * len(missed)
        yield live + missed, [start_ms, end_ms, in_first, in_live, in_final, late_firings]


def _firings(island: Island) -> Iterator[_Rows]:
    before: dict[tuple[int, int], int] = {}
    for firing in island.fold.firings:
        window, by = firing[:2], firing.by
        index = before.get(window, 0)
        before[window] = index + 1
        cause: tuple[str, int | None, int | None] = (PaneTiming.ON_TIME.value, None, None)
        if by is not None:
            cause = PaneTiming.LATE.value, island.met_ms[by], island.arrival_seqs[by]
        members = firing.members[: firing.size]
        yield members, [[value] * firing.size for value in (*window, index, *cause)]


fated = ReplayColumns(FATES, _fates)
"""Every straggler with its fate; null from the one on at which the stream failed, which says why in `refusal`."""
in_windows = ReplayColumns(WINDOWS, _windows)
"""A row per unit and window it is in, with the panes that hold it there. Fails as the stream did."""
in_firings = ReplayColumns(FIRINGS, _firings)
"""A row per unit and firing it is in, up to where the stream failed, if it did."""


def _whole_islands(batches: Batches) -> Iterator[pa.Table]:
    """Tables that begin with an island and end with one; an island may come in several batches."""
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        begins = np.flatnonzero(batch[POSITION].to_numpy() == 1)
        cut = int(begins[-1]) if len(begins) else 0
        if len(begins) and (pending or cut):
            yield pa.Table.from_batches([*pending, batch.slice(0, cut)]).combine_chunks()
            pending = []
        pending.append(batch.slice(cut))
    if pending:
        yield pa.Table.from_batches(pending).combine_chunks()


def _islands(rows: pa.Table) -> Iterator[Island]:
    begins = np.flatnonzero(rows[POSITION].to_numpy() == 1).tolist()
    spans_ms = list(zip(rows[FIRST].to_pylist(), rows[LAST].to_pylist(), strict=True))
    met_ms, arrival_seqs = rows[MET].to_pylist(), rows[SEQ].to_pylist()
    in_force_ms = rows[MET].fill_null(MIN_MS).to_pylist()
    gaps, latenesses = rows[GAP].to_pylist(), rows[LATENESS].to_pylist()
    for begin, end in pairwise([*begins, rows.num_rows]):
        mine = slice(begin, end)
        fold = replay_island(spans_ms[mine], in_force_ms[mine], gaps[begin], latenesses[begin])
        yield Island(begin, spans_ms[mine], met_ms[mine], arrival_seqs[mine], gaps[begin], fold)
