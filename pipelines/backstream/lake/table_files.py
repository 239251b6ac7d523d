"""The files in a table's folder as a vacuum sees them: on a disk, or in an object store."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyarrow.fs import FileSelector
from pyiceberg.table import Table

from backstream.core.folders import Home
from backstream.core.instants import SECOND_MS
from backstream.lake.warehouse import filesystem_of, is_on_disk, plain_path

_DATA = "data"
_ASIDE = "vacuumed"


@dataclass(frozen=True, slots=True)
class FileFound:
    """One file: `location` as `reachable` spells it; `run_id` is empty unless it is a data file of a run.

    `owner` is the file itself; of a checksum that Hadoop wrote beside a file, that file.
    """

    location: str
    size_bytes: int
    modified_ms: int
    run_id: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class DiskFolder:
    """A folder of this machine's file system."""

    root: Path

    def files(self) -> Iterator[FileFound]:
        """Every file, at any depth."""
        names = (Path(folder, name) for folder, _, names in os.walk(self.root) for name in names)
        for file in there(names):
            path = Path(file.location)
            run_id = _run_of(path.relative_to(self.root).parts)
            yield FileFound(file.location, file.size_bytes, file.modified_ms, run_id, str(_owner(path)))

    def is_removed(self, file: FileFound, grace_ms: int) -> bool:
        """Looks again: a publication that began meanwhile has made its files young.

        The file is moved aside first. What made it young before that is seen, and it is put back; who comes after
        that finds no file and publishes nothing.
        """
        path = Path(file.location)
        aside = path.with_name(f".{path.name}.{_ASIDE}")
        try:
            if not is_old(_modified_ms(path.stat()), grace_ms):
                return False
            path.rename(aside)
            if not is_old(_modified_ms(aside.stat()), grace_ms):
                aside.rename(path)
                return False
            aside.unlink()
        except FileNotFoundError:
            return False
        if file.run_id:
            with suppress(OSError):  # not empty yet
                path.parent.rmdir()
        return True


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """What lies under an address of an object store; `path` begins with the bucket."""

    filesystem: Any
    path: str
    scheme: str

    def files(self) -> Iterator[FileFound]:
        """Every object but those that only stand for a folder."""
        selector = FileSelector(self.path, recursive=True, allow_not_found=True)
        for found in self.filesystem.get_file_info(selector):
            if found.is_file:
                run_id = _run_of(tuple(found.path.removeprefix(f"{self.path}/").split("/")))
                location = f"{self.scheme}://{found.path}"
                yield FileFound(location, found.size, found.mtime_ns // 1_000_000, run_id, location)

    def is_removed(self, file: FileFound, grace_ms: int) -> bool:
        """Without a second look: no publication takes up an object that another attempt has left."""
        try:
            self.filesystem.delete_file(file.location.removeprefix(f"{self.scheme}://"))
        except FileNotFoundError:
            return False
        return True


Folder = DiskFolder | StoreFolder


def folders_of(home: Home, table: Table) -> list[Folder]:
    """Where a table's files are, and those that wait to be copied there."""
    if is_on_disk(table.location()):
        return [DiskFolder(Path(plain_path(table.location())))]
    filesystem, path = filesystem_of(table.io, table.location())
    scheme = table.location().partition("://")[0]
    return [StoreFolder(filesystem, path, scheme), DiskFolder(home.staging(table.name()[-1]))]


def there(paths: Iterable[Path]) -> Iterator[FileFound]:
    """Those of some files that are still there."""
    for path in paths:
        with suppress(FileNotFoundError):  # renamed meanwhile, as Spark's committer does
            found = path.stat()
            yield FileFound(str(path), found.st_size, _modified_ms(found))


def is_old(modified_ms: int, grace_ms: int) -> bool:
    """Whether something was written so long ago."""
    return int(time.time() * SECOND_MS) - modified_ms >= grace_ms


def _run_of(parts: tuple[str, ...]) -> str:
    """The run in whose folder a data file lies: `data/<run>/<attempt>/<file>`; empty for any other file."""
    return parts[1] if len(parts) > 2 and parts[0] == _DATA else ""  # noqa: PLR2004 - folder, run, and more


def _owner(path: Path) -> Path:
    name = path.name
    is_checksum = name.startswith(".") and name.endswith(".crc")
    return path.with_name(name.removeprefix(".").removesuffix(".crc")) if is_checksum else path


def _modified_ms(found: os.stat_result) -> int:
    return found.st_mtime_ns // 1_000_000
