"""The warehouse: where the files of the lake's tables are, on a disk or in an object store."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pyarrow.fs import FileSelector, FileType
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from backstream.errors import SetupError, StorageError, storage_error
from backstream.eventtime.instants import SECOND_MS
from backstream.runs.home import WAREHOUSE_VARIABLE, Home

_SCHEME = "s3"
_REGION = "us-east-1"
"""What a store that is not Amazon's is told: such stores look at the endpoint, and asking Amazon would fail."""
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]+")
_OPTIONS = {"region": "s3.region", "endpoint": "s3.endpoint", "session_token": "s3.session-token"}
_VARIABLES = {
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
}
_NO_ADDRESS = (
    f"the warehouse's address must be a folder or s3://bucket/prefix ({WAREHOUSE_VARIABLE})\n\n"
    f"hint: {WAREHOUSE_VARIABLE}='s3://bucket/prefix?region=eu-central-1'"
)
"""The address itself is not told: it may hold a key."""
_CREDENTIALS = (
    "hint: keys come from the Airflow connection backstream_warehouse; without it from"
    f" {WAREHOUSE_VARIABLE}, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the machine's role"
)


@dataclass(frozen=True, slots=True)
class Warehouse:
    """`location` is `file:///folder` or `s3://bucket/prefix`; `properties` are PyIceberg's, keys included."""

    location: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def from_home(cls, home: Home) -> Warehouse:
        """The warehouse of a home.

        Raises:
            SetupError: when its address is not one that can be used.
        """
        try:
            parts = urlsplit(home.warehouse_uri)
        except ValueError:
            raise SetupError(_NO_ADDRESS) from None
        if parts.scheme in {"", "file"}:
            return cls(location_of(str(Path(parts.path).resolve())))
        return _in_store(parts)

    @property
    def shown(self) -> str:
        """The place as it may be shown."""
        return plain_path(self.location)

    @property
    def is_on_disk(self) -> bool:
        """Whether its files lie in a folder of this machine."""
        return is_on_disk(self.location)

    def require_there(self) -> None:
        """Make the folder, or ask the object store for the bucket.

        Raises:
            StorageError: when the folder cannot be made, the store does not answer, or has no such bucket.
        """
        if self.is_on_disk:
            create_folder(Path(self.shown), "the warehouse's folder")
        else:
            self._require_bucket()

    def _require_bucket(self) -> None:
        filesystem, path = filesystem_of(load_file_io(dict(self.properties), self.location), self.location)
        endpoint, bucket = self.properties.get("s3.endpoint"), path.partition("/")[0]
        fact = f"\n  endpoint {endpoint}" if endpoint else ""
        try:
            found = filesystem.get_file_info(bucket)
        except OSError as error:
            msg = f"cannot use the warehouse {self.shown}: {describe_store_error(error)}{fact}\n\n{_CREDENTIALS}"
            raise StorageError(msg) from error
        if found.type is FileType.NotFound:
            msg = f"no bucket `{bucket}` for the warehouse {self.shown}{fact}\n\nhint: make it first"
            raise StorageError(msg)


def create_folder(folder: Path, name: str) -> None:
    """Make a folder unless it is there.

    Raises:
        StorageError: naming the folder, when it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"cannot make {name}"
        raise storage_error(what, folder, error) from error


def plain_path(location: str) -> str:
    """A local location as the plain path that Spark and pyarrow write to; any other location as it is."""
    return location.removeprefix("file://")


def location_of(path: str) -> str:
    """A plain absolute path as the location that the lake records; any other location as it is."""
    return f"file://{path}" if path.startswith("/") else path


def is_on_disk(location: str) -> bool:
    """Whether a location is one of this machine's file system."""
    return plain_path(location).startswith("/")


def filesystem_of(io: FileIO, location: str) -> tuple[Any, str]:
    """PyArrow's file system of a location, with the keys that the catalog was opened with; and the path there."""
    known = cast("PyArrowFileIO", io)
    scheme, netloc, path = known.parse_location(location)
    return known.fs_by_scheme(scheme, netloc), path


def is_from_store(error: OSError) -> bool:
    """Whether an object store refused, and not a disk."""
    return "AWS Error" in str(error)


def describe_store_error(error: OSError) -> str:
    """What an object store refused, without the number of the request."""
    said = re.sub(r"\s*\(Request ID: [^)]*\)", "", str(error))
    return said.removesuffix(".").removesuffix(": No response body")


