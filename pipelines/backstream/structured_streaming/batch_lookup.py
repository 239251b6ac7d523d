"""Find the batch that read a record, by its position: the offset in a partition, or the file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from backstream.errors import SpecError
from backstream.structured_streaming.batches import BatchLog, Offset

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BatchLookup:
    """The ends of the batches of a log in one of its sources; the row of a batch is its place in the log."""

    batch_log: BatchLog
    source: str
    _ends_by_partition: dict[str, Longs] = field(default_factory=dict)

    @classmethod
    def from_log(cls, log: BatchLog, source: str | None) -> BatchLookup:
        """Return the lookup in a source of a query; None: the only source.

        Raises:
            SpecError: when the query has no such source, or several.
        """
        names = log.source_names
        if source is None and len(names) > 1:
            known = ", ".join(names)
            msg = f"watermark.source is missing: the query reads {len(names)} sources, {known} ({log.place})"
            raise SpecError(msg)
        if source is not None and source not in names:
            msg = f"watermark.source must be {' or '.join(names)}, got {source!r} ({log.place})"
            raise SpecError(msg)
        return cls(log, source or (names[0] if names else "0"))

    @property
    def reads_files(self) -> bool:
        """Return whether the source is one of files."""
        return self.source in self.batch_log.files

    def find_topic(self, topic: str | None) -> str:
        """Return the topic of the source: the given one, or the only one.

        Raises:
            SpecError: when the source has no such topic, or several.
        """
        topics = self.batch_log.topics_of(self.source)
        if not topics:
            ends = (batch.ends.get(self.source, {}) for batch in self.batch_log.batches)
            raise SpecError(self._describe_source(next(filter(None, ends), {})))
        if topic is None and len(topics) == 1:
            return topics[0]
        if topic in topics:
            return topic
        known = ", ".join(topics)
        problem = "is missing" if topic is None else f"is {topic!r}"
        place = self.batch_log.place
        msg = f"watermark.topic {problem}, and the source {self.source} has the topics: {known} ({place})"
        raise SpecError(msg)

    def _describe_source(self, end: Offset) -> str:
        """Return why the records of a source that has no topics cannot get their batches."""
        if "logOffset" in end:
            return (
                f"the logs do not have the files that source {self.source} read; only a checkpoint has them"
                f" ({self.batch_log.place})\n\nhint: name it as watermark.checkpoint"
            )
        if "reservoirId" in end:
            return (
                f"source {self.source} is a Delta table: its offsets do not name files, so only those of"
                f" files, Iceberg tables, and topics can be replayed ({self.batch_log.place})"
            )
        if "snapshot_id" in end:
            return (
                f"source {self.source} is an Iceberg table, so the definition must read this table"
                f" ({self.batch_log.place})\n\n"
                'hint: set source.format = "iceberg", source.path to the name of the table, e.g.,'
                ' "catalog.namespace.table", and no source.partition'
            )
        return (
            f"source {self.source} has an offset of another kind: {json.dumps(dict(end))[:200]}; known are"
            f" those of files, Iceberg, and Kafka ({self.batch_log.place})"
        )

    def find_rows_of_offsets(self, topic: str, partition: str, offsets: Longs) -> Longs:
        """Return the row of the first batch that ends after each offset; the number of batches if none does."""
        key = f"{topic}/{partition}"
        if key not in self._ends_by_partition:
            ends = (batch.ends.get(self.source, {}).get(topic, {}) for batch in self.batch_log.batches)
            self._ends_by_partition[key] = np.array([end.get(partition, 0) for end in ends], dtype=np.int64)
        # Ends never fall, and an end is the next offset to read.
        return np.searchsorted(self._ends_by_partition[key], offsets, side="right")

    def find_rows_of_files(self, paths: Iterable[str]) -> dict[str, int]:
        """Return the row of the batch that read each file; files that the job has not read are left out.

        The job may have read the files elsewhere. A path is that of the log with which it shares the longest end.

        Raises:
            SpecError: when two paths share the same end with a file of the log.
        """
        ends = np.array(
            [_own_number(batch.ends.get(self.source, {})) for batch in self.batch_log.batches], dtype=np.int64
        )
        listed = self.batch_log.files.get(self.source, {})
        found = self.match_files(paths)
        return {path: int(np.searchsorted(ends, listed[file], side="left")) for path, file in found.items()}

    def match_files(self, paths: Iterable[str]) -> dict[str, str]:
        """Return each file as the log names it; files that the job has not read are left out.

        Raises:
            SpecError: when two paths share the same end with a file of the log.
        """
        return _match_paths(list(paths), list(self.batch_log.files.get(self.source, {})))


def _own_number(end: Offset) -> int:
    """Return the source's own number of its last batch with files; -1 before the first."""
    value = end.get("logOffset", -1)
    return value if isinstance(value, int) else -1


