"""Copy a home between an object store and the machines that use it.

A home in an object store has a copy on each machine. A file is written to the store first, and then to the copy.
When a command, a task, or a page begins, the copy gets the changes of other machines.

The store has `<home>/changes/<folder>/<id>`, an empty object with a new id after each change in the folder. So one
listing shows which folders have changed, and only those are compared file by file.

Of the prepared files of a source, a copy has the lists only. Tasks read the files themselves from the store.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from backstream.errors import SpecError, StorageError
from backstream.storage.object_stores import S3_SCHEMES, explain_store_errors
from backstream.storage.stores import FileVersion, Stores
from backstream.variables import CACHE_VARIABLE, HOME_VARIABLE

_SHARED_FOLDERS = frozenset(
    (
        "advice",
        "dataset_state",
        "definitions",
        "dismissals",
        "errors",
        "prepared",
        "reconciled",
        "requests",
        "runs",
    )
)
"""The folders of a home that its machines share. The other folders contain what each machine can make again."""
_COPY = "@copy"
_CHANGES = "changes"
_STATE = "folders.json"
_LOCK, _POLL_S = "lock", 0.005
_PREPARED = "prepared"
_DEPTHS = {"runs": 3, _PREPARED: 3}
"""The depth of the folders of runs and of prepared sources, which have folders in them."""
_ATTEMPTS = 5
_SETTLED_MS = 60_000
"""After this time, a file with the same modification time is the same file.

A store tells the time of a change in whole seconds, so a file can change twice at the same time. And the clocks of
machines differ.
"""
_MS_PER_S, _NS_PER_MS = 1_000, 1_000_000
_ADDRESS = re.compile(r"s3://[a-z0-9.-]+(/[A-Za-z0-9._=-]+)*")


def parse_home_address(text: str) -> str:
    """Return the address of a home in an object store in its only form.

    Raises:
        SpecError: when it is not an address in S3, or it contains keys.
    """
    scheme, _, rest = text.partition("://")
    address = f"s3://{rest.rstrip('/')}"
    if scheme not in S3_SCHEMES or not _ADDRESS.fullmatch(address):
        shown = f"{scheme}://...@{rest.rpartition('@')[2]}" if "@" in rest else text
        msg = (
            f"a home in an object store must be s3://bucket/prefix with letters, digits, and ._=- only,"
            f" got {shown!r} ({HOME_VARIABLE})\n\n"
            "hint: keys are read from the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
        )
        raise SpecError(msg)
    return address


def copy_folder(address: str) -> Path:
    """Return the folder of this machine with the copy of a home."""
    return cache_folder() / address.replace("://", "/") / _COPY


def cache_folder() -> Path:
    """Return the folder of copies: `$BACKSTREAM_CACHE`, by default in the cache of the user."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "backstream"
    return Path(os.environ.get(CACHE_VARIABLE) or default).resolve()


