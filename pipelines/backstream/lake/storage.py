"""Define the warehouse with the files of all tables, on a disk or in an object store, and list its files."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import SplitResult, parse_qsl, urlsplit

from pyarrow.fs import FileSelector, FileType
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from backstream.errors import SetupError, StorageError, storage_error
from backstream.eventtime.instants import SECOND_MS
from backstream.lake.catalog_address import SQL, CatalogAddress
from backstream.runs.home import Home
from backstream.storage.object_stores import STORE_OPTIONS, address_keys, describe_store_error, store_options
from backstream.variables import WAREHOUSE_VARIABLE

_DATA_FOLDER = "data"
_SCRATCH = ".scratch"
"""The suffix of a folder with the temporary files of an attempt; see `chunks.attempt`."""
_REMOVED_SUFFIX = "vacuumed"
PUBLICATION_MARK, VACUUM_MARK = ".publication", ".vacuum"
"""Objects beside the staged files of a run, while a publication or a vacuum works on them."""
_S3_SCHEMES = ("s3", "s3a", "s3n")
_OTHER_SCHEMES = ("gs", "abfs", "abfss", "hdfs")
_S3_SCHEME = re.compile(r"^s3[an]://")
_FILE_SCHEME = re.compile(r"^file:(//)?/")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]+")
_FILE_IO = {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
_INVALID_ADDRESS = (
    "the address of the warehouse must be a folder, s3://bucket/prefix, gs://bucket/prefix,"
    " abfss://container@account.dfs.core.windows.net/prefix, or hdfs://host:port/folder"
    f" ({WAREHOUSE_VARIABLE})\n\n"
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

    `location` is `file:///folder` or an address such as `s3://bucket/prefix`; `properties` may contain keys.
    `is_given` is false if the catalog chooses the location of a table in its namespace.
    """

    location: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_given: bool = True

    @classmethod
    def from_home(cls, home: Home) -> Warehouse:
        """Return the warehouse of a home: as configured, or that of the catalog, or a folder in the home.

        Raises:
            SetupError: if its address is invalid.
        """
        address = CatalogAddress.from_home(home)
        is_set = bool(os.environ.get(WAREHOUSE_VARIABLE))
        text = home.warehouse_uri if is_set else address.warehouse or str(home.warehouse)
        try:
            parts = urlsplit(text)
        except ValueError:
            raise SetupError(_INVALID_ADDRESS) from None
        if parts.scheme in {"", "file"}:
            warehouse = cls(location_of(str(Path(parts.path).resolve())))
        else:
            warehouse = _warehouse_in_store(parts)
        return replace(warehouse, is_given=is_set or address.kind == SQL)

    @property
    def catalog_properties(self) -> dict[str, str]:
        """The properties of a catalog with this warehouse; a service keeps its own name of the warehouse."""
        place = {"warehouse": self.location} if self.is_given else {}
        # For Azure, PyIceberg prefers file systems other than PyArrow's.
        file_io = _FILE_IO if self.location.startswith("abfs") or not self.is_given else {}
        return {**place, **file_io, **self.properties}

    @property
    def display_text(self) -> str:
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
            create_folder(Path(self.display_text), "the folder of the warehouse")
        else:
            self._require_bucket()

    def _require_bucket(self) -> None:
        try:
            filesystem, path = filesystem_of(
                load_file_io({**_FILE_IO, **self.properties}, self.location), self.location
            )
        except (ImportError, OSError) as error:
            msg = f"cannot use the warehouse {self.display_text}: {error}"
            raise SetupError(msg) from error
        endpoint, bucket = self.properties.get("s3.endpoint"), path.partition("/")[0] or "/"
        fact = f"\n  endpoint {endpoint}" if endpoint else ""
        try:
            info = filesystem.get_file_info(bucket)
        except OSError as error:
            failure = f"cannot use the warehouse {self.display_text}: {describe_store_error(error)}"
            msg = f"{failure}{fact}\n\n{_CREDENTIALS_HINT}"
            raise StorageError(msg) from error
        if info.type is FileType.NotFound:
            msg = f"no bucket `{bucket}` for the warehouse {self.display_text}{fact}\n\nhint: create it first"
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
    """Return a local location as the path that Spark and PyArrow use; any other location unchanged.

    Iceberg's Java library writes `file:/folder` into the tables that it changes, and PyIceberg `file:///folder`.
    """
    return _FILE_SCHEME.sub("/", location)


