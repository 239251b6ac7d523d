"""Find the files of the user behind the input files of a plan, which may be prepared files or copies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from backstream.source.copies import CopyFolder
from backstream.source.prepared import BATCH_PREFIX, PreparedSource
from backstream.source.raw_contents import RawContents
from backstream.source.raw_files import RawFile


@dataclass(frozen=True, slots=True)
class BatchPlace:
    """The place of a batch: the folder of its source in the home, or in the copy of the home, and its name."""

    folder: Path
    name: str

    @classmethod
    def from_input(cls, path: str) -> Self | None:
        """Return the place of the batch of a prepared file; None for any other input file."""
        names = path.split("/")
        if names[-5:-4] != ["prepared"] or not names[-2].startswith(BATCH_PREFIX):
            return None
        return cls(PreparedSource.from_location("/".join(names[:-2])).folder, names[-2])

    def find_contents(self) -> RawContents | None:
        """Return the contents of the batch, also after it was replaced; None if they were removed."""
        return RawContents.find(self.folder, self.name)


def find_copied_files(paths: Iterable[str]) -> dict[str, RawFile]:
    """Return the raw file of each path that is a copy, also of a copy that was removed."""
    files_by_folder: dict[Path, dict[str, RawFile]] = {}
    found: dict[str, RawFile] = {}
    for copy in map(Path, paths):
        if copy.parent not in files_by_folder:
            files_by_folder[copy.parent] = CopyFolder(copy.parent).load_raw_files()
        if raw := files_by_folder[copy.parent].get(copy.name):
            found[str(copy)] = raw
    return found


def list_user_files(path: str) -> list[str]:
    """Return the paths of the files of the user behind an input file; a file that is read in place is its own."""
    if place := BatchPlace.from_input(path):
        contents = place.find_contents()
        return [file.path for file in contents.files] if contents else [path]
    copied = find_copied_files([path])
    return [copied[path].path if path in copied else path]


def describe_input_file(path: str) -> str:
    """Return the files of the user behind an input file, e.g., `/data/a.json and 2 more`."""
    first, *others = list_user_files(path)
    return f"{first} and {len(others):,} more" if others else first