@dataclass(frozen=True, slots=True)
class HomeCopy:
    """The copy of a home on this machine.

    Attributes:
        address: address of the home.
        folder: folder of the copy.
    """

    address: str
    folder: Path

    @classmethod
    def from_address(cls, address: str) -> HomeCopy:
        """Return the copy of a home."""
        return cls(address, copy_folder(address))

    @classmethod
    def find(cls, path: Path) -> HomeCopy | None:
        """Return the copy that shares a file with other machines; None for any other file."""
        parts = path.parts
        if _COPY not in parts:
            return None
        depth = parts.index(_COPY)
        if not _is_shared(parts[depth + 1 :]):
            return None
        folder = Path(*parts[: depth + 1])
        address = folder.parent.relative_to(cache_folder()).as_posix().replace("/", "://", 1)
        return cls(address, folder)

    def location(self, path: Path) -> str:
        """Return the address of a file or folder of the home."""
        return f"{self.address}/{path.relative_to(self.folder).as_posix()}"

    def send(self, draft: Path, path: Path) -> None:
        """Replace a file of the home by a draft, first in the store.

        Raises:
            OSError, StorageError: when the store refuses; then the file is as before.
        """
        stores, location = Stores.from_environment(), self.location(path)
        with self._lock(), explain_store_errors("write", location):
            stores.upload(draft, location)
            [version] = stores.find_versions([location])
            if version:
                _set_modified(draft, version)
            draft.replace(path)
            self._mark_change(stores, self._shared_folder(path))

    def remove(self, path: Path) -> None:
        """Remove a file of the home, if it exists, first in the store.

        Raises:
            StorageError: when the store refuses.
        """
        stores, location = Stores.from_environment(), self.location(path)
        with self._lock(), explain_store_errors("write", location):
            stores.remove([location])
            path.unlink(missing_ok=True)
            self._mark_change(stores, self._shared_folder(path))

    def fetch(self) -> None:
        """Copy all changes of other machines.

        Raises:
            StorageError: when the store cannot be read.
        """
        stores = Stores.from_environment()
        with self._lock(), explain_store_errors("read", self.address):
            current, known = self._list_changes(stores, ""), self._load_state()
            for name, ids in current.items():
                if known.get(name) != ids:
                    self._fetch_folder(stores, name)
            if current != known:
                self._write_state(current)

    def fetch_folder(self, folder: Path) -> None:
        """Copy the changes of other machines in one shared folder, such as that of a run.

        Raises:
            StorageError: when the store cannot be read.
        """
        with self._lock(), explain_store_errors("read", self.address):
            self._fetch_folder(Stores.from_environment(), folder.relative_to(self.folder).as_posix())

    def _fetch_folder(self, stores: Stores, name: str) -> None:
        """Compare a folder with the store again if a file of the store is removed meanwhile."""
        for _ in range(_ATTEMPTS):
            with suppress(FileNotFoundError):
                self._replace_files(stores, name)
                return
        msg = f"cannot copy {self.address}/{name}: its files are removed again and again"
        raise StorageError(msg)

    def _replace_files(self, stores: Stores, name: str) -> None:
        """Replace files that differ, the oldest change first, and remove files that the store does not have."""
        folder = self.folder / name
        versions = stores.list_versions(f"{self.address}/{name}")
        stored = {path: versions[name] for name in versions if self._is_shared(path := folder / name)}
        local = (Path(root, file) for root, _, files in os.walk(folder) for file in files)
        for path in (path for path in local if self._is_shared(path) and path not in stored):
            path.unlink(missing_ok=True)
        changed = [path for path, version in stored.items() if not _is_same(path, version)]
        drafts = {path: path.with_name(f".{path.name}.{uuid.uuid4().hex}") for path in changed}
        for parent in {path.parent for path in changed}:
            parent.mkdir(parents=True, exist_ok=True)
        try:
            stores.download_all({self.location(path): draft for path, draft in drafts.items()})
            for path in sorted(changed, key=lambda path: stored[path].modified_ms):
                _set_modified(drafts[path], stored[path])
                drafts[path].replace(path)
        finally:
            for draft in drafts.values():
                draft.unlink(missing_ok=True)

    def _mark_change(self, stores: Stores, name: str) -> None:
        """Give a folder a new change, and remove the older ones."""
        older, known = self._list_changes(stores, name).get(name, []), self._load_state()
        change = uuid.uuid4().hex
        filesystem, folder = stores.open(f"{self.address}/{_CHANGES}/{name}")
        with filesystem.open_output_stream(f"{folder}/{change}"):
            pass
        stores.remove(f"{self.address}/{_CHANGES}/{name}/{each}" for each in older)
        if older == known.get(name, []):  # otherwise, the copy lacks the change of another machine
            self._write_state(known | {name: [change]})

    def _list_changes(self, stores: Stores, name: str) -> dict[str, list[str]]:
        """Return the ids of the newest changes by folder, of one folder or of all of them."""
        changes: dict[str, list[str]] = {}
        for path in stores.list_versions(f"{self.address}/{_CHANGES}/{name}".rstrip("/")):
            file = PurePosixPath(name, path)
            changes.setdefault(file.parent.as_posix(), []).append(file.name)
        return {folder: sorted(ids) for folder, ids in changes.items()}

    def _shared_folder(self, path: Path) -> str:
        """Return the part of the home that is compared at once: a run, or another folder of files."""
        parts = path.relative_to(self.folder).parts
        depth = _DEPTHS.get(parts[0], len(parts) - 1)
        return "/".join(parts[:depth])

    def _is_shared(self, path: Path) -> bool:
        return _is_shared(path.relative_to(self.folder).parts)

    def _load_state(self) -> dict[str, list[str]]:
        with suppress(FileNotFoundError, ValueError):
            state: dict[str, list[str]] = json.loads((self.folder / _STATE).read_text(encoding="utf-8"))
            return state
        return {}

    def _write_state(self, changes: Mapping[str, list[str]]) -> None:
        draft = self.folder / f".{_STATE}.{uuid.uuid4().hex}"
        draft.write_text(json.dumps(changes), encoding="utf-8")
        draft.replace(self.folder / _STATE)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Exclude other threads and processes of this machine, which could replace a new file by an older one."""
        from filelock import FileLock  # executors import this module, and have no such package

        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / _LOCK, poll_interval=_POLL_S):
            yield


def _is_shared(parts: Sequence[str]) -> bool:
    """Return whether machines share a file, given by its path in the home; they share no drafts."""
    if not parts or parts[0] not in _SHARED_FOLDERS or any(part.startswith(".") for part in parts):
        return False
    return parts[0] != _PREPARED or parts[-1].endswith(".json")


def _is_same(path: Path, version: FileVersion) -> bool:
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    copied_ms = status.st_ctime_ns // _NS_PER_MS
    found = FileVersion(status.st_size, status.st_mtime_ns // _NS_PER_MS)
    return found == version and copied_ms - version.modified_ms > _SETTLED_MS


def _set_modified(path: Path, version: FileVersion) -> None:
    os.utime(path, ns=(version.modified_ms * _NS_PER_MS,) * 2)
