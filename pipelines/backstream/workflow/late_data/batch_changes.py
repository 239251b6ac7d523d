"""Compare the batches of prepared files that a run read with the current ones, by the contents of their raw files.

A slice of event time is changed if its records, over all raw files, are others than before. So a file that was
only renamed, compressed, split, or written again changes nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow.compute as pc

from backstream.eventtime.stale_windows import ChangeKind
from backstream.source.raw_contents import RawContents
from backstream.source.raw_files import COMPRESSED_SUFFIXES, RawFile, path_in_records
from backstream.source.time_columns import Longs

_NO_TIME_MS = -(2**63)
"""Slice of the records without an event time."""
_NO_ARRIVAL_MS = 2**63 - 1
_UNNAMED = -1
"""Number of the raw file of records that do not name it any more."""
_Checksums = np.ndarray[Any, np.dtype[np.uint64]]


class SliceChange(NamedTuple):
    """A slice of event time `[start_ms, end_ms)` with its numbers of records before and after a change.

    `first_arrival_ms` is the first arrival of any of them; None without an arrival time.
    """

    start_ms: int
    end_ms: int
    before: int
    after: int
    first_arrival_ms: int | None


class Move(NamedTuple):
    """The path that a file had before, whether it was renamed or compressed, and its records now."""

    path_before: str
    change: ChangeKind
    records: int


@dataclass(frozen=True, slots=True)
class RawFileChange:
    """A raw file with records that changed.

    `raw_path` is the path by which its prepared records name it; None if they do not name their files.
    """

    path: str
    change: ChangeKind
    raw_path: str | None
    slices: tuple[SliceChange, ...]


@dataclass(frozen=True, slots=True)
class BatchChanges:
    """The raw files whose records changed, and by path the files that have another path than before."""

    files: tuple[RawFileChange, ...] = ()
    moves: Mapping[str, Move] = field(default_factory=dict)


class OtherPaths(NamedTuple):
    """Return the paths of further raw files: they show whether a file is new, or has been elsewhere before."""

    before: Callable[[], Collection[str]]
    after: Callable[[], Collection[str]]


def compare_batches(
    before: Sequence[RawContents], after: Sequence[RawContents], same: Collection[RawFile], others: OtherPaths
) -> BatchChanges:
    """Return the changes of raw files between two sets of batches.

    Args:
        before: the contents of the batches that were replaced or removed.
        after: the contents of the new batches.
        same: raw files that are unchanged, but were or are read without a preparation.
        others: the raw files of batches that are far from the compared ones in time.
    """
    names = _Names.from_contents(before, after, same)
    if not names.numbers:
        return BatchChanges()
    slices = _Slices.from_contents(before, after, names)
    is_comparable = len({contents.hashed_by for contents in (*before, *after)}) <= 1
    moves = _find_moves(slices, names) if is_comparable else {}
    new_numbers = {names.numbers[move.path_before]: names.numbers[path] for path, move in moves.items()}
    moved = slices.with_moves(new_numbers)
    changed = moved.differences() if is_comparable else moved.with_times()
    files = tuple(_list_changes(changed, names, moves, others))
    named = {change.path for change in files}
    return BatchChanges(
        files,
        {
            path: move if path not in named else move._replace(change=ChangeKind.CHANGED)
            for path, move in moves.items()
        },
    )


@dataclass(frozen=True, slots=True)
class _Names:
    """The raw files of both sides without those that are the same, and the number of each path."""

    before: Mapping[str, tuple[RawFile, str]]
    after: Mapping[str, tuple[RawFile, str]]
    numbers: Mapping[str, int]
    same: frozenset[tuple[RawFile, str]]
    paths_before: frozenset[str]
    paths_after: frozenset[str]

    @classmethod
    def from_contents(
        cls, before: Sequence[RawContents], after: Sequence[RawContents], same: Collection[RawFile]
    ) -> Self:
        sides = [
            {(file, contents.made_with) for contents in side for file in contents.files}
            for side in (before, after)
        ]
        kept = frozenset((sides[0] & sides[1]) | {each for each in sides[0] | sides[1] if each[0] in same})
        first, second = ({file.path: (file, made) for file, made in side - kept} for side in sides)
        numbers = {path: number for number, path in enumerate(sorted({*first, *second}))}
        paths = (frozenset(file.path for file, _ in side) for side in sides)
        return cls(first, second, numbers, kept, *paths)

    def kind(self, path: str, others: OtherPaths) -> ChangeKind:
        """Return the change of a file that was not moved."""
        if path in self.before and path in self.after:
            is_same_file = self.before[path][0] == self.after[path][0]
            return ChangeKind.TRANSFORMED if is_same_file else ChangeKind.CHANGED
        if path in self.after:
            return ChangeKind.CHANGED if path in {*self.paths_before, *others.before()} else ChangeKind.ADDED
        return ChangeKind.CHANGED if path in {*self.paths_after, *others.after()} else ChangeKind.REMOVED


@dataclass(frozen=True, slots=True)
class _Slices:
    """The slices of raw files as columns, with the sums of both sides."""

    width_ms: int
    file: Longs
    start_ms: Longs
    records: tuple[Longs, Longs]
    checksums: tuple[_Checksums, _Checksums]
    first_arrival_ms: Longs

    @classmethod
    def from_contents(cls, before: Sequence[RawContents], after: Sequence[RawContents], names: _Names) -> Self:
        width_ms = max((contents.width_ms for contents in (*before, *after)), default=1)
        parts = [cls._of_side(contents, names, width_ms, is_after=False) for contents in before]
        parts += [cls._of_side(contents, names, width_ms, is_after=True) for contents in after]
        columns = [np.concatenate(arrays) for arrays in zip(*(part.columns() for part in parts), strict=True)]
        return cls._from_columns(width_ms, columns).sum_by_slice()

    @classmethod
    def _of_side(cls, contents: RawContents, names: _Names, width_ms: int, *, is_after: bool) -> Self:
        """Return the slices of a batch without the files that are the same on both sides."""
        is_same = [(file, contents.made_with) in names.same for file in contents.files]
        numbers = [
            _UNNAMED if same else names.numbers[file.path]
            for file, same in zip(contents.files, is_same, strict=True)
        ]
        # Records without a file come last: index -1.
        file = pc.fill_null(contents.rows["file"], -1).to_numpy().astype(np.int64)
        is_wanted = ~np.array([*is_same, False])[file]
        file = np.array([*numbers, _UNNAMED], np.int64)[file]
        times_ms = pc.fill_null(contents.rows["slice_ms"], _NO_TIME_MS).to_numpy()
        start_ms = np.where(times_ms == _NO_TIME_MS, _NO_TIME_MS, times_ms // width_ms * width_ms)
        records = contents.rows["records"].to_numpy()
        checksums = contents.rows["checksum"].to_numpy()
        arrival_ms = pc.fill_null(contents.rows["first_arrival_ms"], _NO_ARRIVAL_MS).to_numpy()
        pairs = [np.zeros_like(records), records], [np.zeros_like(checksums), checksums]
        sums = [column for pair in pairs for column in (pair if is_after else reversed(pair))]
        columns = [file, start_ms, *sums, arrival_ms]
        return cls._from_columns(width_ms, [column[is_wanted] for column in columns])

    @classmethod
    def _from_columns(cls, width_ms: int, columns: Sequence[Any]) -> Self:
        file, start_ms, before, after, sum_before, sum_after, arrival_ms = columns
        return cls(width_ms, file, start_ms, (before, after), (sum_before, sum_after), arrival_ms)

    def columns(self) -> list[Any]:
        return [self.file, self.start_ms, *self.records, *self.checksums, self.first_arrival_ms]

    def sum_by_slice(self) -> Self:
        """Return one row per file and slice, in order; sums of checksums wrap around."""
        order = np.lexsort((self.start_ms, self.file))
        columns = [column[order] for column in self.columns()]
        if not len(order):
            return self
        file, start_ms, *sums, arrival_ms = columns
        first = np.flatnonzero(np.append(True, (file[1:] != file[:-1]) | (start_ms[1:] != start_ms[:-1])))
        added = [np.add.reduceat(column, first) for column in sums]
        return self._from_columns(
            self.width_ms, [file[first], start_ms[first], *added, np.minimum.reduceat(arrival_ms, first)]
        )

    def keep(self, is_wanted: np.ndarray[Any, np.dtype[np.bool_]]) -> Self:
        return self._from_columns(self.width_ms, [column[is_wanted] for column in self.columns()])

    def with_times(self) -> Self:
        """Return the rows of records with an event time."""
        return self.keep(self.start_ms != _NO_TIME_MS)

    def with_moves(self, numbers: Mapping[int, int]) -> Self:
        """Return the rows with other numbers of files."""
        if not numbers:
            return self
        last = max(self.file.max(initial=_UNNAMED), *numbers)
        new_numbers = np.arange(_UNNAMED, last + 1)  # the first one is that of `_UNNAMED`
        new_numbers[np.array([*numbers]) - _UNNAMED] = [*numbers.values()]
        return replace(self, file=new_numbers[self.file - _UNNAMED]).sum_by_slice()

    @property
    def is_different(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """A mask of the rows whose sums differ between the sides."""
        is_other: np.ndarray[Any, np.dtype[np.bool_]] = (self.records[0] != self.records[1]) | (
            self.checksums[0] != self.checksums[1]
        )
        return is_other

    def differences(self) -> Self:
        """Return the rows that differ, of the slices whose sums over all files differ."""
        timed = self.with_times()
        over_files = replace(timed, file=np.zeros_like(timed.file)).sum_by_slice()
        changed_ms = over_files.start_ms[over_files.is_different]
        return timed.keep(timed.is_different & np.isin(timed.start_ms, changed_ms))

    def slices_of_files(self) -> Iterator[tuple[int, tuple[SliceChange, ...]]]:
        """Yield the number and the slices of each file; rows are in order of files."""
        slices: dict[int, list[SliceChange]] = defaultdict(list)
        for file, start_ms, before, after, _, _, arrival_ms in zip(
            *(column.tolist() for column in self.columns()), strict=True
        ):
            first_arrival_ms = None if arrival_ms == _NO_ARRIVAL_MS else arrival_ms
            slices[file].append(SliceChange(start_ms, start_ms + self.width_ms, before, after, first_arrival_ms))
        yield from ((file, tuple(each)) for file, each in slices.items())


def _list_changes(
    changed: _Slices, names: _Names, moves: Mapping[str, Move], others: OtherPaths
) -> Iterator[RawFileChange]:
    paths = list(names.numbers)
    for number, slices in changed.slices_of_files():
        if number == _UNNAMED:
            label = paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1:,} more"
            yield RawFileChange(label, ChangeKind.CHANGED, None, slices)
            continue
        path = paths[number]
        kind = ChangeKind.CHANGED if path in moves else names.kind(path, others)
        yield RawFileChange(path, kind, path_in_records(path), slices)


def _find_moves(slices: _Slices, names: _Names) -> dict[str, Move]:
    """Return the files that have another path than before, by their new path.

    A file is the same if it has the old name with or without a suffix of compression, or if at least half of its
    old slices are unchanged.
    """
    paths = list(names.numbers)
    gone, come = names.before.keys() - names.paths_after, names.after.keys() - names.paths_before
    if not gone or not come:
        return {}
    contents: dict[str, set[tuple[int, int, int]]] = defaultdict(set)
    numbers = {names.numbers[path] for path in (*gone, *come)}
    for file, start_ms, *sums, _ in zip(*(column.tolist() for column in slices.columns()), strict=True):
        if file in numbers:
            before, after, sum_before, sum_after = sums
            contents[paths[file]].add((start_ms, before + after, sum_before + sum_after))
    pairs = _pair_names(gone, come)
    pairs |= _pair_contents(contents, gone - {*pairs.values()}, come - pairs.keys())
    return {
        path: Move(
            before,
            ChangeKind.COMPRESSED if _without_compression(path) == before else ChangeKind.RENAMED,
            sum(records for _, records, _ in contents[path]),
        )
        for path, before in pairs.items()
        if contents[before] or contents[path]
    }


def _pair_names(gone: Iterable[str], come: Iterable[str]) -> dict[str, str]:
    """Return the old path by the new one, of files whose names differ by a suffix of compression only."""
    old = {_without_compression(path): path for path in sorted(gone)}
    return {path: old.pop(name) for path in sorted(come) if (name := _without_compression(path)) in old}


def _pair_contents(
    contents: Mapping[str, set[tuple[int, int, int]]], gone: Collection[str], come: Collection[str]
) -> dict[str, str]:
    """Return the old path by the new one, of files that have at least half of their old slices; the best first."""
    holders: dict[tuple[int, int, int], list[str]] = defaultdict(list)
    for path in sorted(gone):
        for each in contents.get(path, ()):
            holders[each].append(path)
    shared = Counter(
        (before, path)
        for path in sorted(come)
        for each in contents.get(path, ())
        for before in holders.get(each, ())
    )
    pairs: dict[str, str] = {}
    used: set[str] = set()
    for (before, path), count in shared.most_common():
        if path not in pairs and before not in used and 2 * count >= len(contents[before]):
            pairs[path] = before
            used.add(before)
    return pairs


def _without_compression(path: str) -> str:
    suffix = PurePath(path).suffix.lower()
    return path[: -len(suffix)] if suffix in COMPRESSED_SUFFIXES else path
