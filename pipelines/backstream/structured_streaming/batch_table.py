"""Keep the watermark of each batch as a table, with a time that orders the batches, and give watermarks from it.

A record arrives when its batch begins. So a replay compares arrivals, as for any other stream.
"""

from __future__ import annotations

import hashlib
import uuid
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from backstream.eventtime.instants import instant_text
from backstream.eventtime.intervals import Interval
from backstream.eventtime.watermark_generators import GivenWatermarks
from backstream.storage.files import replace_file
from backstream.storage.object_stores import explain_store_errors
from backstream.storage.stores import Stores, explain_reading, is_in_store
from backstream.structured_streaming.batches import Batch, BatchLog
from backstream.structured_streaming.late_records import LateBy, Undecided

Longs = npt.NDArray[np.int64]

_COLUMNS = ("batch", "watermark_ms", "arrival_ms", "is_after_gap", "records", "is_empty", "is_restart")
_CLOCK, _SOURCES = b"backstream.clock", b"backstream.sources"


class RecordsRead(NamedTuple):
    """The number of records of batches in the source, and the greatest event time of each.

    `sources` is the number of sources of the job that they are from. `are_counted`: they have all records that the
    job read, before any condition. `are_timed`: they have all records that advance the watermark.
    """

    number: Longs
    records: Longs
    greatest_ms: Longs
    sources: int
    are_counted: bool
    are_timed: bool