_Parts = tuple[str, ...]
_Move = tuple[_Parts, _Parts]
"""The parts before the equal end of a path, and of the file of a log."""


def _match_paths(paths: Sequence[str], files: Sequence[str]) -> dict[str, str]:
    """Return the file of the log for each path that has one: the pairs with the longest equal ends.

    If several files were moved from one folder to another, a file in it is no other one of that folder.
    """
    own = {tuple(path.split("/")): path for path in paths}
    logged = {tuple(unquote(file).split("/")): file for file in files}
    candidates = list(_list_candidates([*own], [*logged], 0))
    pairs = [(left[0], right[0]) for left, right in candidates if len(left) == len(right) == 1]
    counts = Counter(_move_of(*pair) for pair in pairs)
    moves = {move for move, count in counts.items() if count > 1}
    found: dict[str, str] = {}
    for left, right in candidates:
        fitting = [(one, two) for one in left for two in right if not _is_other(one, two, moves)]
        if len(fitting) > 1:
            ones, twos = ([*dict.fromkeys(each)] for each in zip(*fitting, strict=True))
            shown = [_example_of([own[one] for one in ones]), _example_of([logged[two] for two in twos])]
            msg = (
                f"{shown[0]} of the source may be {shown[1]} of the job's checkpoint: their paths end alike\n\n"
                "hint: leave the files of the source in folders with the names that they had for the job"
            )
            raise SpecError(msg)
        found |= {own[one]: logged[two] for one, two in fitting}
    return {path: found[path] for path in paths if path in found}


def _list_candidates(
    paths: list[_Parts], files: list[_Parts], depth: int
) -> Iterator[tuple[list[_Parts], list[_Parts]]]:
    """Yield paths with the files that have the same names at the end, the most names first.

    Those that have more names in common with others are left out.
    """
    if not paths or not files:
        return
    if depth and len(paths) == len(files) == 1:
        yield [*paths], [*files]
        paths.clear()
        files.clear()
        return
    by_name: tuple[dict[str | None, list[_Parts]], ...] = ({}, {})
    for groups, whole in zip(by_name, (paths, files), strict=True):
        for parts in whole:
            groups.setdefault(parts[-depth - 1] if depth < len(parts) else None, []).append(parts)
        whole.clear()
    for name in [name for name in by_name[0] if name is not None and name in by_name[1]]:
        yield from _list_candidates(by_name[0][name], by_name[1][name], depth + 1)
    for groups, whole in zip(by_name, (paths, files), strict=True):
        whole += [parts for group in groups.values() for parts in group]
    if depth and paths and files:
        yield [*paths], [*files]
        paths.clear()
        files.clear()


def _move_of(path: _Parts, file: _Parts) -> _Move:
    count = _count_shared(path, file)
    return path[: len(path) - count], file[: len(file) - count]


def _is_other(path: _Parts, file: _Parts, moves: Collection[_Move]) -> bool:
    """Return whether a path is below the new folder of a move, and a file below its old one as another file."""
    own = _move_of(path, file)
    if own in moves:
        return False
    return any(all(move) and path[: len(move[0])] == move[0] and file[: len(move[1])] == move[1] for move in moves)


def _example_of(paths: Sequence[str]) -> str:
    """Return one path, or the first two of several."""
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {paths[1]}"


def count_equal_names(path: str, file: str) -> int:
    """Return the number of equal names at the end of a path and a file of a log."""
    return _count_shared(path.split("/"), unquote(file).split("/"))


def _count_shared(one: Sequence[str], two: Sequence[str]) -> int:
    """Return the number of equal names at the end of two paths."""
    pairs = zip(reversed(one), reversed(two), strict=False)
    return next((place for place, (left, right) in enumerate(pairs) if left != right), min(len(one), len(two)))
