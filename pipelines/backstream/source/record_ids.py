"""Find the records of files that may be copies of records of other files: they have the same id."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from backstream.definition.model import Definition
from backstream.source.key_index import key_text
from backstream.source.reader import scan_row_groups
from backstream.source.time_columns import TimeColumn

_NULL, _SEPARATOR = "\x00", "\x1f"


class Copy(NamedTuple):
    """A record with the id of a record of `file`, by its event time in ms and its key as JSON."""

    file: str
    at_ms: int
    key: str


@dataclass(slots=True)
class RecordIds:
    """The event times of records by their ids, and the files that they are in."""

    definition: Definition
    _times: dict[str, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))

    def add_file(self, path: str, name: str) -> None:
        """Add the records of a file, which `name` names in copies.

        Raises:
            PlanError: when only Spark can evaluate its event times.
            UnreadableError: when it is damaged.
        """
        for ids, at_ms, _ in self._scan(path):
            for text, time_ms in zip(ids.to_pylist(), at_ms.to_pylist(), strict=True):
                self._times[text].append((time_ms, name))

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

    def _scan(self, path: str) -> Iterator[tuple[pa.Array, pa.Array, list[pa.Array]]]:
        """Yield the ids, the event times in ms, and the keys of the records of a file that have an id."""
        source = self.definition.source
        event_time = TimeColumn.from_expression(self.definition.timed_source.event_time, "source.event_time")
        names = list(dict.fromkeys([*source.deduplicate_on, *source.key, event_time.name]))
        for rows in scan_row_groups(path, names):
            has_id = [pc.is_valid(rows[name]) for name in source.deduplicate_on]
            is_usable = pc.is_valid(rows[event_time.name])
            for column in has_id[1:]:
                has_id[0] = pc.or_(has_id[0], column)
            usable = rows.filter(pc.and_(is_usable, has_id[0])).combine_chunks()
            if usable.num_rows:
                texts = [_to_text(usable[name]) for name in source.deduplicate_on]
                ids = pc.binary_join_element_wise(*texts, _SEPARATOR)
                at_ms = pa.array(event_time.values_ms(usable[event_time.name]), pa.int64())
                yield ids, at_ms, [usable[name] for name in source.key]


def _to_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values as texts that are equal for equal values, whatever the type of the column in a file."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    try:
        texts = column.cast(pa.string())
    except pa.ArrowNotImplementedError:
        texts = pa.chunked_array([pa.array([None if each is None else str(each) for each in column.to_pylist()])])
    return pc.fill_null(texts, _NULL)