@dataclass(frozen=True, slots=True)
class BatchTable:
    """The known batches of a job, ascending; each array has one row per batch.

    `arrival_ms` is when a batch began. It ascends strictly: a batch that seems to begin before the one before it
    gets the next millisecond. `clock` names these times: tables with the same clock have the same time of a batch.
    `is_after_gap`: batches before it are unknown, and may have read records. `records` is the number of records
    that it has read, -1 if no log has it. `is_empty`: it ended where the one before it ended. `is_restart`: by the
    reports, another start of the query ran it than the one before it. `sources` is the number of sources that the
    query reads.
    """

    number: Longs
    watermark_ms: Longs
    arrival_ms: Longs
    is_after_gap: npt.NDArray[np.bool_]
    records: Longs
    is_empty: npt.NDArray[np.bool_]
    is_restart: npt.NDArray[np.bool_]
    clock: str
    sources: int = 1

    @classmethod
    def from_log(cls, log: BatchLog, former: BatchTable | None = None) -> BatchTable:
        """Return the table of a log; batches of a former table keep their times if there is room for new ones."""
        number = np.array([batch.number for batch in log.batches], dtype=np.int64)
        watermark_ms = np.array([batch.watermark_ms for batch in log.batches], dtype=np.int64)
        began_ms = np.array([batch.began_ms for batch in log.batches], dtype=np.int64)
        counts = [-1 if batch.records is None else batch.records for batch in log.batches]
        records = np.array(counts, dtype=np.int64)
        pairs = list(pairwise([Batch(-1, 0, {}), *log.batches]))
        # Spark runs a batch without data to emit windows.
        is_empty = np.array([one.ends == two.ends for one, two in pairs], dtype=bool)
        is_after_gap = (np.diff(number, prepend=-1) > 1) & ~is_empty
        ids = [(one.start_id, two.start_id) for one, two in pairs]
        is_restart = np.array([None not in pair and pair[0] != pair[1] for pair in ids], dtype=bool)
        clock, arrival_ms = uuid.uuid4().hex[:12], _ascend(began_ms)
        flags = is_empty, is_restart
        own = cls(number, watermark_ms, arrival_ms, is_after_gap, records, *flags, clock, len(log.source_names))
        return (former and own._with_times_of(former)) or own

    def extend(self, log: BatchLog) -> BatchTable | None:
        """Return this table with the later batches of a log, as a log with all batches has it.

        Args:
            log: the last batches of the job; the first of them must be in the table.

        Returns:
            None if the log has other batches before the last one of the table.
        """
        recent = BatchTable.from_log(log)
        first = int(np.searchsorted(self.number, recent.number[0]))
        is_known = recent.number <= self.number[-1]
        if not np.array_equal(self.number[first:], recent.number[is_known]):
            return None

        def join(own: npt.NDArray[Any], later: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return np.concatenate(
                [own[: first + 1], later[1:]]
            )  # what came before its first row is not in the log

        whole = replace(
            recent,
            number=join(self.number, recent.number),
            watermark_ms=join(self.watermark_ms, recent.watermark_ms),
            arrival_ms=join(self.arrival_ms, recent.arrival_ms),
            is_after_gap=join(self.is_after_gap, recent.is_after_gap),
            records=join(self.records, recent.records),
            is_empty=join(self.is_empty, recent.is_empty),
            is_restart=join(self.is_restart, recent.is_restart),
            sources=max(self.sources, recent.sources),
        )
        return whole._with_times_of(self)  # noqa: SLF001 - a table, too

    @property
    def after_last_ms(self) -> int:
        """The time of a record that no known batch has read: after the last batch."""
        return int(self.arrival_ms[-1]) + 1

    @property
    def emitted_until_ms(self) -> int:
        """The end of the last window that the job can have emitted; later ones are open."""
        return int(self.watermark_ms[-1])

    def watermarks(self, late_by: LateBy, undecided: Undecided | None) -> GivenWatermarks:
        """Return the watermarks as records meet them, in the words of Flink: one less.

        A window with the end `e` is late for Flink if `e - 1` is reached, for Spark if `e` is. After a gap, the
        watermark lies between two known ones; without `undecided`, no window of the run is between them.
        """
        next_ms = np.append(self.arrival_ms[1:], self.after_last_ms)
        is_own = np.where(self.is_after_gap, undecided is Undecided.DROP, late_by is LateBy.OWN)
        at_ms = np.concatenate([self.arrival_ms[:1], np.where(is_own, self.arrival_ms, next_ms)])
        values_ms = np.concatenate([[-1], self.watermark_ms - 1])  # before its first batch, a job has 1970
        is_rise = np.diff(np.maximum.accumulate(values_ms), prepend=-2) > 0
        columns = at_ms[is_rise], values_ms[is_rise], np.append(self.arrival_ms, self.after_last_ms)
        at, watermarks, arrivals = (array("q", column.tolist()) for column in columns)
        ends_ms = self.undecided_ends() if undecided else {}
        times_ms = self.arrival_ms[np.searchsorted(self.number, list(ends_ms))].tolist()
        undecided_by_time = dict(zip(times_ms, ends_ms.values(), strict=True))
        return GivenWatermarks(at, watermarks, arrivals, undecided_by_time)

    def undecided_ends(self) -> dict[int, Interval]:
        """Return, by batch after a gap, the ends of the windows for which its records may be undecided.

        Such a record was read in the gap or in the batch, while its window ended.
        """
        lower_ms = np.concatenate([[0], self.watermark_ms[:-1]])
        columns = (self.number, lower_ms, self.watermark_ms)
        rows = zip(*(column[self.is_after_gap].tolist() for column in columns), strict=True)
        return {number: Interval(low_ms + 1, high_ms + 1) for number, low_ms, high_ms in rows if high_ms > low_ms}

    def find_contradiction(self, read: RecordsRead, delay_ms: int | None) -> str | None:
        """Return a sentence if records contradict the logs, which were checked against each other before.

        Args:
            read: the records of the batches, in all sources of the job.
            delay_ms: the delay of the only watermark of the job; None: it has several, or the delay is not known.
        """
        place = np.searchsorted(self.number, read.number)
        is_sure = ~self.is_after_gap
        found, greatest_ms = np.zeros((2, len(self.number)), dtype=np.int64)
        found[place], greatest_ms[place] = read.records, read.greatest_ms
        if read.sources != self.sources:
            return None  # the logs count the records of all sources together
        if read.are_counted:
            is_other = is_sure & (self.records >= 0) & (self.records != found)
            for row in np.flatnonzero(is_other)[:1].tolist():
                return (
                    f"batch {self.number[row]} read {self.records[row]:,} records, and the source has"
                    f" {found[row]:,} of them: files are missing, or others were added"
                )
        if delay_ms is None or not read.are_timed:
            return None
        own_ms = np.maximum(self.watermark_ms, greatest_ms - delay_ms)[:-1]
        is_followed = is_sure[:-1] & (np.diff(self.number) == 1)
        is_other = is_followed & (own_ms != self.watermark_ms[1:])
        for row in np.flatnonzero(is_other)[:1].tolist():
            own, logged = (instant_text(int(each)) for each in (own_ms[row], self.watermark_ms[row + 1]))
            return (
                f"after batch {self.number[row]}, the watermark is {logged}, and {own} by the greatest event time"
                " less watermark.delay: source.event_time, source.where, or the delay is not that of the job"
            )
        return None

    @property
    def digest(self) -> str:
        """A digest of all values."""
        content = b"".join(values.tobytes() for values in self._columns)
        return hashlib.sha256(content + b"".join(self._metadata.values())).hexdigest()[:12]

    def write(self, folder: str) -> str:
        """Write the table to a folder or an address, and return its name, which has the digest.

        Raises:
            StorageError: when it cannot be written.
        """
        name = f"batches-{self.digest}.parquet"
        table = pa.table(dict(zip(_COLUMNS, self._columns, strict=True)))
        table, location = table.replace_schema_metadata(self._metadata), f"{folder}/{name}"
        if is_in_store(location):
            with TemporaryDirectory(prefix="backstream-") as scratch, explain_store_errors("write", location):
                pq.write_table(table, f"{scratch}/{name}")
                Stores.from_environment().upload(Path(scratch) / name, location)
        else:
            with replace_file(Path(location)) as draft:
                pq.write_table(table, draft)
        return name

    @property
    def _metadata(self) -> dict[bytes, bytes]:
        return {_CLOCK: self.clock.encode(), _SOURCES: str(self.sources).encode()}

    @property
    def _columns(self) -> tuple[npt.NDArray[Any], ...]:
        flags = self.is_empty, self.is_restart
        return self.number, self.watermark_ms, self.arrival_ms, self.is_after_gap, self.records, *flags

    def _with_times_of(self, former: BatchTable) -> BatchTable | None:
        """Return this table with the times of another one; None if new batches do not fit between them."""
        places = np.searchsorted(self.number, former.number)
        if not np.isin(former.number, self.number).all():
            return None
        arrival_ms = np.full(len(self.number), np.iinfo(np.int64).min)
        arrival_ms[places] = former.arrival_ms
        is_new = np.full(len(self.number), fill_value=True)
        is_new[places] = False
        limit_ms = np.minimum.accumulate(np.where(is_new, np.iinfo(np.int64).max, arrival_ms)[::-1])[::-1]
        # As late as it was, but before the next known one.
        wanted_ms = np.where(is_new, np.minimum(self.arrival_ms, limit_ms - 1), arrival_ms)
        ascending_ms = _ascend(wanted_ms)
        if not (ascending_ms[places] == former.arrival_ms).all():
            return None
        return replace(self, arrival_ms=ascending_ms, clock=former.clock)


def _ascend(times_ms: Longs) -> Longs:
    """Return times that ascend strictly: each is the time itself, or one more than the time before it."""
    steps = np.arange(len(times_ms), dtype=np.int64)
    ascending: Longs = np.maximum.accumulate(times_ms - steps) + steps
    return ascending


@lru_cache(maxsize=8)
def load_batches(location: str) -> BatchTable:
    """Return the table at a path or an address; it is never changed.

    Raises:
        StorageError: when it cannot be read.
    """
    with explain_reading(location), Stores.from_environment().open_file(location) as file:
        table = pq.read_table(pa.BufferReader(file.read()))
    metadata: Mapping[bytes, bytes] = table.schema.metadata
    clock, sources = metadata[_CLOCK].decode(), int(metadata[_SOURCES])
    number, watermark_ms, arrival_ms, *flags = (table[name].to_numpy() for name in _COLUMNS)
    is_after_gap, records, is_empty, is_restart = flags
    own = number, watermark_ms, arrival_ms, is_after_gap, records, is_empty, is_restart
    return BatchTable(*own, clock, sources)


@lru_cache(maxsize=8)
def load_watermarks(location: str, late_by: LateBy, undecided: Undecided | None) -> GivenWatermarks:
    """Return the watermarks of the table at a path or an address, as records meet them.

    Raises:
        StorageError: when it cannot be read.
    """
    return load_batches(location).watermarks(late_by, undecided)
