"""Define the warehouse with the files of all tables, on a disk or in an object store, and list its files."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import SplitResult, parse_qsl, urlsplit

from pyarrow.fs import FileSelector, FileType
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from backstream.errors import SetupError, StorageError, storage_error
from backstream.eventtime.instants import SECOND_MS
from backstream.runs.home import WAREHOUSE_VARIABLE, Home
from backstream.source.object_stores import STORE_OPTIONS, address_keys, describe_store_error, store_options

_DATA_FOLDER = "data"
_REMOVED_SUFFIX = "vacuumed"
_SCHEME = "s3"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]+")
_INVALID_ADDRESS = (
    f"the address of the warehouse must be a folder or s3://bucket/prefix ({WAREHOUSE_VARIABLE})\n\n"
    f"hint: {WAREHOUSE_VARIABLE}='s3://bucket/prefix?region=eu-central-1'"
)
"""The message leaves out the address itself, because it may contain a key."""
_CREDENTIALS_HINT = (
    "hint: keys are read from the Airflow connection backstream_warehouse; without it from"
    f" {WAREHOUSE_VARIABLE}, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the machine's role"
)


@dataclass(frozen=True, slots=True)
class Warehouse:
    """The location of all tables and the properties with which PyIceberg opens it.

    `location` is `file:///folder` or `s3://bucket/prefix`; `properties` may contain keys.
    """

    location: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def from_home(cls, home: Home) -> Warehouse:
        """Return the warehouse of a home.

        Raises:
            SetupError: if its address is invalid.
        """
        try:
            parts = urlsplit(home.warehouse_uri)
        except ValueError:
            raise SetupError(_INVALID_ADDRESS) from None
        if parts.scheme in {"", "file"}:
            return cls(location_of(str(Path(parts.path).resolve())))
        return _warehouse_in_store(parts)

    @property
    def shown(self) -> str:
        """The location as it may be displayed."""
        return plain_path(self.location)

    @property
    def is_on_disk(self) -> bool:
        """Return whether the warehouse is a folder of this machine."""
        return is_on_disk(self.location)

    def require_exists(self) -> None:
        """Create the folder, or check that the bucket exists.

        Raises:
            StorageError: if the folder cannot be created, or the store does not respond or has no such bucket.
        """
        if self.is_on_disk:
            create_folder(Path(self.shown), "the folder of the warehouse")
        else:
            self._require_bucket()

    def _require_bucket(self) -> None:
        filesystem, path = filesystem_of(load_file_io(dict(self.properties), self.location), self.location)
        endpoint, bucket = self.properties.get("s3.endpoint"), path.partition("/")[0]
        fact = f"\n  endpoint {endpoint}" if endpoint else ""
        try:
            info = filesystem.get_file_info(bucket)
        except OSError as error:
            failure = f"cannot use the warehouse {self.shown}: {describe_store_error(error)}"
            msg = f"{failure}{fact}\n\n{_CREDENTIALS_HINT}"
            raise StorageError(msg) from error
        if info.type is FileType.NotFound:
            msg = f"no bucket `{bucket}` for the warehouse {self.shown}{fact}\n\nhint: create it first"
            raise StorageError(msg)


def create_folder(folder: Path, name: str) -> None:
    """Create a folder unless it exists.

    Raises:
        StorageError: with the folder, if it cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        failure = f"cannot create {name}"
        raise storage_error(failure, folder, error) from error


def plain_path(location: str) -> str:
    """Return a local location as the path that Spark and PyArrow use; any other location unchanged."""
    return location.removeprefix("file://")


def location_of(path: str) -> str:
    """Return an absolute path as the location that Iceberg records; any other location unchanged."""
    return f"file://{path}" if path.startswith("/") else path


def is_on_disk(location: str) -> bool:
    """Return whether a location is in the file system of this machine."""
    return plain_path(location).startswith("/")


def filesystem_of(io: FileIO, location: str) -> tuple[Any, str]:
    """Return PyArrow's file system of a location, with the keys of the catalog, and the path in it."""
    pyarrow_io = cast("PyArrowFileIO", io)
    scheme, netloc, path = pyarrow_io.parse_location(location)
    return pyarrow_io.fs_by_scheme(scheme, netloc), path


def _warehouse_in_store(parts: SplitResult) -> Warehouse:
    keys, _, bucket = parts.netloc.rpartition("@")
    prefix = parts.path.strip("/")
    if parts.scheme != _SCHEME or not _BUCKET.fullmatch(bucket) or "@" in prefix or parts.fragment:
        raise SetupError(_INVALID_ADDRESS)
    return Warehouse(f"{_SCHEME}://{bucket}/{prefix}".rstrip("/"), _options(parts.query) | address_keys(keys))


