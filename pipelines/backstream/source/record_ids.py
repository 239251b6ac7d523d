"""Find the records of files that may be copies of records of other files: they have the same id."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backstream.definition.model import Definition
from backstream.definition.prepared_columns import FILE
from backstream.eventtime.intervals import Interval
from backstream.source.key_index import key_text, raw_paths_of
from backstream.source.local_times import list_local_ms
from backstream.source.reader import scan_row_groups
from backstream.source.time_columns import TimeColumn

_NULL, _SEPARATOR = "\x00", "\x1f"


class Copy(NamedTuple):
    """A record with the id of a record of `file`, by its event time in ms and its key as JSON."""

    file: str
    at_ms: int
    key: str


class RawSpans(NamedTuple):
    """Spans of event time of a raw file, in order.

    `name` is the path of the user's file. `raw_path` is the path by which records name it; None: any record.
    """

    name: str
    raw_path: str | None
    spans: Sequence[Interval]

    def contain(self, at_ms: pa.Array) -> pa.Array:
        """Return a mask of the instants in a span."""
        starts_ms, ends_ms = (
            np.array([getattr(span, name) for span in self.spans], np.int64) for name in ("start_ms", "end_ms")
        )
        times_ms = at_ms.to_numpy()
        at = np.searchsorted(starts_ms, times_ms, side="right") - 1
        return pa.array((at >= 0) & (times_ms < ends_ms[at])) if self.spans else pa.array(np.zeros(len(at), bool))


@dataclass(slots=True)
class RecordIds:
    """The event times of records by their ids, and the files that they are in."""

    definition: Definition
    _times: dict[str, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))

    def add_file(self, path: str, name: str) -> None:
        """Add the records of a file; `name` is the path of the user's file.

        Raises:
            PlanError: when only Spark can evaluate its event times.
            UnreadableError: when it is damaged.
        """
        for ids, at_ms, _ in self._scan(path):
            self._add(ids, at_ms, name)

    def add_prepared_file(self, path: str, spans: Sequence[RawSpans]) -> None:
        """Add those records of a prepared file that are in spans of event time of its raw files.

        Raises:
            UnreadableError: when it is damaged.
        """
        for ids, at_ms, columns in self._scan(path, FILE):
            raw_paths = raw_paths_of(columns[-1])
            for each in spans:
                is_wanted = each.contain(at_ms)
                if each.raw_path is not None:
                    is_wanted = pc.and_(is_wanted, pc.equal(raw_paths, each.raw_path))
                self._add(ids.filter(is_wanted), at_ms.filter(is_wanted), each.name)

    def _add(self, ids: pa.Array, at_ms: pa.Array, name: str) -> None:
        for text, time_ms in zip(ids.to_pylist(), at_ms.to_pylist(), strict=True):
            self._times[text].append((time_ms, name))

    def span(self) -> tuple[int, int] | None:
        """Return the first and the last event time of the added records; None without any."""
        times_ms = [time_ms for times in self._times.values() for time_ms, _ in times]
        return (min(times_ms), max(times_ms)) if times_ms else None

    def find_copies(self, path: str) -> Iterator[Copy]:
        """Yield the records of another file that may be copies of the added ones.

        Raises:
            UnreadableError: when the file is damaged.
        """
        known, within_ms = pa.array(self._times, pa.string()), self.definition.source.deduplicate_within
        for ids, at_ms, keys in self._scan(path):
            at = pc.indices_nonzero(pc.is_in(ids, value_set=known))
            rows = zip(*(column.take(at).to_pylist() for column in (ids, at_ms, *keys)), strict=True)
            for text, time_ms, *key in rows:
                times = sorted(self._times[text])
                nearest = bisect_left(times, (time_ms - within_ms, ""))
                if nearest < len(times) and times[nearest][0] <= time_ms + within_ms:
                    yield Copy(times[nearest][1], time_ms, key_text(key))

    def _scan(self, path: str, *more: str) -> Iterator[tuple[pa.Array, pa.Array, list[pa.Array]]]:
        """Yield ids, event times in ms, and keys and further columns of the records that have an id."""
        source = self.definition.source
        event_time = TimeColumn.from_expression(self.definition.timed_source.event_time, "source.event_time")
        names = list(dict.fromkeys([*source.deduplicate_on, *source.key, event_time.name, *more]))
        for rows in scan_row_groups(path, names):
            has_id = [pc.is_valid(rows[name]) for name in source.deduplicate_on]
            is_usable = pc.is_valid(rows[event_time.name])
            for column in has_id[1:]:
                has_id[0] = pc.or_(has_id[0], column)
            usable = rows.filter(pc.and_(is_usable, has_id[0])).combine_chunks()
            if usable.num_rows:
                texts = [_to_text(usable[name]) for name in source.deduplicate_on]
                ids = pc.binary_join_element_wise(*texts, _SEPARATOR)
                zone = self.definition.window.spec().zone
                at_ms = pa.array(list_local_ms(zone, event_time.values_ms(usable[event_time.name])), pa.int64())
                yield ids, at_ms, [usable[name] for name in (*source.key, *more)]


def _to_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values as texts that are equal for equal values, whatever the type of the column in a file."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    try:
        texts = column.cast(pa.string())
    except pa.ArrowNotImplementedError:
        texts = pa.chunked_array([pa.array([None if each is None else str(each) for each in column.to_pylist()])])
    return pc.fill_null(texts, _NULL)