def comparable_location(location: str) -> str:
    """Return a location as all programs of a table would write it: they write several schemes of one store."""
    return _S3_SCHEME.sub("s3://", plain_path(location))


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
    if parts.scheme in _OTHER_SCHEMES and parts.netloc and not parts.fragment:
        location = parts._replace(query="", fragment="").geturl().rstrip("/")
        return Warehouse(location, dict(parse_qsl(parts.query)))
    keys, _, bucket = parts.netloc.rpartition("@")
    prefix = parts.path.strip("/")
    if parts.scheme not in _S3_SCHEMES or not _BUCKET.fullmatch(bucket) or "@" in prefix or parts.fragment:
        raise SetupError(_INVALID_ADDRESS)
    return Warehouse(f"s3://{bucket}/{prefix}".rstrip("/"), _options(parts.query) | address_keys(keys))


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

    `owner` is the location itself, or the checked file if this is a checksum file of Hadoop, for comparisons.
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

    @contextmanager
    def claim(self, run_id: str, grace_ms: int) -> Iterator[bool]:
        """Yield true, because `remove` itself finds out about a publication."""
        yield True

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
                scratch = path.parent.parent
                # A task that was killed leaves folders beside the one with files.
                for folder in (*scratch.iterdir(), scratch) if scratch.suffix == _SCRATCH else ():
                    folder.rmdir()
        return True


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """The objects below an address in an object store; `path` is the address as the file system spells it."""

    filesystem: Any
    path: str
    address: str

    def files(self) -> Iterator[StoredFile]:
        """Yield every object except folder placeholders."""
        selector = FileSelector(self.path, recursive=True, allow_not_found=True)
        for info in self.filesystem.get_file_info(selector):
            if info.is_file:
                run_id = _run_id_of(tuple(info.path.removeprefix(f"{self.path}/").split("/")))
                location = self.address + info.path.removeprefix(self.path)
                modified_ms = info.mtime_ns // 1_000_000
                yield StoredFile(location, info.size, modified_ms, run_id, comparable_location(location))

    @contextmanager
    def claim(self, run_id: str, grace_ms: int) -> Iterator[bool]:
        """Yield whether the staged files of a run may be removed, because no publication of it has begun.

        A publication and a vacuum each write their own mark before they look for the mark of the other. So at
        least one of them sees the other and stops.
        """
        if not run_id:
            yield True
            return
        folder = f"{self.path}/{_DATA_FOLDER}/{run_id}"
        write_mark(self.filesystem, f"{folder}/{VACUUM_MARK}")
        try:
            info = self.filesystem.get_file_info(f"{folder}/{PUBLICATION_MARK}")
            yield not info.is_file or is_older_than_grace(info.mtime_ns // 1_000_000, grace_ms)
        finally:
            self.filesystem.delete_file(f"{folder}/{VACUUM_MARK}")

    def remove(self, file: StoredFile, grace_ms: int) -> bool:
        """Remove an object and return whether it existed. The caller has claimed its run."""
        try:
            self.filesystem.delete_file(self.path + file.location.removeprefix(self.address))
        except FileNotFoundError:
            return False
        return True


Folder = DiskFolder | StoreFolder


def write_mark(filesystem: Any, path: str) -> None:
    """Write an object whose existence and age matter."""
    with filesystem.open_output_stream(path) as stream:
        stream.write(b"\n")


def list_table_folders(home: Home, table: Table) -> list[Folder]:
    """Return the folders of a table's files, and of staged files that are not copied yet."""
    if is_on_disk(table.location()):
        return [DiskFolder(Path(plain_path(table.location())))]
    filesystem, path = filesystem_of(table.io, table.location())
    return [StoreFolder(filesystem, path, table.location()), DiskFolder(home.staging(table.name()[-1]))]


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
