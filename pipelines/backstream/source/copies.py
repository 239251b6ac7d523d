"""Copy raw files that are elsewhere to the disk, one file each, and keep the copies."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from backstream.source.files import read_error_text
from backstream.source.raw_files import RawFile
from backstream.storage.columns import copy_columns
from backstream.storage.files import load_json, write_json
from backstream.storage.object_stores import StoreAccess

if TYPE_CHECKING:
    from backstream.source.table_files import TableFile


_DRAFT_SUFFIX = ".draft"
_RAW_FILES = "_copied.json"
"""File in the folder of the copies: the raw file of each copy. Readers of Parquet ignore its name."""
_MAX_REMOVED = 10_000
"""Maximum number of removed copies whose raw files are kept, so that messages can name them."""


@dataclass(frozen=True, slots=True)
class CopyFolder:
    """The folder of the copies; a copy has the name of its raw file with a digest of the file's version."""

    folder: Path

    def path_of(self, file: RawFile) -> Path:
        """Return the path of the copy of a raw file."""
        stem = file.path.rsplit("/", 1)[-1].lstrip("_.").removesuffix(".parquet") or "file"
        digest = hashlib.sha256(json.dumps(astuple(file)).encode()).hexdigest()[:12]
        return self.folder / f"{stem}.{digest}.parquet"

    def find_new_files(self, files: Iterable[RawFile]) -> list[RawFile]:
        """Return the raw files without a copy."""
        present = {path.name for path in self._copies()}
        return [file for file in files if self.path_of(file).name not in present]

    def find_others(self, files: Iterable[RawFile]) -> list[Path]:
        """Return the copies of other files than these: their raw files were changed or removed."""
        wanted = {self.path_of(file).name for file in files}
        return sorted(path for path in self._copies() if path.name not in wanted)

    def load_raw_files(self) -> dict[str, RawFile]:
        """Return the raw file by the name of its copy, also for removed copies; empty for other folders."""
        if not (self.folder / _RAW_FILES).exists():
            return {}
        content = load_json(self.folder / _RAW_FILES, "list of copied files")
        return {name: RawFile(*values) for name, values in content["files"]}

    def write_raw_files(self, files: Iterable[RawFile]) -> None:
        """Write the raw files of the copies, which are `files`, and of those that were removed last."""
        current = {self.path_of(file).name: file for file in files}
        removed = [(name, file) for name, file in self.load_raw_files().items() if name not in current]
        named = [*removed[-_MAX_REMOVED:], *current.items()]
        write_json(self.folder / _RAW_FILES, {"files": [[name, astuple(file)] for name, file in named]})

    def remove(self, paths: Sequence[Path]) -> None:
        """Remove copies, and the drafts of killed processes. The caller holds the lock."""
        for path in [*paths, *self.folder.glob(f".*{_DRAFT_SUFFIX}")]:
            with suppress(FileNotFoundError):
                path.unlink()

    def _copies(self) -> Iterator[Path]:
        return (path for path in self.folder.glob("*.parquet") if not path.name.startswith("."))


def _draft_of(target: Path) -> Path:
    """Return the path of an unfinished copy; readers ignore its name."""
    return target.with_name(f".{target.name}{_DRAFT_SUFFIX}")


_BLOCK_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True)
class FetchTask:
    """A raw file to copy to `target`.

    `columns` are the needed columns of a Parquet file; None: the whole file. `table_file` describes the data file
    of an Iceberg table.
    """

    file: RawFile
    target: str
    access: StoreAccess
    columns: tuple[str, ...] | None = None
    table_file: TableFile | None = None


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The result of a task: the error, empty if there was none, and whether the raw file no longer exists."""

    path: str
    error: str = ""
    is_deleted: bool = False


def fetch_file(task: FetchTask) -> FetchResult:
    """Copy a raw file; the copy appears by one rename, with the modification time of the raw file."""
    target = Path(task.target)
    draft = _draft_of(target)
    try:
        if task.table_file is None:
            _copy_object(task, draft)
        else:
            from backstream.source.table_files import copy_table_file

            copy_table_file(task.table_file, task.columns, draft)
        if task.file.modified_ms:
            os.utime(draft, ns=(task.file.modified_ms * 1_000_000,) * 2)
        draft.replace(target)
    except FileNotFoundError:
        return FetchResult(task.file.path, "it no longer exists", is_deleted=True)
    except (OSError, ValueError) as error:  # Arrow's errors are of these kinds
        return FetchResult(task.file.path, read_error_text(error))
    finally:
        draft.unlink(missing_ok=True)
    return FetchResult(task.file.path)


def _copy_object(task: FetchTask, draft: Path) -> None:
    filesystem, path = task.access.open(task.file.path)
    with filesystem.open_input_file(path) as stream:
        if stream.size() != task.file.size_bytes:
            msg = f"it had {task.file.size_bytes} bytes when it was listed, and has {stream.size()} now"
            raise ValueError(msg)
        if task.columns is not None and copy_columns(stream, task.columns, draft):
            return
        stream.seek(0)
        with draft.open("wb") as file:
            while block := stream.read(_BLOCK_BYTES):
                file.write(block)
