"""Examine what a job of Structured Streaming wrote down, beside the events that it read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, repeat

import numpy as np

from backstream.errors import SpecError
from backstream.eventtime.instants import instant_text
from backstream.source.archive.columns import ColumnProfile
from backstream.source.archive.files import Archive
from backstream.source.archive.sampled import Sample
from backstream.storage.stores import Stores
from backstream.structured_streaming.batch_lookup import BatchLookup, count_equal_names
from backstream.structured_streaming.batch_table import BatchTable
from backstream.structured_streaming.batches import BatchLog, require_sound
from backstream.structured_streaming.checkpoint import read_checkpoint
from backstream.structured_streaming.kept_batches import batch_numbers_text, lost_batches_text, read_kept

_UNREAD = -1


@dataclass(frozen=True, slots=True)
class JobSource:
    """A source of a query, or one of its topics.

    Attributes:
        name: the source.
        topic: the topic; empty for a source of files.
        rows: by record of the sample, the place of the batch in the log; -1 if no known batch has read the record.
        read: the number of files of the events, or of records of the sample, that the source has.
        total: the number of all files, or of all records of the sample.
        equal_names: the number of equal names at the ends of the paths of a file, for the events and for the job.
        example: a file as the job names it.
    """

    name: str
    topic: str
    rows: Sequence[int]
    read: int
    total: int
    equal_names: int = 0
    example: str = ""

    @property
    def rank(self) -> tuple[float, int]:
        """Return numbers that are greater for a likelier source."""
        return self.read / max(1, self.total), self.equal_names

    def __str__(self) -> str:
        if self.topic:
            return (
                f"source {self.name}, topic {self.topic}: known batches have read {self.read:,} of {self.total:,}"
                " records of the sample"
            )
        example = f", e.g., {self.example}" if self.example else ""
        count = f"{self.read:,} of {self.total:,} files of the events"
        return f"source {self.name}, files: the job has read {count}{example}"


@dataclass(frozen=True, slots=True)
class JobEvidence:
    """The logs of a job, and the sources of its query that may be the events, the likeliest first."""

    address: str
    batch_log: BatchLog
    sources: tuple[JobSource, ...]

    @property
    def source(self) -> JobSource:
        """Return the source that has read the events."""
        return self.sources[0]

    @property
    def is_source_certain(self) -> bool:
        """Return whether only one source may have read the events."""
        if self.source.topic:
            return not any(other.read or not self.source.read for other in self.sources[1:])
        return all(other.rank < self.source.rank for other in self.sources[1:])

    @property
    def source_names(self) -> list[str]:
        """Return the sources of the query."""
        return self.batch_log.source_names

    @property
    def topics(self) -> list[str]:
        """Return the topics of the source that has read the events."""
        return self.batch_log.topics_of(self.source.name)

    def with_source(self, source: JobSource) -> JobEvidence:
        """Return the job with the answer of the user for the source."""
        return replace(self, sources=(source,))

    def find_delay_ms(self, times_ms: Sequence[int | None]) -> int | None:
        """Return the delay that each rise of the watermark shows; None if they show no single one.

        Args:
            times_ms: the event times of the sample, which has all events.
        """
        if len(self.source_names) > 1:  # each has a watermark of its own
            return None
        greatest_ms: dict[int, int] = {}
        for row, time_ms in zip(self.source.rows, times_ms, strict=True):
            greatest_ms[row] = max(time_ms or 0, greatest_ms.get(row, 0))  # for Spark, no time is 1970
        delays_ms = {
            greatest_ms[row] - two.watermark_ms
            for row, (one, two) in enumerate(pairwise(self.batch_log.batches))
            if row in greatest_ms and two.number == one.number + 1 and two.watermark_ms > one.watermark_ms
        }
        return delays_ms.pop() if len(delays_ms) == 1 and min(delays_ms) >= 0 else None


def examine_job(
    address: str, archive: Archive, sample: Sample, position: tuple[ColumnProfile, ColumnProfile] | None
) -> JobEvidence:
    """Return the job of a checkpoint, or of a folder of kept batches.

    Args:
        address: the checkpoint, or the folder.
        archive: the files of the events.
        sample: a sample of their records.
        position: the columns of the partition and the offset; None without them.

    Raises:
        SpecError: when it is neither, or the job has read no file of the archive, and no topic.
    """
    stores = Stores.from_environment()
    log = require_sound(read_kept(address, stores) or read_checkpoint(address, stores))
    sources = [
        source for name in log.source_names for source in _read_sources(log, name, archive, sample, position)
    ]
    if not sources:
        ends = {name: dict(end) for name, end in log.batches[-1].ends.items()}
        if any("snapshot_id" in end for end in ends.values()):
            msg = (
                f"the query reads an Iceberg table, and init reads files only ({address})\n\n"
                'hint: write a definition with source.format = "iceberg", and the name of the table as source.path'
            )
            raise SpecError(msg)
        msg = f"the query reads neither files nor topics: its last batch ends at {ends} ({address})"
        raise SpecError(msg)
    if not any(source.topic or source.read for source in sources):
        msg = (
            f"the job has read none of the {len(archive.files):,} files of {archive.location}: its checkpoint has"
            f" other names ({address})"
        )
        raise SpecError(msg)
    return JobEvidence(address, log, tuple(sorted(sources, key=lambda source: source.rank, reverse=True)))


def _read_sources(
    log: BatchLog,
    name: str,
    archive: Archive,
    sample: Sample,
    position: tuple[ColumnProfile, ColumnProfile] | None,
) -> Iterator[JobSource]:
    """Yield a source of files, or each topic of a source."""
    lookup = BatchLookup.from_log(log, name)
    if lookup.reads_files:
        paths = [file.path for file in archive.files]
        found, matched = lookup.find_rows_of_files(paths), lookup.match_files(paths)
        known = [_known_row(log, found.get(path, _UNREAD)) for path in paths]
        rows = [known[number] for number in sample.files]
        equal_names = min((count_equal_names(path, file) for path, file in matched.items()), default=0)
        example = next(iter(matched.values()), "")
        yield JobSource(name, "", rows, len(found), len(paths), equal_names, example)
        return
    for topic in log.topics_of(name):
        found_rows = _find_rows(lookup, topic, position) if position else repeat(_UNREAD, len(sample.records))
        known = [_known_row(log, row) for row in found_rows]
        yield JobSource(name, topic, known, sum(row != _UNREAD for row in known), len(known))


def _find_rows(lookup: BatchLookup, topic: str, position: tuple[ColumnProfile, ColumnProfile]) -> Iterator[int]:
    for partition, offset in zip(*(column.values for column in position), strict=True):
        is_number = isinstance(offset, int)
        offsets = np.array([offset if is_number else 0], dtype=np.int64)
        row = int(lookup.find_rows_of_offsets(topic, str(partition), offsets)[0])
        yield row if is_number else _UNREAD


def _known_row(log: BatchLog, row: int) -> int:
    return row if row < len(log.batches) else _UNREAD


def job_lines(job: JobEvidence) -> Iterator[str]:
    """Yield lines that show the known batches of a job, their watermarks, and its sources."""
    batches = job.batch_log.batches
    yield f"known: {batch_numbers_text([batch.number for batch in batches])}"
    for numbers in job.batch_log.gaps:
        yield f"lost: {lost_batches_text(numbers)}"
    if undecided := BatchTable.from_log(job.batch_log).undecided_ends():
        last_ms = max(ends_ms.end_ms for ends_ms in undecided.values()) - 1
        yield f"records may be undecided in windows that end until {instant_text(last_ms)}"
    first, last = (instant_text(batch.watermark_ms) for batch in (batches[0], batches[-1]))
    yield f"watermark: {first} to {last}"
    if job.batch_log.policy:
        yield f"policy of several watermarks: {job.batch_log.policy}"
    yield from map(str, job.sources)
