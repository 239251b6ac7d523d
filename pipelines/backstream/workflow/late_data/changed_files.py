"""Compare the current input files of a dataset with those that a run read."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any, Self

import numpy as np

from backstream.definition.model import Definition
from backstream.definition.source_section import Source
from backstream.eventtime.instants import DAY_MS, MAX_MS, MIN_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.stale_windows import ChangedRecords, ChangeKind, slice_ms
from backstream.eventtime.time_zones import TimeZone
from backstream.runs.plan import InputFile
from backstream.source.key_index import KeyIndex, KeySlice
from backstream.source.raw_contents import RawContents
from backstream.source.raw_files import RawFile
from backstream.source.reader import UnreadableError
from backstream.source.record_ids import RawSpans, RecordIds
from backstream.source.time_columns import Longs
from backstream.source.user_files import BatchPlace, find_copied_files
from backstream.workflow.late_data.affected_rows import Mask
from backstream.workflow.late_data.batch_changes import (
    BatchChanges,
    OtherPaths,
    RawFileChange,
    SliceChange,
    compare_batches,
)
from backstream.workflow.late_data.planned_inputs import PlanInputs, PlannedInputs, to_bits


@dataclass(frozen=True, slots=True)
class CurrentInputs:
    """The current input files as columns; an unknown bound is replaced by the widest value."""

    files: Sequence[InputFile]
    bits: int
    numbers: Longs
    has_rows: Mask
    first_event_ms: Longs
    last_event_ms: Longs
    first_arrival_ms: Longs

    @classmethod
    def from_files(cls, files: Sequence[InputFile], plans: PlannedInputs) -> Self:
        """Return the columns of these files, with the numbers that plans use for them."""
        numbers = plans.numbers(files)
        is_bounded = [file.min_event_ms is not None and file.max_event_ms is not None for file in files]
        bounds = (
            [file.min_event_ms if known else MIN_MS for file, known in zip(files, is_bounded, strict=True)],
            [file.max_event_ms if known else MAX_MS for file, known in zip(files, is_bounded, strict=True)],
            [MIN_MS if file.min_arrival_ms is None else file.min_arrival_ms for file in files],
        )
        columns = (np.array(values, np.int64) for values in (numbers, [file.rows for file in files], *bounds))
        number, rows, first_ms, last_ms, arrival_ms = columns
        return cls(files, to_bits(numbers), number, rows > 0, first_ms, last_ms, arrival_ms)

    def added_since(self, plan: PlanInputs) -> Mask:
        """Return a mask of the files that a plan does not list; the list includes skipped damaged files."""
        listed = plan.read_files | plan.skipped
        size = int(max(self.numbers.max(initial=0), listed.bit_length())) // 8 + 1
        bits = np.frombuffer(listed.to_bytes(size, "little"), np.uint8)
        is_added: Mask = np.unpackbits(bits, bitorder="little")[self.numbers] == 0
        return is_added

    def removed_since(self, plan: PlanInputs) -> int:
        """Return, as bits, the files that a plan lists and that the source does not have any more."""
        return plan.read_files & ~(self.bits & ~plan.skipped)

    def may_hold(self, reach: Interval | None) -> Mask:
        """Return a mask of the files that may hold events of an interval; None: any event."""
        if reach is None:
            return self.has_rows
        return self.has_rows & (self.first_event_ms < reach.end_ms) & (self.last_event_ms >= reach.start_ms)


@dataclass(frozen=True, slots=True)
class FileChange:
    """The change of a file of the user, and the path that it had before, if that is another one.

    `records` is the number of records of a file that was only renamed or compressed.
    """

    kind: ChangeKind
    path_before: str | None = None
    records: int | None = None


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """The files of the user whose records changed.

    Attributes:
        added: the new files that are read in place, or their copies, with the path of the user's file.
        removed: the removed ones. A file that changed may be in both.
        prepared: the new prepared files. Only the records of `batches` in them are others than before.
        batches: the changes of files that are prepared.
        changes: the change by path of the user's file.
        moves: by path the files that were only renamed or compressed.
        unknown: a prepared file of a batch whose contents are not known any more; None: there is none.
    """

    added: tuple[UserFile, ...]
    removed: tuple[UserFile, ...]
    prepared: tuple[InputFile, ...]
    batches: tuple[RawFileChange, ...]
    changes: Mapping[str, FileChange]
    moves: Mapping[str, FileChange]
    unknown: str | None = None

    def removed_spans(self) -> Iterator[tuple[str, int, int]]:
        """Yield the file, and the first and the last event time, of records that may have been removed."""
        for file in self.removed:
            yield (file.raw.path, *_span_of(file.input))
        for change in self.batches:
            for each in change.slices:
                if each.before:
                    yield change.path, each.start_ms, each.end_ms - 1

    def find_arrival_until(self, end_ms: int) -> str | None:
        """Return the first changed file with a record that arrived until an instant; None if there is none."""
        removed = [file.raw.path for file in self.removed]
        added = [
            file.raw.path
            for file in self.added
            if file.input.min_arrival_ms is None or file.input.min_arrival_ms <= end_ms
        ]
        prepared = [
            file.path
            for file in self.batches
            if any(each.first_arrival_ms is None or each.first_arrival_ms <= end_ms for each in file.slices)
        ]
        return min([*removed, *added, *prepared], default=self.unknown)


@dataclass(frozen=True, slots=True)
class UserFile:
    """An input file that is a file of the user or its copy, with the path and the version of the user's file."""

    input: InputFile
    raw: RawFile

    @property
    def content(self) -> tuple[int | None, ...]:
        """The values that a renamed file keeps."""
        file = self.input
        bounds = (file.min_event_ms, file.max_event_ms, file.min_arrival_ms, file.max_arrival_ms)
        return self.raw.size_bytes, self.raw.modified_ms, file.rows, *bounds


