"""List the files that the snapshots of a table appended, as a streaming job reads them.

A job of Structured Streaming reads each file as it was appended. Later deletes, overwrites, and compactions do not
change what it has read, so they do not change the records of a replay.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation, Snapshot

from backstream.lake.snapshots import list_ancestors, snapshot_version
from backstream.lake.source_tables import (
    SourceTableState,
    TableFiles,
    describe_data_file,
    require_formats,
    require_snapshot,
)
from backstream.source.raw_files import path_in_records
from backstream.structured_streaming.table_appends import AppendedFile, TableAppends


def list_appended_files(table: Table, name: str, last: SourceTableState | None, where: str) -> TableFiles:
    """Return the files that the snapshots of a table appended, and their places.

    Files of expired snapshots stay, if an earlier call has listed them.

    Args:
        table: the table.
        name: its name, with that of the catalog.
        last: the state of which prepared files exist; None: there are none.
        where: the definition, for messages.

    Raises:
        PlanError: when the table has no snapshot, or a file that cannot be read.
    """
    current, uuid = require_snapshot(table, name, where), str(table.metadata.table_uuid)
    retained = {snapshot.snapshot_id: snapshot for snapshot in [*list_ancestors(table)][::-1]}
    first = next(iter(retained.values()))
    added = {number: [*_list_files(table, snapshot, is_own=True)] for number, snapshot in retained.items()}
    appended = {number: files if _is_append(retained[number]) else [] for number, files in added.items()}
    former = last if last is not None and last.table_uuid == uuid else None
    was_listed = former is not None and former.snapshot_id in {*retained, first.parent_snapshot_id}
    older = {} if was_listed else _find_older(table, current, retained)
    own = [*older, *(file for files in appended.values() for _, file in files)]
    scans = {describe_data_file(file): FileScanTask(file) for file in own}
    require_formats(scans.values(), name, where)
    skipped = {file.file_path for files in added.values() for _, file in files}
    kept = [file for file in (former.files if former else ()) if file.path not in skipped]
    files = tuple(sorted({*scans, *kept}))
    state = SourceTableState(name, uuid, current.snapshot_id, current.timestamp_ms, files)
    is_first = (
        first.parent_snapshot_id is None and snapshot_version(first) <= 1
    )  # 0 in the first version of Iceberg
    appends = TableAppends(
        name,
        {number: _places_of(listed) for number, listed in appended.items()},
        {path_in_records(file.file_path): number for file, number in older.items()},
        is_whole=was_listed or is_first,
        list_whole=lambda number: _places_of(_list_files(table, retained[number], is_own=False)),
    )
    return TableFiles(state, table, scans, appends)


def _is_append(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and snapshot.summary.operation is Operation.APPEND


def _list_files(table: Table, snapshot: Snapshot, *, is_own: bool) -> Iterator[tuple[int, DataFile]]:
    """Yield the files that a snapshot added, or all its files, with the positions that Spark gives them.

    Each manifest begins at the number of files in those before it, also of files that other snapshots added.
    """
    first, number = 0, snapshot.snapshot_id
    for manifest in snapshot.manifests(table.io):
        if manifest.content != ManifestContent.DATA or (is_own and manifest.added_snapshot_id != number):
            continue
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        wanted = (
            entry.data_file
            for entry in entries
            if not is_own or (entry.snapshot_id == number and entry.status == ManifestEntryStatus.ADDED)
        )
        yield from enumerate(wanted, first)
        first += (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def _find_older(table: Table, current: Snapshot, retained: Container[int]) -> dict[DataFile, int]:
    """Return the files of a snapshot that expired snapshots added, with these."""
    entries = (
        entry
        for manifest in current.manifests(table.io)
        if manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    )
    return {entry.data_file: entry.snapshot_id or 0 for entry in entries if entry.snapshot_id not in retained}


def _places_of(files: Iterable[tuple[int, DataFile]]) -> list[AppendedFile]:
    return [AppendedFile(position, path_in_records(file.file_path)) for position, file in files]