def _in_store(parts: SplitResult) -> Warehouse:
    keys, _, bucket = parts.netloc.rpartition("@")
    prefix = parts.path.strip("/")
    if parts.scheme != _SCHEME or not _BUCKET.fullmatch(bucket) or "@" in prefix or parts.fragment:
        raise SetupError(_NO_ADDRESS)
    properties = {_OPTIONS[name]: value for name, value in _options(parts.query).items()}
    user, _, secret = keys.partition(":")
    if keys:
        properties |= {"s3.access-key-id": unquote(user), "s3.secret-access-key": unquote(secret)}
    return Warehouse(f"{_SCHEME}://{bucket}/{prefix}".rstrip("/"), properties)


def _options(query: str) -> dict[str, str]:
    asked = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := sorted(asked.keys() - _OPTIONS.keys()):
        wanted = f"options of the warehouse's address must be {', '.join(_OPTIONS)}"
        msg = f"{wanted}, got {', '.join(unknown)} ({WAREHOUSE_VARIABLE})"
        raise SetupError(msg)
    options = {name: value for name in _OPTIONS if (value := asked.get(name) or _from_environment(name))}
    if "endpoint" in options:
        options.setdefault("region", _REGION)
    return options


def _from_environment(option: str) -> str | None:
    """PyArrow finds keys in the environment by itself, but neither region nor endpoint."""
    found = (os.environ.get(name) for name in _VARIABLES.get(option, ()))
    return next((value for value in found if value), None)


_DATA = "data"
_ASIDE = "vacuumed"


@dataclass(frozen=True, slots=True)
class StoredFile:
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

    def files(self) -> Iterator[StoredFile]:
        """Every file, at any depth."""
        names = (Path(folder, name) for folder, _, names in os.walk(self.root) for name in names)
        for file in list_existing(names):
            path = Path(file.location)
            run_id = _run_of(path.relative_to(self.root).parts)
            yield StoredFile(file.location, file.size_bytes, file.modified_ms, run_id, str(_owner(path)))

    def is_removed(self, file: StoredFile, grace_ms: int) -> bool:
        """Looks again: a publication that began meanwhile has made its files young.

        The file is moved aside first. What made it young before that is seen, and it is put back; who comes after
        that finds no file and publishes nothing.
        """
        path = Path(file.location)
        aside = path.with_name(f".{path.name}.{_ASIDE}")
        try:
            if not is_older_than_grace(_modified_ms(path.stat()), grace_ms):
                return False
            path.rename(aside)
            if not is_older_than_grace(_modified_ms(aside.stat()), grace_ms):
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

    def files(self) -> Iterator[StoredFile]:
        """Every object but those that only stand for a folder."""
        selector = FileSelector(self.path, recursive=True, allow_not_found=True)
        for found in self.filesystem.get_file_info(selector):
            if found.is_file:
                run_id = _run_of(tuple(found.path.removeprefix(f"{self.path}/").split("/")))
                location = f"{self.scheme}://{found.path}"
                yield StoredFile(location, found.size, found.mtime_ns // 1_000_000, run_id, location)

    def is_removed(self, file: StoredFile, grace_ms: int) -> bool:
        """Without a second look: no publication takes up an object that another attempt has left."""
        try:
            self.filesystem.delete_file(file.location.removeprefix(f"{self.scheme}://"))
        except FileNotFoundError:
            return False
        return True


Folder = DiskFolder | StoreFolder


def list_table_folders(home: Home, table: Table) -> list[Folder]:
    """Where a table's files are, and those that wait to be copied there."""
    if is_on_disk(table.location()):
        return [DiskFolder(Path(plain_path(table.location())))]
    filesystem, path = filesystem_of(table.io, table.location())
    scheme = table.location().partition("://")[0]
    return [StoreFolder(filesystem, path, scheme), DiskFolder(home.staging(table.name()[-1]))]


def list_existing(paths: Iterable[Path]) -> Iterator[StoredFile]:
    """Those of some files that are still there."""
    for path in paths:
        with suppress(FileNotFoundError):  # renamed meanwhile, as Spark's committer does
            found = path.stat()
            yield StoredFile(str(path), found.st_size, _modified_ms(found))


def is_older_than_grace(modified_ms: int, grace_ms: int) -> bool:
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