@dataclass(frozen=True, slots=True)
class InputDifference:
    """The files that a plan lists and the source does not have any more, and those that only the source has."""

    inputs: CurrentInputs
    is_added: Mask
    removed: Sequence[InputFile]

    def sides(self, reach: Interval | None) -> tuple[list[InputFile], list[InputFile]]:
        """Return the removed and the added files that may hold events of an interval; None: any event."""
        added = [self.inputs.files[at] for at in _true_positions(self.is_added & self.inputs.may_hold(reach))]
        return [file for file in self.removed if file.rows and (reach is None or file.may_hold(reach))], added

    def others(self) -> list[InputFile]:
        """Return the files with records that both the plan and the source have."""
        return [self.inputs.files[at] for at in _true_positions(~self.is_added & self.inputs.has_rows)]

    def __bool__(self) -> bool:
        """Return whether there is any file."""
        return bool(self.removed) or bool(self.is_added.any())


@dataclass(slots=True)
class InputComparison:
    """Compare input files by the files of the user; runs with the same difference share one comparison."""

    _places: dict[str, BatchPlace | None] = field(default_factory=dict)
    _contents: dict[BatchPlace, RawContents | None] = field(default_factory=dict)
    _changes: dict[tuple[frozenset[Any], ...], BatchChanges] = field(default_factory=dict)

    def compare(
        self, files: InputDifference, reach: Interval | None, zone: TimeZone | None = None
    ) -> ChangedFiles:
        """Return the changed files that may hold events of an interval; None: any event.

        Args:
            files: the files that differ.
            reach: the interval, in local time with a zone.
            zone: the time zone of the windows.
        """
        near = files.sides(reach)
        unknown = next((file.path for file in near[0] if self._is_unknown(file)), None)
        before, after = (self._load_contents(side) for side in near)
        removed, added = (self._list_user_files(side) for side in near)
        prepared = [{file for each in side for file in each.files} for side in (before, after)]
        versions = [{file.raw for file in side} for side in (removed, added)]
        same = frozenset((versions[0] | prepared[0]) & (versions[1] | prepared[1]) & (versions[0] | versions[1]))
        removed, added = ([file for file in side if file.raw not in same] for side in (removed, added))
        moves = _find_renamed(removed, added)
        left = {move.path_before for move in moves.values()}
        removed = [file for file in removed if file.raw.path not in left]
        added = [file for file in added if file.raw.path not in moves]
        batches = self._compare_batches(near, (before, after), same, files)
        changed = [
            replace(file, slices=slices)
            for file in batches.files
            if (
                slices := tuple(
                    each
                    for each in (_localize(each, zone) for each in file.slices)
                    if reach is None or _overlaps(each, reach)
                )
            )
        ]
        paths = {file.path for file in changed}
        return ChangedFiles(
            tuple(added),
            tuple(removed),
            tuple(file for file in near[1] if self._place_of(file)),
            tuple(changed),
            self._changes_of_user_files(removed, added, files)
            | {file.path: FileChange(file.change, _path_before(batches, file.path)) for file in changed},
            moves
            | {
                path: FileChange(move.change, move.path_before, move.records)
                for path, move in batches.moves.items()
                if path not in paths
            },
            unknown,
        )

    def _changes_of_user_files(
        self, removed: Sequence[UserFile], added: Sequence[UserFile], files: InputDifference
    ) -> dict[str, FileChange]:
        """Return the changes; a file on both sides has changed, even if only one of its versions is near."""
        before = {file.raw.path for file in self._list_user_files(files.sides(None)[0])} if added else set()
        after = {file.raw.path for file in self._list_user_files(files.sides(None)[1])} if removed else set()
        changed, new, gone = map(FileChange, (ChangeKind.CHANGED, ChangeKind.ADDED, ChangeKind.REMOVED))
        return {file.raw.path: changed if file.raw.path in before else new for file in added} | {
            file.raw.path: changed if file.raw.path in after else gone for file in removed
        }

    def _compare_batches(
        self,
        near: tuple[list[InputFile], list[InputFile]],
        contents: tuple[list[RawContents], list[RawContents]],
        same: frozenset[RawFile],
        files: InputDifference,
    ) -> BatchChanges:
        key = (*(frozenset(self._list_places(side)) for side in near), same)
        if key not in self._changes:
            self._changes[key] = compare_batches(
                *contents,
                same,
                OtherPaths(*(partial(self._list_paths, files, side) for side in (0, 1))),
            )
        return self._changes[key]

    def _place_of(self, file: InputFile) -> BatchPlace | None:
        folder = file.path.rpartition("/")[0]
        if folder not in self._places:
            self._places[folder] = BatchPlace.from_input(file.path)
        return self._places[folder]

    def _list_places(self, files: Iterable[InputFile]) -> list[BatchPlace]:
        return list(dict.fromkeys(place for file in files if (place := self._place_of(file))))

    def _is_unknown(self, file: InputFile) -> bool:
        place = self._place_of(file)
        return place is not None and self._find_contents(place) is None

    def _find_contents(self, place: BatchPlace) -> RawContents | None:
        if place not in self._contents:
            self._contents[place] = place.find_contents()
        return self._contents[place]

    def _load_contents(self, files: Iterable[InputFile]) -> list[RawContents]:
        return [each for place in self._list_places(files) if (each := self._find_contents(place))]

    def _list_paths(self, difference: InputDifference, side: int) -> set[str]:
        """Return the paths of the user's files behind all files of a side."""
        files = difference.sides(None)[side]
        plain = {file.raw.path for file in self._list_user_files(files)}
        return plain | {file.path for each in self._load_contents(files) for file in each.files}

    def _list_user_files(self, files: Iterable[InputFile]) -> list[UserFile]:
        """Return the files that are not prepared."""
        plain = [file for file in files if self._place_of(file) is None]
        copied = find_copied_files(file.path for file in plain)
        return [
            UserFile(file, copied.get(file.path) or RawFile(file.path, file.size_bytes, file.modified_ms))
            for file in plain
        ]


