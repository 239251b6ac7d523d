"""Find the published rows that changed input may affect; only these rows become Python objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.stale_windows import ChangedRecords
from backstream.eventtime.windows import Session, TimeWindow, WindowSpec
from backstream.lake.published_windows import PublishedFile, PublishedWindows
from backstream.runs.table_schemas import WINDOW_END, WINDOW_START
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
    """Return the key, as JSON, and the window of the published rows that `find_stale_windows` needs.

    Only files near a change are read. For sessions these are the files of all days, because a session can extend
    one of another day. For other windows these are the files of `days`, near records that may have been removed.
    """
    if isinstance(spec, Session):
        return _find_sessions(published, keys, spec.gap_ms, touches)
    removed = [touch for touch in touches if not touch.is_added]
    spans = _TimeSpans.around(removed, 0)
    rows = _Rows.from_table(
        published.rows(lambda file: spans.overlap_file(file) and any(day in days for day, _ in file.runs), keys),
        keys,
    )
    is_of_days = np.isin(rows.start_ms // DAY_MS * DAY_MS, np.fromiter(days, np.int64))
    return rows.to_list(is_of_days & _may_lose_records(rows, removed, spans))


def _find_sessions(
    published: PublishedWindows, keys: Sequence[str], gap_ms: int, touches: Sequence[ChangedRecords]
) -> list[tuple[str, TimeWindow]]:
    """Return the sessions near removed records, and the sessions that added records merge with.

    A merged session can reach further sessions. So files are read until no unread file is within reach.
    """
    added, removed = ([touch for touch in touches if touch.is_added is is_added] for is_added in (True, False))
    near_removed = _TimeSpans.around(removed, gap_ms)
    within_reach = _TimeSpans.around(touches, gap_ms)
    read_paths: set[str] = set()
    tables: list[pa.Table] = []
    while True:
        files = (file for file in published.files if within_reach.overlap_file(file))
        paths = {file.path for file in files if file.path not in read_paths}
        tables.append(published.rows(lambda file: file.path in paths, keys))  # noqa: B023 - called at once
        read_paths |= paths
        rows = _Rows.from_table(pa.concat_tables(tables, promote_options="permissive"), keys)
        is_merged = _may_merge(rows, added, gap_ms)
        if not paths:
            return rows.to_list(is_merged | _may_lose_records(rows, removed, near_removed))
        within_reach = within_reach.including(rows.start_ms[is_merged] - 1, rows.end_ms[is_merged])


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows as columns; `key` is the position in `texts` of the row's key, as JSON."""

    texts: Sequence[str]
    key: Longs
    start_ms: Longs
    end_ms: Longs

    @classmethod
    def from_table(cls, table: pa.Table, keys: Sequence[str]) -> Self:
        key, first = _number_keys(table, keys)
        values = zip(*(table[name].take(first).to_pylist() for name in keys), strict=True) if keys else [()]
        texts = [key_text(row) for row in values]
        return cls(texts, key, _epoch_ms(table[WINDOW_START]), _epoch_ms(table[WINDOW_END]))

    def to_list(self, mask: Mask) -> list[tuple[str, TimeWindow]]:
        columns = (column[mask].tolist() for column in (self.key, self.start_ms, self.end_ms))
        return [(self.texts[key], TimeWindow(start, end)) for key, start, end in zip(*columns, strict=True)]


def _number_keys(table: pa.Table, keys: Sequence[str]) -> tuple[Longs, Longs]:
    """Return the number of each row's key, from zero, and the first row of each key."""
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
    value_us: Longs = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    return value_us // 1_000


@dataclass(frozen=True, slots=True)
class _TimeSpans:
    """Spans of event time in order, without overlaps, both ends included."""

    first_ms: Longs
    last_ms: Longs

    @classmethod
    def around(cls, touches: Iterable[ChangedRecords], margin_ms: int) -> Self:
        """Return the spans of changed records, extended by a margin on both sides."""
        ends = np.array(
            [(touch.first_ms - margin_ms, touch.last_ms + margin_ms) for touch in touches], np.int64
        ).reshape(-1, 2)
        return cls._merge(ends[:, 0], ends[:, 1])

    @classmethod
    def _merge(cls, first_ms: Longs, last_ms: Longs) -> Self:
        order = np.argsort(first_ms, kind="stable")
        first_ms, furthest_ms = first_ms[order], np.maximum.accumulate(last_ms[order])
        begins = np.flatnonzero(np.append(True, first_ms[1:] > furthest_ms[:-1])[: len(order)])
        ends = np.append(begins[1:] - 1, len(order) - 1)[: len(begins)]
        return cls(first_ms[begins], furthest_ms[ends])

    def including(self, first_ms: Longs, last_ms: Longs) -> Self:
        return self._merge(np.append(self.first_ms, first_ms), np.append(self.last_ms, last_ms))

    def overlap_windows(self, start_ms: Longs, end_ms: Longs) -> Mask:
        """Return a mask of the windows that contain an instant of a span, its last one included."""
        if not len(self.first_ms):
            return np.zeros(len(start_ms), bool)
        at = np.searchsorted(self.last_ms, start_ms)
        return (at < len(self.last_ms)) & (self.first_ms[np.minimum(at, len(self.last_ms) - 1)] < end_ms)

    def overlap_file(self, file: PublishedFile) -> bool:
        """Return whether a file may have a row whose window overlaps a span."""
        return bool(self.overlap_windows(np.array([file.first_ms]), np.array([file.end_ms]))[0])


def _may_lose_records(rows: _Rows, removed: Sequence[ChangedRecords], spans: _TimeSpans) -> Mask:
    """Return a mask of the rows that removed records may have belonged to, by time and, if it is known, by key."""
    is_near = spans.overlap_windows(rows.start_ms, rows.end_ms)
    if any(touch.is_of_any_key for touch in removed):
        return is_near
    keys = {touch.key for touch in removed}
    has_key = np.fromiter((text in keys for text in rows.texts), bool, len(rows.texts))
    is_affected: Mask = is_near & has_key[rows.key]
    return is_affected


def _may_merge(rows: _Rows, added: Sequence[ChangedRecords], gap_ms: int) -> Mask:
    """Return a mask of the sessions that merge with added records of their key; adjacent sessions merge, too."""
    number_by_key = {text: number for number, text in enumerate(rows.texts)}
    new_sessions = np.array(
        [(number_by_key[t.key], t.first_ms, t.last_ms + gap_ms) for t in added if t.key in number_by_key], np.int64
    ).reshape(-1, 3)
    key, start_ms, end_ms = (
        np.append(old, new)
        for old, new in zip((rows.key, rows.start_ms, rows.end_ms), new_sessions.T, strict=True)
    )
    order = np.lexsort((start_ms, key))
    key, start_ms, is_new = key[order], start_ms[order], order >= len(rows.key)
    # The greatest end so far, per key: the key is the higher digit, so each key starts again.
    ends_ms, rank = np.unique(end_ms[order], return_inverse=True)
    width = len(ends_ms) + 1
    furthest_ms = ends_ms[np.maximum.accumulate(key * width + rank) % width] if len(order) else end_ms
    is_first = np.ones(len(order), bool)
    is_first[1:] = (key[1:] != key[:-1]) | (start_ms[1:] > furthest_ms[:-1])
    session = np.cumsum(is_first) - 1
    is_merged = np.zeros(len(order), bool)
    is_merged[order] = np.isin(session, session[is_new])
    return is_merged[: len(rows.key)]
