"""Give each prepared record the batch in which a job of Structured Streaming read it, as its arrival time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backstream.definition.loader import resolve_raw_paths
from backstream.definition.model import Definition
from backstream.definition.prepared import BatchesPointer, batches_folder, column_of_path
from backstream.definition.prepared_columns import (
    ARRIVAL_TEXT,
    ARRIVAL_TIME,
    EVENT_TIME,
    FILE,
    PARTITION,
    SEQUENCE,
)
from backstream.errors import PlanError
from backstream.eventtime.union import SEPARATOR
from backstream.native.preparation.instants import INSTANT
from backstream.native.preparation.prepared_files import write_options
from backstream.runs.home import Home
from backstream.source.prepared import JobRecords, PreparedBatch
from backstream.source.raw_files import RawFile, path_in_records, path_of_uri
from backstream.storage.stores import Stores
from backstream.structured_streaming.batch_lookup import BatchLookup
from backstream.structured_streaming.batch_table import BatchTable, load_batches
from backstream.structured_streaming.batches import BatchLog
from backstream.structured_streaming.job_logs import JobLogs
from backstream.structured_streaming.kept_batches import KeptBatches, has_kept, keep_batches
from backstream.structured_streaming.table_appends import TableAppends

_Longs = npt.NDArray[np.int64]

_US_PER_MS = 1_000


class _Position(NamedTuple):
    """The columns of a record's partition and offset, and the prefix of the names of partitions."""

    partition: str
    offset: str
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class _Places:
    """The batches by position: of a topic, or by the paths of files."""

    lookup: BatchLookup
    topic: str
    position: _Position | None
    rows_by_path: Mapping[str, int]

    @classmethod
    def from_log(
        cls,
        log: BatchLog,
        definition: Definition,
        files: Sequence[RawFile],
        appends: TableAppends | None,
        where: str,
    ) -> _Places:
        source = definition.source
        lookup = BatchLookup.from_log(log, definition.watermark.source)
        if appends:
            lookup = BatchLookup(appends.name_files(log, lookup.source), lookup.source)
        if lookup.reads_files:
            paths = (path_in_records(file.path) for file in files)
            return cls(lookup, "", None, lookup.find_rows_of_files(paths))
        topic = lookup.find_topic(definition.watermark.topic)
        if source.partition is None or source.sequence is None:
            msg = (
                f"source.partition and source.sequence are missing: the job read the topic {topic}, so they are"
                f" the columns of Kafka's partition and offset ({where})"
            )
            raise PlanError(msg)
        position = _Position(column_of_path(source.partition), column_of_path(source.sequence))
        if source.name:  # the partitions of a union have the name of their source
            position = _Position(PARTITION, SEQUENCE, f"{source.name}{SEPARATOR}")
        return cls(lookup, topic, position, {})