def _options(query: str) -> dict[str, str]:
    given = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := sorted(given.keys() - STORE_OPTIONS.keys()):
        rule = f"options of the warehouse address must be {', '.join(STORE_OPTIONS)}"
        msg = f"{rule}, got {', '.join(unknown)} ({WAREHOUSE_VARIABLE})"
        raise SetupError(msg)
    return store_options(given)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file: `location` is as in `list_reachable_files`, `run_id` is empty unless it is a data file of a run.

    `owner` is the location itself, or the checked file if this is a checksum file of Hadoop.
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

    def files(self) -> Iterator[StoredFile]:
        """Yield every file, at any depth."""
        names = (Path(folder, name) for folder, _, names in os.walk(self.root) for name in names)
        for file in list_existing(names):
            path = Path(file.location)
            run_id = _run_id_of(path.relative_to(self.root).parts)
            yield StoredFile(file.location, file.size_bytes, file.modified_ms, run_id, str(_owner_of(path)))

    def remove(self, file: StoredFile, grace_ms: int) -> bool:
        """Remove a file unless a publication renewed its age in the meantime; return whether it was removed.

        The file is renamed first. If its age was renewed before that, it is renamed back. A publication that comes
        later finds no file and publishes nothing.
        """
        path = Path(file.location)
        renamed = path.with_name(f".{path.name}.{_REMOVED_SUFFIX}")
        try:
            if not is_older_than_grace(_modified_ms(path.stat()), grace_ms):
                return False
            path.rename(renamed)
            if not is_older_than_grace(_modified_ms(renamed.stat()), grace_ms):
                renamed.rename(path)
                return False
            renamed.unlink()
        except FileNotFoundError:
            return False
        if file.run_id:
            with suppress(OSError):  # the folder still has other files
                path.parent.rmdir()
        return True


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """The objects below an address in an object store; `path` begins with the bucket."""

    filesystem: Any
    path: str
    scheme: str

    def files(self) -> Iterator[StoredFile]:
        """Yield every object except folder placeholders."""
        selector = FileSelector(self.path, recursive=True, allow_not_found=True)
        for info in self.filesystem.get_file_info(selector):
            if info.is_file:
                run_id = _run_id_of(tuple(info.path.removeprefix(f"{self.path}/").split("/")))
                location = f"{self.scheme}://{info.path}"
                yield StoredFile(location, info.size, info.mtime_ns // 1_000_000, run_id, location)

    def remove(self, file: StoredFile, grace_ms: int) -> bool:
        """Remove an object and return whether it existed; no publication reuses objects of another attempt."""
        try:
            self.filesystem.delete_file(file.location.removeprefix(f"{self.scheme}://"))
        except FileNotFoundError:
            return False
        return True


Folder = DiskFolder | StoreFolder


def list_table_folders(home: Home, table: Table) -> list[Folder]:
    """Return the folders of a table's files, and of staged files that are not copied yet."""
    if is_on_disk(table.location()):
        return [DiskFolder(Path(plain_path(table.location())))]
    filesystem, path = filesystem_of(table.io, table.location())
    scheme = table.location().partition("://")[0]
    return [StoreFolder(filesystem, path, scheme), DiskFolder(home.staging(table.name()[-1]))]


def list_existing(paths: Iterable[Path]) -> Iterator[StoredFile]:
    """Yield those of the files that exist."""
    for path in paths:
        with suppress(FileNotFoundError):  # Spark's committer renames files
            stat = path.stat()
            yield StoredFile(str(path), stat.st_size, _modified_ms(stat))


def is_older_than_grace(modified_ms: int, grace_ms: int) -> bool:
    """Return whether the time since a modification is at least the grace period."""
    return int(time.time() * SECOND_MS) - modified_ms >= grace_ms


def _run_id_of(parts: tuple[str, ...]) -> str:
    """Return the run of a data file, from `data/<run>/<attempt>/<file>`; empty for any other file."""
    return parts[1] if len(parts) > 2 and parts[0] == _DATA_FOLDER else ""  # noqa: PLR2004 - folder, run, and more


def _owner_of(path: Path) -> Path:
    name = path.name
    is_checksum = name.startswith(".") and name.endswith(".crc")
    return path.with_name(name.removeprefix(".").removesuffix(".crc")) if is_checksum else path


def _modified_ms(stat: os.stat_result) -> int:
    return stat.st_mtime_ns // 1_000_000
