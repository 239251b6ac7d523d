"""Read and write files by their location: a path on a disk, or an address in an object store.

Other modules don't distinguish the two. Tasks on executors get the `Stores` of the driver, because executors have
no keys.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from backstream.errors import StorageError
from backstream.storage.object_stores import (
    S3_SCHEMES,
    StoreAccess,
    explain_store_errors,
    list_objects,
    warehouse_address,
)
from backstream.storage.parquet_footer import Footer

_AT_ONCE = 8
"""The number of simultaneous requests: an object store serves many, and each one takes long."""
_BLOCK_BYTES = 8 * 2**20
_NS_PER_MS = 1_000_000


def is_in_store(location: str) -> bool:
    """Return whether a location is an address in an object store, such as `s3://bucket/prefix`."""
    return "://" in location and not location.startswith("file://")


def is_below(location: str, folder: str) -> bool:
    """Return whether a location is in a folder, at any depth."""
    return bool(folder) and location.startswith(f"{folder.rstrip('/')}/")


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def map_files(function: Callable[[_Item], _Result], files: Mapping[str, _Item]) -> list[_Result]:
    """Return the result of a function for each file, in order; several files of a store are processed at once.

    Args:
        function: reads or writes one file.
        files: the arguments of the function by the location of a file.
    """
    if not any(map(is_in_store, files)):
        return list(map(function, files.values()))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(function, files.values()))


def explain_reading(location: str) -> AbstractContextManager[None]:
    """Convert errors of an object store while a file is read, so that an outage doesn't look like damage.

    Raises:
        StorageError: with the address.
    """
    return explain_store_errors("read", location) if is_in_store(location) else nullcontext()


@dataclass(frozen=True, slots=True)
class FileVersion:
    """The size and the modification time of a file; another version of the file has others."""

    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Stores:
    """The object stores that a process can use.

    `warehouse` is the address of the warehouse, if this process has it and it is in S3; otherwise it is empty.
    """

    warehouse: str = ""
    warehouse_access: StoreAccess = field(default_factory=StoreAccess)
    others: StoreAccess = field(default_factory=StoreAccess)

    @classmethod
    def from_environment(cls) -> Stores:
        """Return the stores with the keys in the variables of this process."""
        address = warehouse_address()
        others = StoreAccess.from_environment()
        if address.scheme not in S3_SCHEMES:
            return cls(others=others)
        bucket = address.netloc.rpartition("@")[2]
        return cls(f"s3://{bucket}{address.path}".rstrip("/"), StoreAccess.to_warehouse(), others)

    def open(self, location: str) -> tuple[Any, str]:
        """Return PyArrow's file system of a location, and the path in it."""
        access = self.warehouse_access if is_below(location, self.warehouse) else self.others
        return access.open(location)

    def open_file(self, location: str) -> Any:
        """Open a file for reading at any position.

        Raises:
            FileNotFoundError: when there is no such file.
            OSError: when it cannot be read.
        """
        filesystem, path = self.open(location)
        return filesystem.open_input_file(path)

    def parquet_source(self, location: str) -> Any:
        """Return the argument of PyArrow's functions for a Parquet file: its path on a disk, or an open object."""
        return self.open_file(location) if is_in_store(location) else location

    def read_footer(self, location: str) -> Footer:
        """Read the footer of a Parquet file.

        Raises:
            FileNotFoundError: when there is no such file.
            ValueError: when the file has no footer.
            OSError: when a disk cannot be read.
            StorageError: when a store cannot be read.
        """
        if not is_in_store(location):
            return Footer.from_file(location)
        with explain_reading(location), self.open_file(location) as file:
            return Footer.from_stream(file)

    def find_versions(self, locations: Sequence[str]) -> list[FileVersion | None]:
        """Return the version of each file; None if there is no such file.

        Raises:
            StorageError: when a store cannot be read.
        """
        return map_files(self._find_version, dict(zip(locations, locations, strict=True)))

    def _find_version(self, location: str) -> FileVersion | None:
        if not is_in_store(location):
            with suppress(FileNotFoundError, NotADirectoryError):
                status = os.stat(location)  # noqa: PTH116 - thousands of files, each once
                return FileVersion(status.st_size, status.st_mtime_ns // _NS_PER_MS)
            return None
        with explain_store_errors("read", location):
            filesystem, path = self.open(location)
            info = filesystem.get_file_info(path)
        return FileVersion(info.size, (info.mtime_ns or 0) // _NS_PER_MS) if info.is_file else None

    def list_versions(self, address: str) -> dict[str, FileVersion]:
        """Return the version of each object below an address of a store, by its path there.

        Raises:
            OSError: when the store cannot be read.
        """
        filesystem, root = self.open(address)
        return {
            info.path.removeprefix(f"{root}/"): FileVersion(info.size, (info.mtime_ns or 0) // _NS_PER_MS)
            for info in list_objects(filesystem, root)
        }

    def download(self, location: str, target: Path) -> None:
        """Copy a file of a store to a disk.

        Raises:
            FileNotFoundError: when there is no such file.
            OSError: when it cannot be read or written.
        """
        with self.open_file(location) as stream, target.open("wb") as file:
            shutil.copyfileobj(stream, file, _BLOCK_BYTES)

    def download_all(self, targets: Mapping[str, Path]) -> None:
        """Copy files of a store, given by location, to paths on a disk; see `download`."""
        map_files(lambda target: self.download(*target), dict(zip(targets, targets.items(), strict=True)))

    def upload(self, path: Path, location: str) -> None:
        """Copy a file of a disk to a store; it appears when it is complete.

        Raises:
            OSError: when the store refuses.
            StorageError: when the copy and the file differ in size.
        """
        filesystem, target = self.open(location)
        with path.open("rb") as file, filesystem.open_output_stream(target) as stream:
            shutil.copyfileobj(file, stream, _BLOCK_BYTES)
        stored, size_bytes = filesystem.get_file_info(target).size, path.stat().st_size
        if stored != size_bytes:
            msg = f"a copy has {stored} bytes, its file has {size_bytes}\n  {location}\n  {path}"
            raise StorageError(msg)

    def upload_all(self, paths: Mapping[str, Path]) -> None:
        """Copy files of a disk, given by their location in a store; see `upload`."""
        map_files(lambda copy: self.upload(copy[1], copy[0]), dict(zip(paths, paths.items(), strict=True)))

    def remove(self, locations: Iterable[str]) -> None:
        """Remove files, if they exist."""
        for location in locations:
            filesystem, path = self.open(location)
            with suppress(FileNotFoundError):
                filesystem.delete_file(path)


NO_STORES = Stores()
"""The stores of a process that reads and writes local files only."""
