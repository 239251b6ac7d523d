"""Read the data files of an Iceberg table that is a source, and follow its changes from snapshot to snapshot.

A compaction replaces files by others with the same records, also if these are only files that delete rows. Copies
of the replaced files stay valid, so neither they nor the published days become stale.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntryStatus
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of
from pyiceberg.utils.config import Config

from backstream.definition.source_section import Source
from backstream.errors import CatalogError, LedgerError, PlanError, SpecError
from backstream.lake.catalog import open_catalog_for_reading
from backstream.lake.catalog_address import CATALOG_NAME
from backstream.lake.necessary_filter import necessary_filter
from backstream.runs.home import Home
from backstream.source.raw_files import RawFile
from backstream.source.table_files import TableFile
from backstream.storage.files import load_json, write_json
from backstream.structured_streaming.table_appends import TableAppends

_STATE = "_snapshot.json"
_FORMATS = (FileFormat.PARQUET, FileFormat.ORC)
_UNKNOWN_TYPE = re.compile(r"Unsupported field type: '?([\w()]+)")
_CONFIGURATION_HINT = (
    "hint: configure it in ~/.pyiceberg.yaml or by variables such as PYICEBERG_CATALOG__{name}__URI;"
    f" the catalog of backstream is {CATALOG_NAME!r}"
)


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files with the same records: those with copies, and those that replaced them in the table."""

    copied: tuple[RawFile, ...]
    current: tuple[RawFile, ...]


@dataclass(frozen=True, slots=True)
class SourceTableState:
    """The files of a snapshot; `groups` are those that a compaction wrote, with the files that they replaced."""

    table: str
    table_uuid: str
    snapshot_id: int
    committed_ms: int
    files: tuple[RawFile, ...]
    groups: tuple[FileGroup, ...] = ()

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Return the state that was last written into a folder; None if there is none."""
        try:
            content = load_json(folder / _STATE, "state of a table")
        except LedgerError:
            return None
        files = tuple(RawFile(*values) for values in content.pop("files"))
        groups = tuple(
            FileGroup(*(tuple(RawFile(*values) for values in members) for members in group))
            for group in content.pop("groups")
        )
        return cls(**content, files=files, groups=groups)

    def write(self, folder: Path) -> None:
        """Write the state into a folder."""
        content = asdict(self)
        content["files"] = [list(asdict(file).values()) for file in self.files]
        content["groups"] = [
            [[list(asdict(file).values()) for file in files] for files in (group.copied, group.current)]
            for group in self.groups
        ]
        write_json(folder / _STATE, content)

    def source_files(self) -> list[RawFile]:
        """Return the files that hold the records of the snapshot: a compacted file counts as those it replaced."""
        replaced = {file.path for group in self.groups for file in group.current}
        copied = [file for group in self.groups for file in group.copied]
        return sorted([*copied, *(file for file in self.files if file.path not in replaced)])

    def without(self, files: Collection[RawFile]) -> Self:
        """Return the state without the groups of these files; their current files are read instead."""
        kept = tuple(group for group in self.groups if not set(group.copied).intersection(files))
        return replace(self, groups=kept)


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of the current snapshot of a table, with what PyIceberg needs to read each.

    For a streaming job that reads the table, they are those that it appended, and `appends` has their places.
    """

    state: SourceTableState
    table: Table
    scans: Mapping[RawFile, FileScanTask]
    appends: TableAppends | None = None

    @property
    def column_names(self) -> list[str]:
        """The top-level columns of the current schema."""
        return [field.name for field in self.table.schema().fields]

    def table_file(self, file: RawFile) -> TableFile:
        """Return the description of a file for tasks; the metadata is that of the table without its history."""
        history: dict[str, Any] = {
            "snapshots": [],
            "snapshot_log": [],
            "metadata_log": [],
            "refs": {},
            "current_snapshot_id": None,
        }
        return TableFile(self.scans[file], self.table.metadata.model_copy(update=history), self.table.io)

    def find_unreadable(self, files: Iterable[RawFile]) -> list[RawFile]:
        """Return the files that are not in the snapshot, and that no longer exist in older ones."""
        former = set(files).difference(self.state.files)
        return [
            file for file in former if file not in self.scans or not self.table.io.new_input(file.path).exists()
        ]

    def missing_file_error(self, path: str) -> PlanError:
        """Return the error for a file that was removed after the snapshot was loaded."""
        return PlanError(
            f"cannot read snapshot {self.state.snapshot_id} of table {self.state.table}: a data file is missing\n"
            f"  {path}\n\n"
            "hint: the snapshot may have expired meanwhile; run the command again, which reads the current one"
        )


