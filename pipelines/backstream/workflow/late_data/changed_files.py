"""Compare the current input files of a dataset with those that a run read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import numpy as np

from backstream.definition.model import Definition
from backstream.definition.source_section import Source
from backstream.eventtime.instants import MAX_MS, MIN_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.stale_windows import ChangedRecords, ChangeKind, slice_ms
from backstream.runs.plan import InputFile
from backstream.source.key_index import KeyIndex
from backstream.source.reader import UnreadableError
from backstream.source.record_ids import RecordIds
from backstream.source.time_columns import Longs
from backstream.workflow.late_data.affected_rows import Mask
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
class ChangedFiles:
    """The added and removed files that may hold events of a run; a file that changed may be in both."""

    added: tuple[InputFile, ...]
    removed: tuple[InputFile, ...]
    changes: Mapping[str, ChangeKind]

    @classmethod
    def from_inputs(
        cls, inputs: CurrentInputs, is_added: Mask, removed: Sequence[InputFile], reach: Interval | None
    ) -> Self:
        """Return the changed files that may hold events of `reach`; None: any event."""
        added_near = tuple(inputs.files[at] for at in true_positions(is_added & inputs.may_hold(reach)))
        removed_near = tuple(file for file in removed if file.rows and (reach is None or file.may_hold(reach)))
        # A file that is in both lists has changed, even if only one of its versions is near.
        added_paths = {inputs.files[at].path for at in true_positions(is_added)} if removed else set()
        removed_paths = {file.path for file in removed}
        changes = {
            file.path: ChangeKind.CHANGED if file.path in removed_paths else ChangeKind.NEW for file in added_near
        }
        changes |= {
            file.path: ChangeKind.CHANGED if file.path in added_paths else ChangeKind.REMOVED
            for file in removed_near
        }
        return cls(added_near, removed_near, changes)


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
        if not identity.columns or not changed or not others:
            return cls()
        is_first = identity.keep == "first"
        if source.arrival_time is None:
            return cls(0, identity.within_ms) if is_first else cls(identity.within_ms, 0)
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


def true_positions(mask: Mask) -> list[int]:
    """Return the positions at which a mask is true."""
    positions: list[int] = np.flatnonzero(mask).tolist()
    return positions


def list_changed_records(
    definition: Definition, files: ChangedFiles, index: KeyIndex, reach: Interval | None
) -> list[ChangedRecords]:
    """Return the records of all added and removed files, of added files only those that overlap `reach`."""
    records: list[ChangedRecords] = []
    for file in files.added:
        records += _list_added_records(file, files.changes[file.path], definition, index, reach)
    for file in files.removed:
        records += _scan_removed_file(file, files.changes[file.path], index)
    return records


def list_copies(
    definition: Definition, files: ChangedFiles, others: Iterable[InputFile], reach: CopiesReach
) -> list[ChangedRecords]:
    """Return the records of other files that may have become duplicates of a record of an added file.

    They are grouped by key and slice of event time. A damaged file has none.
    """
    if reach == CopiesReach() or not files.added:
        return []
    ids = RecordIds(definition)
    for file in files.added:
        with suppress(UnreadableError):
            ids.add_file(file.path)
    spans = [span_of(file) for file in files.added]
    start_ms, end_ms = min(first for first, _ in spans), max(last for _, last in spans)
    near = [file for file in others if file.may_hold(reach.around(start_ms, end_ms))]
    width_ms, _ = slice_ms(definition.window.spec())
    bounds: dict[tuple[str, str, int], tuple[int, int]] = {}
    for file in near:
        with suppress(UnreadableError):
            for copy in ids.find_copies(file.path):
                place = (copy.file, copy.key, copy.at_ms // width_ms)
                first_ms, last_ms = bounds.get(place, (copy.at_ms, copy.at_ms))
                bounds[place] = (min(first_ms, copy.at_ms), max(last_ms, copy.at_ms))
    return [
        ChangedRecords(path, files.changes[path], *between, 0, key, is_added=False)
        for (path, key, _), between in bounds.items()
    ]


def _list_added_records(
    file: InputFile, change: ChangeKind, definition: Definition, index: KeyIndex, reach: Interval | None
) -> list[ChangedRecords]:
    """Return the records of an added file; of a damaged file only the bounds of its footer are known."""
    try:
        return list(_scan_added_file(file, change, definition, index, reach))
    except UnreadableError:
        return [_records_of_any_key(file, change)]


def _scan_added_file(
    file: InputFile, change: ChangeKind, definition: Definition, index: KeyIndex, reach: Interval | None
) -> Iterator[ChangedRecords]:
    """Yield the records of an added file by key and slice.

    Of two copies of a record, the first to arrive counts. So an added record may replace one of another key.
    """
    may_replace = _may_copies_differ_in_key(definition)
    for part in index.load_slices(file):
        if reach is None or reach.overlaps(Interval(part.first_ms, part.last_ms + 1)):
            place = (file.path, change, part.first_ms, part.last_ms)
            yield ChangedRecords(*place, part.events, part.key, is_of_any_key=may_replace)
            if may_replace and reach is None:
                yield ChangedRecords(*place, 0, part.key, is_added=False, is_of_any_key=True)


def _may_copies_differ_in_key(definition: Definition) -> bool:
    """Return whether two records that count as copies can have different keys."""
    source = definition.source
    return bool(source.deduplicate_on) and not set(source.key) <= set(source.deduplicate_on)


def _scan_removed_file(file: InputFile, change: ChangeKind, index: KeyIndex) -> Iterator[ChangedRecords]:
    """Yield the records of a removed file from the key index; of an unread file, the bounds of its footer."""
    may_restore = _may_copies_differ_in_key(index.definition)
    slices = index.find_slices(file)
    if slices is None:
        yield _records_of_any_key(file, change)
        return
    for part in slices:
        place = (file.path, change, part.first_ms, part.last_ms)
        yield ChangedRecords(*place, part.events, part.key, is_added=False, is_of_any_key=may_restore)


def _records_of_any_key(file: InputFile, change: ChangeKind) -> ChangedRecords:
    return ChangedRecords(file.path, change, *span_of(file), is_added=False, is_of_any_key=True)


def span_of(file: InputFile) -> tuple[int, int]:
    """Return the first and the last event time of a file; without bounds, the widest that can be computed with."""
    first_ms = -(2**62) if file.min_event_ms is None else file.min_event_ms
    last_ms = 2**62 if file.max_event_ms is None else file.max_event_ms
    return first_ms, last_ms
