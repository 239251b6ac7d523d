"""Compare the current input files of a dataset with those that a run read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from backstream.definition.model import Definition
from backstream.definition.source_section import Source
from backstream.eventtime.instants import MAX_MS, MIN_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.stale_windows import ChangedRecords, ChangeKind
from backstream.runs.plan import InputFile
from backstream.source.key_index import KeyIndex
from backstream.source.reader import UnreadableError
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
    """How far before and after a changed record, in ms of event time, other records may be its copies.

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

    def around(self, first_ms: int, last_ms: int) -> tuple[int, int]:
        """Return the first and the last event time of copies of records between two instants."""
        return first_ms - self.before_ms, last_ms + self.after_ms

    def toward(self, interval: Interval) -> Interval:
        """Return the event times of the changed records that may affect records of an interval."""
        return Interval(interval.start_ms - self.after_ms, interval.end_ms + self.before_ms)


def true_positions(mask: Mask) -> list[int]:
    """Return the positions at which a mask is true."""
    positions: list[int] = np.flatnonzero(mask).tolist()
    return positions


def list_changed_records(
    definition: Definition, files: ChangedFiles, index: KeyIndex, reach: Interval | None, copies: CopiesReach
) -> list[ChangedRecords]:
    """Return the records of all added and removed files, of added files only those that overlap `reach`.

    The records that may be copies of an added one are listed, too: they can become duplicates.
    """
    records: list[ChangedRecords] = []
    for file in files.added:
        added = _list_added_records(file, files.changes[file.path], definition, index, reach)
        records += added
        if copies != CopiesReach():
            records += (_copies_of(change, copies) for change in added)
    for file in files.removed:
        records += _scan_removed_file(file, files.changes[file.path], index)
    return records


def _copies_of(change: ChangedRecords, copies: CopiesReach) -> ChangedRecords:
    first_ms, last_ms = copies.around(change.first_ms, change.last_ms)
    return replace(change, first_ms=first_ms, last_ms=last_ms, events=0, is_added=False)


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
    first_ms = -(2**62) if file.min_event_ms is None else file.min_event_ms
    last_ms = 2**62 if file.max_event_ms is None else file.max_event_ms
    return ChangedRecords(file.path, change, first_ms, last_ms, is_added=False, is_of_any_key=True)
