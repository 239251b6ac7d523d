"""Give a task local files in place of those in an object store: inputs are downloaded, and results are uploaded.

DuckDB reads and writes local files only. Files that are on a disk are used where they are.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from backstream.native.staged_files import describe_staged_file
from backstream.native.task import TaskOutput, WrittenFiles
from backstream.storage.columns import copy_columns
from backstream.storage.stores import Stores, is_in_store

_AT_ONCE = 4
"""The number of files that a task downloads at the same time, since an object store answers slowly."""


@contextmanager
def open_task_disk(stores: Stores) -> Iterator[TaskDisk]:
    """Provide a folder for the files of a task, which is removed at the end."""
    folder = make_scratch_folder("files-")
    try:
        yield TaskDisk(stores, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_scratch_folder(prefix: str) -> str:
    """Create a temporary folder where Spark has its own, so that Spark removes it after a crash."""
    parent = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
    return tempfile.mkdtemp(prefix=prefix, dir=parent)


@dataclass(frozen=True, slots=True)
class TaskDisk:
    """The files of a task on a local disk, and their locations."""

    stores: Stores
    folder: str
    _locations: dict[str, str] = field(default_factory=dict)
    """The locations of local files, and of local folders of results."""
    _numbers: Iterator[int] = field(default_factory=count)

    def fetch(self, locations: Sequence[str], columns: Sequence[str] | None = None) -> list[str]:
        """Return local files with the content of files, in their order.

        Args:
            locations: the files.
            columns: the columns to read; objects are downloaded whole if these are most of their bytes. None: all.

        Raises:
            FileNotFoundError: when an object was removed.
            OSError: when a store cannot be read, or the disk is full.
        """
        paths = {location: self._new_path(location) for location in locations if is_in_store(location)}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda location: self._download(location, paths[location], columns), paths))
        self._locations.update({path: location for location, path in paths.items()})
        return [paths.get(location, location) for location in locations]

    def _download(self, location: str, path: str, columns: Sequence[str] | None) -> None:
        if columns is not None:
            with self.stores.open_file(location) as stream:
                if copy_columns(stream, columns, Path(path)):
                    return
        self.stores.download(location, Path(path))

    def _new_path(self, location: str) -> str:
        name = location.rpartition("/")[2]
        return f"{self.folder}/{next(self._numbers)}-{name}"

    def path_for(self, location: str) -> str:
        """Return the local path at which a file is written that belongs to a location."""
        if not is_in_store(location):
            return location
        parent, _, name = location.rpartition("/")
        folder = f"{self.folder}/{next(self._numbers)}"
        Path(folder).mkdir()
        self._locations[folder] = parent
        return f"{folder}/{name}"

    def output_for(self, output: TaskOutput) -> TaskOutput:
        """Return an output that is written to a local path."""
        return replace(output, path=self.path_for(output.path))

    def location_of(self, path: str) -> str:
        """Return the location of a local file."""
        if path in self._locations:
            return self._locations[path]
        for folder in Path(path).parents:
            if parent := self._locations.get(str(folder)):
                return f"{parent}{path.removeprefix(str(folder))}"
        return path

    def deliver(self, path: str) -> str:
        """Upload a written file if it belongs to a store, and return its location.

        Raises:
            OSError: when the store refuses.
            StorageError: when the copy and the file differ in size.
        """
        if (location := self.location_of(path)) != path:
            self.stores.upload(Path(path), location)
        return location

    def deliver_tables(self, written: Mapping[str, WrittenFiles]) -> dict[str, WrittenFiles]:
        """Upload the files of tables that belong to a store, and return them with their descriptions."""
        return {suffix: self._deliver_table(suffix, files) for suffix, files in written.items()}

    def _deliver_table(self, suffix: str, files: WrittenFiles) -> WrittenFiles:
        targets = {path: location for path in files.paths if (location := self.location_of(path)) != path}
        if not targets:
            return files
        stored = [replace(describe_staged_file(Path(path), suffix), path=targets[path]) for path in targets]
        self.stores.upload_all({location: Path(path) for path, location in targets.items()})
        return WrittenFiles((), files.rows, stored)

    def with_locations(self, text: str) -> str:
        """Return a message with the locations of files in place of their local paths."""
        for path, location in self._locations.items():
            text = text.replace(path, location)
        return text