@contextmanager
def open_source_table(name: str, home: Home, where: str) -> Iterator[Table]:
    """Open the table of a source by its name, `catalog.namespace.table`.

    Raises:
        SpecError: when PyIceberg has no configuration of the catalog, or there is no such table.
        PlanError: when PyIceberg does not know a type of the table.
        CatalogError: when the catalog cannot be reached.
    """
    catalog_name, _, identifier = name.partition(".")
    if catalog_name == CATALOG_NAME:
        with open_catalog_for_reading(home) as own_catalog:
            yield _load(own_catalog, identifier, name, where)
        return
    catalog = _configured_catalog(catalog_name, where)
    try:
        table = _load(catalog, identifier, name, where)
    except SpecError:
        raise
    except Exception as error:  # each kind of catalog raises errors of its own
        if isinstance(error.__cause__, ValidationError):
            raise _metadata_error(name, error.__cause__, where) from error
        msg = f"cannot read table {name} from its catalog: {_first_line(error)} ({where}, source.path)"
        raise CatalogError(msg) from error
    try:
        yield table
    finally:
        catalog.close()


def table_bytes(name: str, home: Home, where: str) -> int:
    """Return the size of the files of a table in bytes, by its newest snapshot.

    Raises:
        SpecError, PlanError, CatalogError: as `open_source_table` does.
    """
    with open_source_table(name, home, where) as table:
        current = table.current_snapshot()
        return int(current.summary.get("total-files-size") or 0) if current and current.summary else 0


def _metadata_error(name: str, error: ValidationError, where: str) -> PlanError:
    """Return the error for the metadata of a table that PyIceberg does not understand."""
    finding, reader = error.errors()[0], f"PyIceberg {version('pyiceberg')}"
    if kind := _UNKNOWN_TYPE.search(finding["msg"]):
        numbers = [part + 1 for part in finding["loc"] if isinstance(part, int)]
        return PlanError(
            f"table {name} has a column of the type {kind[1]}, which {reader} cannot read:"
            f" column {numbers[-1]} ({where}, source.path)\n\n"
            "hint: read a table without this column, or with another type of it"
        )
    return PlanError(
        f"{reader} cannot read the metadata of table {name}: {finding['msg']}"
        f" in {'.'.join(map(str, finding['loc']))} ({where}, source.path)"
    )


def _configured_catalog(name: str, where: str) -> Catalog:
    properties = Config().get_catalog_config(name)  # PyIceberg itself reads it only once
    if not properties:
        hint = _CONFIGURATION_HINT.format(name=name.upper())
        msg = f"PyIceberg has no configuration of the catalog {name!r} ({where}, source.path)\n\n{hint}"
        raise SpecError(msg)
    try:
        return load_catalog(name, **{key: str(value) for key, value in properties.items()})
    except Exception as error:
        msg = f"cannot open the catalog {name!r}: {_first_line(error)} ({where}, source.path)"
        raise CatalogError(msg) from error


def _load(catalog: Catalog, identifier: str, name: str, where: str) -> Table:
    try:
        return catalog.load_table(identifier)
    except (NoSuchTableError, NoSuchNamespaceError):
        msg = f"no table {name} in its catalog ({where}, source.path)"
        raise SpecError(msg) from None


