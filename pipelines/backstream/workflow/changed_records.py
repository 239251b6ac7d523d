"""List the records of added and removed input files, by key and interval."""

from __future__ import annotations

from collections.abc import Iterator

from backstream.definition.model import Definition
from backstream.eventtime.intervals import Interval
from backstream.eventtime.stale_windows import ChangedRecords, ChangeKind
from backstream.runs.plan import InputFile
from backstream.source.key_index import KeyIndex
from backstream.source.reader import UnreadableError
from backstream.workflow.changed_files import ChangedFiles


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