def _localize(change: SliceChange, zone: TimeZone | None) -> SliceChange:
    """Return a slice in the time of the windows; around a change of the clocks, it may be longer than before."""
    if zone is None:
        return change
    local = zone.local_span(Interval(change.start_ms, change.end_ms))
    return change._replace(start_ms=local.start_ms, end_ms=local.end_ms)


def _overlaps(change: SliceChange, reach: Interval) -> bool:
    return change.start_ms < reach.end_ms and change.end_ms > reach.start_ms


def _path_before(batches: BatchChanges, path: str) -> str | None:
    move = batches.moves.get(path)
    return move.path_before if move else None


def _find_renamed(removed: Sequence[UserFile], added: Sequence[UserFile]) -> dict[str, FileChange]:
    """Return the files that have another path than before, but the same size, times, and number of records."""
    paths = [{file.raw.path for file in side} for side in (removed, added)]
    gone = {file.content: file.raw.path for file in removed if file.raw.path not in paths[1] and file.input.rows}
    return {
        file.raw.path: FileChange(ChangeKind.RENAMED, gone.pop(file.content), file.input.rows)
        for file in added
        if file.raw.path not in paths[0] and file.content in gone
    }


@dataclass(frozen=True, slots=True)
class CopiesReach:
    """The time before and after a changed record, in ms of event time, in which other records may be its copies.

    A change of a record affects a copy only if the record comes before the copy in arrival order, with
    `deduplicate_keep` `last` if it comes after it.
    """

    before_ms: int = 0
    after_ms: int = 0

    @classmethod
    def of_changes(cls, source: Source, changed: Sequence[InputFile], others: Sequence[InputFile]) -> Self:
        """Return the reach of records of changed files among those of other files."""
        identity = source.identity
        if not identity.columns or not changed:
            return cls()
        is_first = identity.keep == "first"
        if source.arrival_time is None:
            return cls(0, identity.within_ms) if is_first else cls(identity.within_ms, 0)
        if any(BatchPlace.from_input(file.path) for file in changed):
            # Other records of the batch may be earlier or later.
            return cls(identity.within_ms, identity.within_ms)
        if not others:
            return cls()
        earlier, later = (others, changed) if is_first else (changed, others)
        last = [MAX_MS if file.max_arrival_ms is None else file.max_arrival_ms for file in earlier]
        first = [MIN_MS if file.min_arrival_ms is None else file.min_arrival_ms for file in later]
        return cls() if max(last) < min(first) else cls(identity.within_ms, identity.within_ms)

    def around(self, first_ms: int, last_ms: int) -> Interval:
        """Return the event times of copies of records between two instants, both included."""
        return Interval(first_ms - self.before_ms, last_ms + self.after_ms + 1)

    def toward(self, interval: Interval) -> Interval:
        """Return the event times of the changed records that may affect records of an interval."""
        return Interval(interval.start_ms - self.after_ms, interval.end_ms + self.before_ms)