def list_table_files(table: Table, source: Source, last: SourceTableState | None, where: str) -> TableFiles:
    """Return the files of the current snapshot of a table that may have records of a source.

    Args:
        table: the table.
        source: the source; partitions and files that cannot meet its condition are left out.
        last: the state of which copies exist; None: there are none.
        where: the definition, for messages.

    Raises:
        PlanError: when the table has no snapshot, has files of a format that PyIceberg cannot read, or deletes
            rows in such a way.
    """
    name = str(source.path)
    snapshot = require_snapshot(table, name, where)
    scans = _plan_files(table, snapshot, source, where)
    require_formats(scans.values(), name, where)
    uuid = str(table.metadata.table_uuid)
    state = SourceTableState(name, uuid, snapshot.snapshot_id, snapshot.timestamp_ms, tuple(sorted(scans)))
    if last is None or last.table_uuid != uuid:
        return TableFiles(state, table, scans)
    history = _History.from_state(last)
    history.follow(table, snapshot, state.files)
    groups = tuple(group for group in history.groups() if {*state.files}.issuperset(group.current))
    return TableFiles(replace(state, groups=groups), table, {**history.scans, **scans})


def require_snapshot(table: Table, name: str, where: str) -> Snapshot:
    """Return the current snapshot of a table.

    Raises:
        PlanError: when there is none.
    """
    snapshot = table.current_snapshot()
    if snapshot is None:
        msg = f"table {name} has no snapshot, and so no records ({where}, source.path)"
        raise PlanError(msg)
    return snapshot


def require_formats(scans: Iterable[FileScanTask], name: str, where: str) -> None:
    """Check that the data files of a table can be read.

    Raises:
        PlanError: when a file has a format that PyIceberg cannot read.
    """
    if other := next((scan.file for scan in scans if scan.file.file_format not in _FORMATS), None):
        msg = (
            f"table {name} has data files of the format {other.file_format.value}, and only Parquet and ORC are"
            f" read ({where}, source.path)\n  {other.file_path}\n\n"
            "hint: set its property write.format.default to parquet, and rewrite the files, e.g., with Spark's"
            " procedure rewrite_data_files and the option rewrite-all"
        )
        raise PlanError(msg)


def _plan_files(table: Table, snapshot: Snapshot, source: Source, where: str) -> dict[RawFile, FileScanTask]:
    try:
        row_filter = necessary_filter(source, table.schema())
        tasks = list(table.scan(row_filter, snapshot_id=snapshot.snapshot_id).plan_files())
    except (ValueError, NotImplementedError) as error:
        if "equality deletes" not in str(error):
            raise
        msg = (
            f"table {source.path} has equality deletes, which PyIceberg cannot read ({where}, source.path)\n"
            f"  snapshot {snapshot.snapshot_id}\n\n"
            "hint: compact the table, for example with Spark's procedure rewrite_data_files"
        )
        raise PlanError(msg) from error
    return {describe_data_file(task.file, task.delete_files): task for task in tasks}


def describe_data_file(file: DataFile, deletes: Iterable[DataFile] = ()) -> RawFile:
    """Return a data file as a raw file; its content never changes, but rows may be deleted from it."""
    paths = sorted(f"{delete.file_path} {delete.file_size_in_bytes}" for delete in deletes)
    identity = hashlib.sha256("\n".join(paths).encode()).hexdigest()[:16] if paths else ""
    return RawFile(file.file_path, file.file_size_in_bytes, 0, identity)


