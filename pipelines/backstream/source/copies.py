"""Keep local copies of raw files that are elsewhere, one file each: in an object store, or in an Iceberg table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path

from backstream.source.raw_files import RawFile

_DRAFT_SUFFIX = ".draft"


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

    def remove(self, paths: Sequence[Path]) -> None:
        """Remove copies, and the drafts of killed processes. The caller holds the lock."""
        for path in [*paths, *self.folder.glob(f".*{_DRAFT_SUFFIX}")]:
            with suppress(FileNotFoundError):
                path.unlink()

    def _copies(self) -> Iterator[Path]:
        return (path for path in self.folder.glob("*.parquet") if not path.name.startswith("."))


def draft_of(target: Path) -> Path:
    """Return the path of an unfinished copy; readers ignore its name."""
    return target.with_name(f".{target.name}{_DRAFT_SUFFIX}")
