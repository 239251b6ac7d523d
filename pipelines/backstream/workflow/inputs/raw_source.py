"""List the raw files of a source, wherever they are, and copy those that are not local."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from backstream.definition.columns import source_columns
from backstream.definition.model import Definition
from backstream.definition.prepared import (
    copies_folder,
    list_paths,
    prepared_folder,
    reads_appends,
    reason_to_convert,
    reason_to_copy,
    transformation,
)
from backstream.errors import PlanError, SpecError, StorageError
from backstream.runs.home import Home
from backstream.runs.input_files import FileList
from backstream.source.copies import CopyFolder, FetchResult, FetchTask
from backstream.source.prepared import PreparedSource, SourceListing
from backstream.source.raw_files import RawFile, list_raw_files, list_source
from backstream.source.wildcards import split_pattern
from backstream.storage.object_stores import StoreAccess
from backstream.workflow.runners import Runner

if TYPE_CHECKING:
    from backstream.chunks.preparation.settings import Preparation
    from backstream.lake.source_tables import SourceTableState, TableFiles
    from backstream.structured_streaming.table_appends import TableAppends


@dataclass(frozen=True, slots=True)
class RawSource:
    """The raw files of a source; `table` describes them if they are those of an Iceberg table."""

    definition: Definition
    where: str
    files: Sequence[RawFile]
    table: TableFiles | None = None
    ignored: Mapping[str, FileList] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def open(cls, definition: Definition, home: Home, where: str) -> Iterator[Self]:
        """List the files; a catalog is open during the block.

        Raises:
            SpecError: when the table or its catalog does not exist.
            PlanError: when the source has no files.
            StorageError: when an object store cannot be read.
        """
        if definition.source.format != "iceberg":
            listing = list_source(definition.source, where)
            yield cls(definition, where, listing.files, ignored=listing.ignored)
            return
        from backstream.lake.appended_files import list_appended_files
        from backstream.lake.source_tables import list_table_files, open_source_table

        name, last = str(definition.source.path), _load_table_state(definition, home)
        with open_source_table(name, home, where) as table:
            if reads_appends(definition):
                listed = list_appended_files(table, name, last, where)
            else:
                listed = list_table_files(table, definition.source, last, where)
            yield cls(definition, where, listed.state.source_files(), listed)

    @property
    def appends(self) -> TableAppends | None:
        """The appended files of a table, if a streaming job read it; None for other sources."""
        return self.table.appends if self.table else None

    @property
    def is_local(self) -> bool:
        """Return whether Spark reads the files where they are."""
        return reason_to_copy(self.definition.source) is None

    def require_columns(self) -> None:
        """Check that a table has the columns of the definition; those of converted sources may be computed.

        A file of a table may lack a column, and then its values are null. A column that the table itself lacks was
        renamed or removed.

        Raises:
            SpecError: with the missing columns, and those of the table.
        """
        if self.table is None or reason_to_convert(self.definition) is not None:
            return
        names = self.table.column_names
        if missing := [name for name in source_columns(self.definition) if name not in names]:
            source = self.definition.source
            msg = (
                f"table {source.path} has no column {', '.join(map(repr, missing))} ({self.where}, source.path)\n"
                f"  its columns: {', '.join(names)}\n\n"
                "hint: if a column was renamed, write its new name into the definition"
            )
            raise SpecError(msg)

    def settle(self, find_new_files: Callable[[Sequence[RawFile]], Iterable[RawFile]]) -> Self:
        """Return the source with the current files of a compaction, if the files that it replaced cannot be read.

        Args:
            find_new_files: returns the files that must be read.
        """
        source = self
        while source.table is not None:
            state = source.table.state.without(source.table.find_unreadable(find_new_files(source.files)))
            if state == source.table.state:
                break
            table = replace(source.table, state=state)
            source = replace(source, table=table, files=table.state.source_files())
        return source

    def write_state(self, folder: Path) -> None:
        """Write the state of the table, of which copies exist now."""
        if self.table is not None:
            self.table.state.write(folder)

    def fetch(
        self,
        files: Sequence[RawFile],
        target_of: Callable[[RawFile], Path],
        columns: Sequence[str] | None,
        runner: Runner,
    ) -> None:
        """Copy raw files to local paths: those of a table by hard links if possible, others in native tasks.

        Raises:
            PlanError: when a file was removed.
            StorageError: when a file cannot be copied.
        """
        needed = None if columns is None else tuple(columns)
        for folder in {target_of(file).parent for file in files}:
            folder.mkdir(parents=True, exist_ok=True)
        access = StoreAccess.from_environment()
        tasks = [
            FetchTask(
                file, str(target_of(file)), access, needed, self.table.table_file(file) if self.table else None
            )
            for file in files
        ]
        if remaining := [task for task in tasks if not _link(task)]:
            from backstream.chunks.fetch import fetch_files

            self._require_fetched(fetch_files(runner.tasks(), remaining))

    def _require_fetched(self, results: Iterable[FetchResult]) -> None:
        for result in results:
            if result.is_deleted and self.table is not None:
                raise self.table.missing_file_error(result.path)
            if result.error:
                msg = f"cannot copy input file {result.path}: {result.error} ({self.where}, source.path)"
                raise (PlanError if result.is_deleted else StorageError)(msg)

    def preparation(self, local: LocalFiles, side_inputs: Mapping[str, Any]) -> Preparation:
        """Return the settings by which Spark prepares local files of the source."""
        from backstream.chunks.preparation.settings import Preparation

        return Preparation(
            local.definition,
            self.where,
            transformation(self.definition.source),
            fetched=local.folder,
            addresses=local.addresses,
            side_inputs=side_inputs,
        )

    @contextmanager
    def local_files(self, files: Sequence[RawFile], folder: Path, runner: Runner) -> Iterator[LocalFiles]:
        """Yield files that Spark can read during the block; copies are removed at its end."""
        if self.is_local:
            yield LocalFiles(self.definition, {file: file.path for file in files})
            return
        scratch = folder.with_name(f"{folder.name}-fetched-{uuid.uuid4().hex[:12]}")
        try:
            self.fetch(files, lambda file: scratch / _local_name(file.path), None, runner)
            roots = tuple(
                str(scratch / _local_name(split_pattern(path)[0])) for path in self.definition.source.paths
            )
            source = self.definition.source.model_copy(update={"path": roots})
            paths = {file: str(scratch / _local_name(file.path)) for file in files}
            yield LocalFiles(self.definition.model_copy(update={"source": source}), paths, scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def remove_scratch(self, folder: Path) -> None:
        """Remove the copies of killed processes. The caller holds the lock of the folder."""
        for scratch in folder.parent.glob(f"{folder.name}-fetched-*"):
            shutil.rmtree(scratch, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """Raw files on the disk: the definition with their folder as its source, and the path of each."""

    definition: Definition
    paths: Mapping[RawFile, str]
    folder: Path | None = None

    @property
    def addresses(self) -> dict[str, str]:
        """The addresses of the raw files by their paths."""
        return {path: file.path for file, path in self.paths.items()}


def copy_source(
    definition: Definition, home: Home, where: str, runner: Runner, note: Callable[[str], None]
) -> int | None:
    """Copy the new files of a source that both engines can read once they are local.

    Returns:
        The number of new copies; None if nothing changed.
    """
    copies = CopyFolder(copies_folder(definition, home))
    with PreparedSource(copies.folder).lock(), RawSource.open(definition, home, where) as listed:
        listed.require_columns()
        source = listed.settle(copies.find_new_files)
        new_files, others = copies.find_new_files(source.files), copies.find_others(source.files)
        if new_files:
            size_mb = sum(file.size_bytes for file in new_files) / 1e6
            number = "1 new file" if len(new_files) == 1 else f"{len(new_files):,} new files"
            note(f"copying {number} of {definition.name}, {size_mb:,.1f} MB")
            source.fetch(new_files, copies.path_of, source_columns(definition), runner)
        if new_files or others:
            copies.write_raw_files(source.files)
        copies.remove(others)
        SourceListing(ignored=source.ignored).write(copies.folder)
        source.write_state(copies.folder)
    return len(new_files) if new_files or others else None


def must_convert(definition: Definition, home: Home, where: str) -> bool:
    """Return whether Parquet files in an object store need more than a copy; the first file decides."""
    if definition.source.format != "parquet" or copies_folder(definition, home).is_dir():
        return False
    from backstream.source.in_place import is_readable_in_place

    first = list_raw_files(definition.source, where)[0]
    filesystem, path = StoreAccess.from_environment().open(first.path)
    with filesystem.open_input_file(path) as stream:
        return not is_readable_in_place(first.path, definition.source, list_paths(definition), stream)


def _load_table_state(definition: Definition, home: Home) -> SourceTableState | None:
    """Return the snapshot of which a source has copies or prepared files; None for other sources."""
    if definition.source.format != "iceberg":
        return None
    from backstream.definition.prepared import is_copied
    from backstream.lake.source_tables import SourceTableState

    folder = copies_folder if is_copied(definition, home) else prepared_folder
    return SourceTableState.load(folder(definition, home))


def _link(task: FetchTask) -> bool:
    if task.table_file is None:
        return False
    from backstream.source.table_files import link_table_file

    return link_table_file(task.table_file, task.columns, Path(task.target))


def _local_name(address: str) -> str:
    """Return the path of an address below a folder: its scheme, and the rest."""
    scheme, separator, rest = address.partition("://")
    return f"{scheme}/{rest.lstrip('/')}" if separator else f"file/{address.lstrip('/')}"