@dataclass(frozen=True)
class JobBatches:
    """The batches of a job, which are read again only if a log has changed or a record is looked up."""

    table: BatchTable
    _definition: Definition
    _files: Sequence[RawFile]
    _where: str
    _read: Callable[[], BatchLog]
    _appends: TableAppends | None = None
    _recent: BatchLog | None = None

    @classmethod
    def load(
        cls,
        definition: Definition,
        home: Home,
        files: Sequence[RawFile],
        where: str,
        appends: TableAppends | None = None,
    ) -> JobBatches | None:
        """Return the batches of the job that a definition names; None if it names no job.

        Their table becomes the current one.

        Args:
            definition: the definition, with the raw files as its source.
            home: the home, which has the batches of earlier preparations.
            files: all raw files of the source.
            where: the definition, for messages.
            appends: the table that the job read; None: files or a topic.

        Raises:
            SpecError: when the logs are not those of one job.
            StorageError: when a log cannot be read.
        """
        watermark, folder = definition.watermark, batches_folder(definition, home)
        if not watermark.job_logs:
            return None
        reports, own = (*watermark.progress, *watermark.event_log), _kept_location(definition, home)
        logs = JobLogs(watermark.checkpoint, reports, own, Stores.from_environment())
        former, version = BatchesPointer.load(folder), logs.version
        known = load_batches(home.location_of(folder / former.table)) if former else None
        if former and known and former.version == version:
            return cls(known, definition, files, where, logs.read, appends)
        recent, table = None, None
        if former and known and former.kept == logs.kept_version(int(known.number[-1])):
            recent = logs.read(since=int(known.number[-1]))
            table = known.extend(recent)
        if recent is None or table is None:
            log = logs.read()
            recent, table, read = None, BatchTable.from_log(log, known), lambda: log
        else:
            read = logs.read
        kept = logs.kept_version(int(table.number[-1]))
        BatchesPointer(table.write(home.location_of(folder)), version, kept).write(folder)
        return cls(table, definition, files, where, read, appends, recent)

    @cached_property
    def _places(self) -> _Places:
        return _Places.from_log(self._read(), self._definition, self._files, self._appends, self._where)

    def is_current(self, batch: PreparedBatch) -> bool:
        """Return whether the arrival times in a prepared batch are those that a new preparation would write."""
        clock, _, digest = batch.job.mark.partition(" ") if batch.job else ("", "", "")
        return clock == self.table.clock and digest in ("", self.table.digest)

    def assign(self, draft: Path) -> JobRecords:
        """Add the arrival time to the prepared files in a folder, and return what they have of the job's batches.

        Raises:
            SpecError: when the logs do not have the source.
            PlanError: when the columns of a position are missing.
        """
        count = len(self.table.number)
        records, greatest_ms = np.zeros(count + 1, dtype=np.int64), np.full(count + 1, np.iinfo(np.int64).min)
        for path in sorted(draft.glob("*.parquet")):
            found, events_ms = self._assign_file(path)
            records += np.bincount(found, minlength=count + 1)
            np.maximum.at(greatest_ms, found, events_ms)
        is_open = np.append(self.table.is_after_gap, True)
        mark = self.table.clock
        if (records[is_open] > 0).any():
            mark += f" {self.table.digest}"  # more logs can change an arrival time
        has = np.flatnonzero(records[:-1])
        return JobRecords(mark, self.table.number[has].tolist(), records[has].tolist(), greatest_ms[has].tolist())

    def _assign_file(self, path: Path) -> tuple[_Longs, _Longs]:
        """Add the arrival time to a file; return the row of the table for each record, and the event times."""
        rows = pq.read_table(path)
        found = self._find_rows(rows)
        times_ms = np.append(self.table.arrival_ms, self.table.after_last_ms)[found]
        added = {
            EVENT_TIME: rows[EVENT_TIME],
            ARRIVAL_TIME: pa.array(times_ms * _US_PER_MS, pa.int64()).cast(INSTANT),
            ARRIVAL_TEXT: pa.nulls(rows.num_rows, pa.string()),
        }
        table = pa.table(added | {name: rows[name] for name in rows.column_names if name not in added})
        draft = path.with_name(f".{path.name}")
        pq.write_table(table, draft, **write_options(table.schema))
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # Spark's checksum of the file as it was
        draft.replace(path)
        # For Spark, a record without an event time is of 1970.
        events_us = pc.fill_null(rows[EVENT_TIME].cast(pa.int64()), 0).to_numpy()
        return found, events_us // _US_PER_MS

    def _find_rows(self, rows: pa.Table) -> _Longs:
        """Return the row of the table for each record; the number of rows for a record that no batch has read."""
        if self._recent and self._definition.source.partition:
            where = self._definition, self._files, self._appends, self._where
            found = self._find_places(_Places.from_log(self._recent, *where), rows, len(self._recent.batches))
            if found.all():  # row 0 can also be that of an earlier batch
                return found + len(self.table.number) - len(self._recent.batches)
        return self._find_places(self._places, rows, len(self.table.number))

    def _find_places(self, places: _Places, rows: pa.Table, unread: int) -> _Longs:
        if places.position is None:
            uris = pc.fill_null(rows[FILE], "").combine_chunks().dictionary_encode()
            paths = [path_of_uri(uri) for uri in uris.dictionary.to_pylist()]
            self._require_retained(paths)
            found = [places.rows_by_path.get(path, unread) for path in paths]
            by_record: _Longs = np.array(found, dtype=np.int64)[uris.indices.to_numpy()]
            return by_record
        position = places.position
        names = pc.fill_null(rows[position.partition].cast(pa.string()), "").combine_chunks()
        partitions = names.dictionary_encode()
        offsets = np.asarray(pc.fill_null(rows[position.offset].cast(pa.int64()), 0).to_numpy(), dtype=np.int64)
        numbers, result = partitions.indices.to_numpy(), np.full(rows.num_rows, unread, dtype=np.int64)
        for number, partition in enumerate(partitions.dictionary.to_pylist()):
            own = np.flatnonzero(numbers == number)
            name = partition.removeprefix(position.prefix)
            result[own] = places.lookup.find_rows_of_offsets(places.topic, name, offsets[own])
        return result

    def _require_retained(self, paths: Iterable[str]) -> None:
        """Check that the table still has the snapshots that added files.

        Raises:
            PlanError: with the file, and its snapshot.
        """
        older = self._appends.older if self._appends else {}
        for path in paths:
            if path in older:
                first = self._read().batches[0].number
                msg = (
                    f"snapshot {older[path]} has expired, so it is not known whether batch {first}, or one before"
                    f" it, has read the file that the snapshot added: {path} ({self._where})"
                )
                raise PlanError(msg)


def keep_job_batches(definition: Definition, home: Home) -> dict[str, KeptBatches]:
    """Copy the batches that a job has ended to the folder that runs read; return them by checkpoint.

    Args:
        definition: the definition, as its file has it.
        home: the home, which has the batches of earlier calls.

    Raises:
        SpecError: when a log has another form, or the logs contradict each other, or those that are kept.
        StorageError: when a store cannot be read or written.
    """
    resolved = resolve_raw_paths(definition, home)
    watermark, own = resolved.watermark, _kept_location(resolved, home)
    reports, stores = (*watermark.progress, *watermark.event_log), Stores.from_environment()
    checkpoints = [address for address in watermark.checkpoint if not has_kept(address, stores)]
    return {address: keep_batches(address, own, reports) for address in checkpoints}


def _kept_location(definition: Definition, home: Home) -> str:
    """Return the folder of kept batches in the home, for a definition with resolved paths."""
    return home.location_of(batches_folder(definition, home) / "kept")