def _true_positions(mask: Mask) -> list[int]:
    """Return the positions at which a mask is true."""
    positions: list[int] = np.flatnonzero(mask).tolist()
    return positions


def list_changed_records(
    definition: Definition, files: ChangedFiles, index: KeyIndex, reach: Interval | None
) -> list[ChangedRecords]:
    """Return the changed records of all files, of added ones only those that overlap `reach`."""
    counts = _count_changed(files)
    records: list[ChangedRecords] = []
    for file in files.added:
        records += _list_added_records(file, files.changes[file.raw.path].kind, definition, index, reach)
    for file in files.removed:
        records += _scan_removed_file(file, files.changes[file.raw.path].kind, index)
    # Of a file that was changed in place, only the whole number of records is known.
    counted = [
        replace(each, more=counts[each.file], counted_at=0) if each.file in counts else each for each in records
    ]
    return [*counted, *_list_prepared_records(definition, files, index, reach)]


def _count_changed(files: ChangedFiles) -> dict[str, int]:
    """Return how many more records each file has that was changed in place."""
    counts: dict[str, int] = defaultdict(int)
    for sign, side in ((1, files.added), (-1, files.removed)):
        for file in side:
            if files.changes[file.raw.path].kind is ChangeKind.CHANGED:
                counts[file.raw.path] += sign * file.input.rows
    return counts