@dataclass(slots=True)
class _History:
    """The groups of files between two snapshots; `known` are all files by path."""

    last: SourceTableState
    known: dict[str, RawFile]
    group_by_path: dict[str, FileGroup]
    scans: dict[RawFile, FileScanTask] = field(default_factory=dict)

    @classmethod
    def from_state(cls, last: SourceTableState) -> Self:
        groups = {file.path: group for group in last.groups for file in group.current}
        return cls(last, {file.path: file for file in last.files}, groups)

    def groups(self) -> list[FileGroup]:
        """Return each group once."""
        return list(dict.fromkeys(self.group_by_path.values()))

    def follow(self, table: Table, current: Snapshot, files: Sequence[RawFile]) -> None:
        """Apply the snapshots since the last one; none if the last one is no ancestor, or a snapshot expired.

        Args:
            table: the table.
            current: its current snapshot.
            files: the files of that snapshot.
        """
        newer: list[Snapshot] = []
        for snapshot in ancestors_of(current, table.metadata):
            if snapshot.snapshot_id == self.last.snapshot_id:
                break
            newer.append(snapshot)
        else:
            return
        are_same_rows = True
        for snapshot in reversed(newer):
            changes = _Changes.from_snapshot(table, snapshot)
            if changes.has_new_deletes and not changes.is_replacement_of_deletes:
                return  # the files of a later compaction may lack rows of the files that they replace
            are_same_rows &= changes.is_replacement or not changes.has_removed_deletes
            self._apply(changes)
        if are_same_rows:
            for file in files:
                self._keep_rows(file)

    def _keep_rows(self, file: RawFile) -> None:
        """Take a file for the one that it was before other files replaced those that delete its rows."""
        if (known := self.known.get(file.path)) is None or known == file or not (known.identity and file.identity):
            return
        group = self._group(file.path)
        current = tuple(file if each.path == file.path else each for each in group.current)
        self.group_by_path |= {each.path: FileGroup(group.copied, current) for each in current}

    def _apply(self, changes: _Changes) -> None:
        for file in changes.added:
            described = describe_data_file(file)
            self.known.setdefault(file.file_path, described)
            self.scans[described] = FileScanTask(file)
        if changes.is_replacement and changes.added:
            self._merge(changes)
            return
        for path in changes.removed:
            self._dissolve(path)

    def _merge(self, changes: _Changes) -> None:
        """Merge the groups of the removed files. Unknown files have no record that meets the condition."""
        groups = list(dict.fromkeys(self._group(path) for path in changes.removed if path in self.known))
        if not groups:
            return
        kept = {file for group in groups for file in group.current if file.path not in changes.removed}
        current = tuple(sorted(kept.union(map(describe_data_file, changes.added))))
        copied = tuple(sorted({file for group in groups for file in group.copied}))
        for path in changes.removed:
            self.group_by_path.pop(path, None)
        self.group_by_path |= {file.path: FileGroup(copied, current) for file in current}

    def _group(self, path: str) -> FileGroup:
        return self.group_by_path.get(path) or FileGroup((self.known[path],), (self.known[path],))

    def _dissolve(self, path: str) -> None:
        """Forget a group of which a file was removed, because it is unknown which records the file had."""
        if group := self.group_by_path.get(path):
            for member in group.current:
                del self.group_by_path[member.path]


@dataclass(frozen=True, slots=True)
class _Changes:
    """The data files that a snapshot added and removed, and whether it added or removed row-level deletes."""

    is_replacement: bool
    added: tuple[DataFile, ...]
    removed: tuple[str, ...]
    has_new_deletes: bool
    has_removed_deletes: bool

    @property
    def is_replacement_of_deletes(self) -> bool:
        """True if only files that delete rows were replaced, so that no row has changed."""
        return self.is_replacement and not self.added and not self.removed

    @classmethod
    def from_snapshot(cls, table: Table, snapshot: Snapshot) -> Self:
        entries = [
            entry
            for manifest in snapshot.manifests(table.io)
            if manifest.added_snapshot_id == snapshot.snapshot_id
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            if entry.snapshot_id == snapshot.snapshot_id and entry.status != ManifestEntryStatus.EXISTING
        ]
        added = [entry.data_file for entry in entries if entry.status == ManifestEntryStatus.ADDED]
        removed = [entry.data_file for entry in entries if entry.status == ManifestEntryStatus.DELETED]
        return cls(
            snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE,
            tuple(file for file in added if file.content == DataFileContent.DATA),
            tuple(file.file_path for file in removed if file.content == DataFileContent.DATA),
            any(file.content != DataFileContent.DATA for file in added),
            any(file.content != DataFileContent.DATA for file in removed),
        )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
