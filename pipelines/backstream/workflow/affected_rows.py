"""The published rows that a change of the input may meet, found in columns: only what is met becomes an object."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.stale_windows import ChangedRecords
from backstream.eventtime.windows import Session, TimeWindow, WindowSpec
from backstream.lake.published_windows import END, START, PublishedFile, PublishedWindows
from backstream.source.key_index import key_text
from backstream.source.time_columns import Longs

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def find_affected_rows(
    published: PublishedWindows,
    keys: Sequence[str],
    spec: WindowSpec,
    touches: Sequence[ChangedRecords],
    days: set[int],
) -> list[tuple[str, TimeWindow]]:
    """Key, as JSON, and window of the published rows that `stale_windows` has to know for some touches.

    Only files near a touch are read: of sessions those of any day, since they are joined to those of other days;
    else those of `days`, and only where something may have gone.
    """
    if isinstance(spec, Session):
        return _sessions(published, keys, spec.gap_ms, touches)
    gone = [touch for touch in touches if not touch.is_added]
    stretches = _Stretches.about(gone, 0)
    rows = _Rows.from_table(
        published.rows(lambda file: stretches.meet(file) and any(day in days for day, _ in file.runs), keys), keys
    )
    of_days = np.isin(rows.start_ms // DAY_MS * DAY_MS, np.fromiter(days, np.int64))
    return rows.listed(of_days & _met(rows, gone, stretches))


def _sessions(
    published: PublishedWindows, keys: Sequence[str], gap_ms: int, touches: Sequence[ChangedRecords]
) -> list[tuple[str, TimeWindow]]:
    """The rows near what may have gone, and those that new records join, however long the chain of them is."""
    added, gone = ([touch for touch in touches if touch.is_added is which] for which in (True, False))
    near_gone = _Stretches.about(gone, gap_ms)
    reached = _Stretches.about(touches, gap_ms)
    read: set[str] = set()
    tables: list[pa.Table] = []
    while True:
        wanted = {path for file in published.files if reached.meet(file) and (path := file.path) not in read}
        tables.append(published.rows(lambda file: file.path in wanted, keys))  # noqa: B023 - called at once
        read |= wanted
        rows = _Rows.from_table(pa.concat_tables(tables, promote_options="permissive"), keys)
        joined = _joined(rows, added, gap_ms)
        if not wanted:
            return rows.listed(joined | _met(rows, gone, near_gone))
        reached = reached.with_those(rows.start_ms[joined] - 1, rows.end_ms[joined])


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows as columns: `key` numbers the keys whose values, as JSON, are `texts`."""

    texts: Sequence[str]
    key: Longs
    start_ms: Longs
    end_ms: Longs

    @classmethod
    def from_table(cls, table: pa.Table, keys: Sequence[str]) -> Self:
        key, first = _numbered(table, keys)
        values = zip(*(table[name].take(first).to_pylist() for name in keys), strict=True) if keys else [()]
        texts = [key_text(each) for each in values]
        return cls(texts, key, _epoch_ms(table[START]), _epoch_ms(table[END]))

    def listed(self, wanted: Mask) -> list[tuple[str, TimeWindow]]:
        columns = (column[wanted].tolist() for column in (self.key, self.start_ms, self.end_ms))
        return [(self.texts[key], TimeWindow(start, end)) for key, start, end in zip(*columns, strict=True)]


def _numbered(table: pa.Table, keys: Sequence[str]) -> tuple[Longs, Longs]:
    """A number per row that rows of one key share, counted from zero, and the first row of each."""
    numbers = np.zeros(table.num_rows, np.int64)
    first = np.zeros(min(table.num_rows, 1), np.int64)
    for name in keys:
        column = table[name].combine_chunks().dictionary_encode(null_encoding="encode")
        codes = column.indices.to_numpy().astype(np.int64)
        _, first, numbers = np.unique(
            numbers * (len(column.dictionary) + 1) + codes, return_index=True, return_inverse=True
        )
    return numbers, first


