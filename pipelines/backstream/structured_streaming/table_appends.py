"""Name the files that each batch of a job read from an Iceberg table.

An offset has a snapshot, and a position: the number of files of this snapshot that were read, in the order of its
manifests. Spark reads the files that each `append` added. It skips all other snapshots.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import quote

from backstream.errors import SpecError
from backstream.structured_streaming.batches import Batch, BatchLog

_BEFORE_FIRST = -1
"""The snapshot in the end of a batch that found an empty table."""


class AppendedFile(NamedTuple):
    """A data file, and its position in the snapshot that added it."""

    position: int
    path: str


@dataclass(frozen=True, slots=True)
class TableAppends:
    """The files that the snapshots of a table added.

    Attributes:
        table: the name of the table.
        snapshots: by id, the files that a snapshot appended, ascending; the oldest snapshot is the first.
        older: the files that are still in the table, by path, with the expired snapshots that added them.
        is_whole: whether no file is missing that an expired snapshot had appended.
        list_whole: returns all files of a snapshot, which a job reads that starts with the whole table.
    """

    table: str
    snapshots: Mapping[int, Sequence[AppendedFile]]
    older: Mapping[str, int]
    is_whole: bool
    list_whole: Callable[[int], Sequence[AppendedFile]]

    def name_files(self, log: BatchLog, source: str) -> BatchLog:
        """Return a log in which a source of this table is one of files; other logs as they are.

        Raises:
            SpecError: when the table does not have a snapshot of the log, or an offset goes back.
        """
        ends = [_end_of(batch, source, log.place) for batch in log.batches]
        if not any(end and "snapshot_id" in end for end in ends):
            return log
        known = [(batch, end) for batch, end in zip(log.batches, ends, strict=True) if end]
        self._require_known(known, log)
        places = {number: place for place, number in enumerate(self.snapshots)}
        self._require_order(known, places, log)
        wholes = [end["snapshot_id"] for _, end in known if end["scan_all_files"]]
        starts: dict[int, tuple[int, Sequence[AppendedFile]]] = {}
        numbers: dict[str, int] = {}
        for snapshot, appended in self.snapshots.items():
            if wholes and places[snapshot] < places.get(wholes[0], 0):
                continue  # all its files are in the whole table
            files = self.list_whole(snapshot) if snapshot in wholes else appended
            starts[snapshot] = len(numbers), files
            numbers |= {quote(file.path, safe="/:"): number for number, file in enumerate(files, len(numbers))}

        def as_file_end(end: Mapping[str, Any]) -> dict[str, int]:
            first, files = starts.get(end["snapshot_id"], (0, ()))
            return {"logOffset": first + bisect_left(files, (end["position"], "")) - 1}

        batches = [
            replace(batch, ends={**batch.ends, source: as_file_end(end)}) if end else batch
            for batch, end in zip(log.batches, ends, strict=True)
        ]
        return replace(log, batches=tuple(batches), files={**log.files, source: numbers})

    def _require_known(self, ends: Sequence[tuple[Batch, Mapping[str, Any]]], log: BatchLog) -> None:
        """Check that no record is missing that a batch may have read."""
        numbers = [end["snapshot_id"] for _, end in ends]
        expired = [number not in self.snapshots and number != _BEFORE_FIRST for number in numbers]
        if expired[-1] or (any(expired) and not self.is_whole):
            row = len(expired) - 1 - expired[::-1].index(True)
            msg = (
                f"batch {ends[row][0].number} ends at snapshot {numbers[row]}, which table {self.table} does not"
                f" have: it has expired, or the job read another table ({log.place})\n\n"
                "hint: keep snapshots until their batches are prepared, e.g., with `backstream prepare`"
            )
            raise SpecError(msg)
        if not self.is_whole and ends[0][0].records is None:
            msg = (
                f"the snapshots of table {self.table} before {next(iter(self.snapshots))} have expired, and batch"
                f" {ends[0][0].number} may have read their files ({log.place})\n\n"
                "hint: progress reports have the number of records of each batch; name them as watermark.progress"
            )
            raise SpecError(msg)

    def _require_order(
        self, ends: Sequence[tuple[Batch, Mapping[str, Any]]], places: Mapping[int, int], log: BatchLog
    ) -> None:
        """Check that no offset goes back, by the order of the snapshots."""
        for (one, former), (two, later) in pairwise(ends):
            ranks = [(places.get(end["snapshot_id"], -1), end["position"]) for end in (former, later)]
            if ranks[1] < ranks[0] and ranks[0][0] != -1:
                texts = [f"file {end['position']} of snapshot {end['snapshot_id']}" for end in (former, later)]
                msg = (
                    f"table {self.table} goes back from {texts[0]} in batch {one.number} to {texts[1]} in batch"
                    f" {two.number} ({log.place})"
                )
                raise SpecError(msg)


def _end_of(batch: Batch, source: str, place: str) -> Mapping[str, Any] | None:
    """Return where a batch ends in a source; None if it has no offset there.

    Raises:
        SpecError: when it is an offset of Iceberg of an unknown form.
    """
    end = batch.ends.get(source)
    if not end or "snapshot_id" not in end:
        return end
    numbers = (end["snapshot_id"], end.get("position"))
    is_known = end.get("version") == 1 and isinstance(end.get("scan_all_files"), bool)
    if not is_known or not all(type(number) is int for number in numbers):
        msg = f"batch {batch.number} ends at an offset of Iceberg of an unknown form: {dict(end)} ({place})"
        raise SpecError(msg)
    return end