def list_copies(
    definition: Definition, files: ChangedFiles, others: Iterable[InputFile], reach: CopiesReach
) -> list[ChangedRecords]:
    """Return the records of other files that may have become duplicates of an added record.

    They are grouped by key and slice of event time. A damaged file has none.
    """
    if reach == CopiesReach():
        return []
    ids = RecordIds(definition)
    for file in files.added:
        with suppress(UnreadableError):
            ids.add_file(file.input.path, file.raw.path)
    for prepared in files.prepared:
        with suppress(UnreadableError):
            ids.add_prepared_file(prepared.path, [_added_spans(change) for change in files.batches])
    if (span := ids.span()) is None:
        return []
    width_ms, _ = slice_ms(definition.window.spec())
    bounds: dict[tuple[str, str, int], tuple[int, int]] = {}
    for other in (other for other in (*others, *files.prepared) if other.may_hold(reach.around(*span))):
        with suppress(UnreadableError):
            for copy in ids.find_copies(other.path):
                place = (copy.file, copy.key, copy.at_ms // width_ms)
                first_ms, last_ms = bounds.get(place, (copy.at_ms, copy.at_ms))
                bounds[place] = (min(first_ms, copy.at_ms), max(last_ms, copy.at_ms))
    return [
        ChangedRecords(path, files.changes[path].kind, *between, 0, key, is_added=False)
        for (path, key, _), between in bounds.items()
    ]


def _added_spans(change: RawFileChange) -> RawSpans:
    spans = tuple(Interval(each.start_ms, each.end_ms) for each in change.slices if each.after)
    return RawSpans(change.path, change.raw_path, spans)


def _list_added_records(
    file: UserFile, change: ChangeKind, definition: Definition, index: KeyIndex, reach: Interval | None
) -> list[ChangedRecords]:
    """Return the records of an added file; of a damaged file only the bounds of its footer are known."""
    try:
        slices = index.load_slices(file.input)
    except UnreadableError:
        return [_records_of_any_key(file, change, None)]
    near = [part for part in slices if reach is None or reach.overlaps(Interval(part.first_ms, part.last_ms + 1))]
    return list(_list_added_slices(file.raw.path, change, near, definition, reach))


def _list_added_slices(
    path: str, change: ChangeKind, slices: Iterable[KeySlice], definition: Definition, reach: Interval | None
) -> Iterator[ChangedRecords]:
    """Yield added records.

    Of two copies of a record, the first to arrive counts. So an added record may replace one of another key.
    """
    may_replace = _may_copies_differ_in_key(definition)
    for part in slices:
        place = (path, change, part.first_ms, part.last_ms)
        yield ChangedRecords(*place, part.events, part.key, is_of_any_key=may_replace)
        if may_replace and reach is None:
            yield ChangedRecords(*place, 0, part.key, is_added=False, is_of_any_key=True)


def _may_copies_differ_in_key(definition: Definition) -> bool:
    """Return whether two records that count as copies can have different keys."""
    source = definition.source
    return bool(source.deduplicate_on) and not set(source.key) <= set(source.deduplicate_on)


def _scan_removed_file(file: UserFile, change: ChangeKind, index: KeyIndex) -> Iterator[ChangedRecords]:
    """Yield the records of a removed file from the key index; of an unread file, the bounds of its footer."""
    may_restore = _may_copies_differ_in_key(index.definition)
    slices = index.find_slices(file.input)
    if slices is None:
        yield _records_of_any_key(file, change, -file.input.rows if _is_of_one_day(file.input) else None)
        return
    for part in slices:
        place = (file.raw.path, change, part.first_ms, part.last_ms)
        yield ChangedRecords(*place, -part.events, part.key, is_added=False, is_of_any_key=may_restore)


def _records_of_any_key(file: UserFile, change: ChangeKind, more: int | None) -> ChangedRecords:
    span = _span_of(file.input)
    return ChangedRecords(file.raw.path, change, *span, more, is_added=False, is_of_any_key=True)


def _span_of(file: InputFile) -> tuple[int, int]:
    """Return the first and the last event time of a file; without bounds, the widest that can be computed with."""
    first_ms = -(2**62) if file.min_event_ms is None else file.min_event_ms
    last_ms = 2**62 if file.max_event_ms is None else file.max_event_ms
    return first_ms, last_ms


def _is_of_one_day(file: InputFile) -> bool:
    if file.min_event_ms is None or file.max_event_ms is None:
        return False
    return file.min_event_ms // DAY_MS == file.max_event_ms // DAY_MS


def _list_prepared_records(
    definition: Definition, files: ChangedFiles, index: KeyIndex, reach: Interval | None
) -> Iterator[ChangedRecords]:
    """Yield the records of prepared files in the slices that changed; the key index has their new keys."""
    if not files.batches:
        return
    raw_paths = {file.raw_path for file in files.batches}
    wanted = None if None in raw_paths else sorted(path for path in raw_paths if path is not None)
    parts = [part for prepared in files.prepared for part in index.load_slices(prepared, wanted)]
    parts.sort(key=lambda part: part.first_ms)
    slices_by_path: dict[str | None, list[KeySlice]] = defaultdict(list)
    for part in parts:
        slices_by_path[part.raw_path].append(part)
    slices_by_path[None] = parts  # records that do not name their file may be any of them
    spec = definition.window.spec()
    for file in files.batches:
        for change in _merge_slices(file.slices, *slice_ms(spec)):
            yield from _list_slice(file, change, slices_by_path[file.raw_path], definition, reach)


def _merge_slices(slices: Iterable[SliceChange], width_ms: int, offset_ms: int) -> Iterator[SliceChange]:
    """Yield one slice for those that begin in the same slice of the windows."""
    for _, group in groupby(slices, key=lambda change: (change.start_ms - offset_ms) // width_ms):
        first, *others = group
        yield first._replace(
            end_ms=others[-1].end_ms if others else first.end_ms,
            before=first.before + sum(each.before for each in others),
            after=first.after + sum(each.after for each in others),
        )


def _list_slice(
    file: RawFileChange,
    change: SliceChange,
    slices: Sequence[KeySlice],
    definition: Definition,
    reach: Interval | None,
) -> Iterator[ChangedRecords]:
    """Yield the records of a changed slice: those that it has now by key, and those that it had of any key."""
    more, last_ms = change.after - change.before, change.end_ms - 1
    width_ms, _ = slice_ms(definition.window.spec())
    low = bisect_left(slices, change.start_ms - width_ms, key=lambda part: part.first_ms)
    high = bisect_left(slices, change.end_ms, key=lambda part: part.first_ms)
    near = [
        replace(part, first_ms=max(part.first_ms, change.start_ms), last_ms=min(part.last_ms, last_ms))
        for part in slices[low:high]
        if part.last_ms >= change.start_ms
    ]
    for each in _list_added_slices(file.path, file.change, near, definition, reach):
        yield replace(each, more=more, counted_at=change.start_ms)
    if change.before:
        place = (file.path, file.change, change.start_ms, last_ms)
        yield ChangedRecords(*place, more, is_added=False, is_of_any_key=True, counted_at=change.start_ms)