def _epoch_ms(column: pa.ChunkedArray) -> Longs:
    found: Longs = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    return found // 1_000


@dataclass(frozen=True, slots=True)
class _Stretches:
    """Stretches of event time in their order, none of which overlaps another, both ends included."""

    first_ms: Longs
    last_ms: Longs

    @classmethod
    def about(cls, touches: Iterable[ChangedRecords], reach_ms: int) -> Self:
        """Where touches are, and so far around."""
        ends = np.array(
            [(touch.first_ms - reach_ms, touch.last_ms + reach_ms) for touch in touches], np.int64
        ).reshape(-1, 2)
        return cls._merged(ends[:, 0], ends[:, 1])

    @classmethod
    def _merged(cls, first_ms: Longs, last_ms: Longs) -> Self:
        order = np.argsort(first_ms, kind="stable")
        first_ms, furthest_ms = first_ms[order], np.maximum.accumulate(last_ms[order])
        begins = np.flatnonzero(np.append(True, first_ms[1:] > furthest_ms[:-1])[: len(order)])
        ends = np.append(begins[1:] - 1, len(order) - 1)[: len(begins)]
        return cls(first_ms[begins], furthest_ms[ends])

    def with_those(self, first_ms: Longs, last_ms: Longs) -> Self:
        return self._merged(np.append(self.first_ms, first_ms), np.append(self.last_ms, last_ms))

    def met_by(self, start_ms: Longs, end_ms: Longs) -> Mask:
        """Which windows hold an instant of a stretch, or begin at its last."""
        if not len(self.first_ms):
            return np.zeros(len(start_ms), bool)
        at = np.searchsorted(self.last_ms, start_ms)
        return (at < len(self.last_ms)) & (self.first_ms[np.minimum(at, len(self.last_ms) - 1)] < end_ms)

    def meet(self, file: PublishedFile) -> bool:
        """Whether a row of a file may lie there."""
        return bool(self.met_by(np.array([file.first_ms]), np.array([file.end_ms]))[0])


def _met(rows: _Rows, gone: Sequence[ChangedRecords], stretches: _Stretches) -> Mask:
    """The rows at which something may have gone: of the keys touched, where only those can be meant."""
    is_near = stretches.met_by(rows.start_ms, rows.end_ms)
    if any(touch.is_of_any_key for touch in gone):
        return is_near
    touched = {touch.key for touch in gone}
    is_touched = np.fromiter((text in touched for text in rows.texts), bool, len(rows.texts))
    found: Mask = is_near & is_touched[rows.key]
    return found


def _joined(rows: _Rows, added: Sequence[ChangedRecords], gap_ms: int) -> Mask:
    """The rows that are one session with new records of their key: windows that touch are joined."""
    place = {text: number for number, text in enumerate(rows.texts)}
    new = np.array(
        [(place[t.key], t.first_ms, t.last_ms + gap_ms) for t in added if t.key in place], np.int64
    ).reshape(-1, 3)
    key, start_ms, end_ms = (
        np.append(of_rows, of_new)
        for of_rows, of_new in zip((rows.key, rows.start_ms, rows.end_ms), new.T, strict=True)
    )
    order = np.lexsort((start_ms, key))
    key, start_ms, is_new = key[order], start_ms[order], order >= len(rows.key)
    # The furthest end so far of each key: keys count more than any end, so that each begins anew.
    ends_ms, rank = np.unique(end_ms[order], return_inverse=True)
    width = len(ends_ms) + 1
    furthest_ms = ends_ms[np.maximum.accumulate(key * width + rank) % width] if len(order) else end_ms
    is_first = np.ones(len(order), bool)
    is_first[1:] = (key[1:] != key[:-1]) | (start_ms[1:] > furthest_ms[:-1])
    session = np.cumsum(is_first) - 1
    found = np.zeros(len(order), bool)
    found[order] = np.isin(session, session[is_new])
    return found[: len(rows.key)]
