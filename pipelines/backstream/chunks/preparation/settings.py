"""Define the settings by which raw records are prepared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from backstream.definition.model import Definition
from backstream.definition.prepared_columns import ARRIVAL_TEXT, EVENT_TEXT, FILE, RECORD
from backstream.definition.source_section import Source
from backstream.errors import StorageError
from backstream.native.preparation.task import RewrittenText
from backstream.source.wildcards import split_pattern
from backstream.storage.files import file_uri
from backstream.user_code import UserCode

MALFORMED = "prepared_malformed"
"""Column with the text of a record that Spark's reader cannot parse; null for any other record."""
WORKING_COLUMNS = (MALFORMED, FILE, EVENT_TEXT, ARRIVAL_TEXT, RECORD)
"""The columns of raw records that are not those of the files. The last three have declared times that are lost."""


@dataclass(frozen=True, slots=True)
class LineFiles:
    """Files with lines of raw files, each at the path of its raw file below a folder.

    The name of a file is that of its raw file with `~` and a suffix. `numbers` are those of its lines in the raw
    file from 1, by its path. Its first line is empty, and has no number. `rejected` are the files whose lines hold
    no record; Spark parses the lines of the others.
    """

    folder: Path
    numbers: Mapping[str, np.ndarray] = field(default_factory=dict)
    rejected: frozenset[str] = frozenset()
    empty: frozenset[str] = frozenset()
    """The raw files that have no line file, because they have no record."""

    @classmethod
    def from_texts(cls, folder: Path, texts: Iterable[RewrittenText], lines_before: int = 0) -> LineFiles:
        """Return files that were written below a folder; `lines_before` are above those of the text files."""
        numbers, rejected = dict[str, np.ndarray](), set[str]()
        for text in texts:
            numbers |= {path: each + lines_before for path, each in text.numbers_by_path.items()}
            rejected |= {text.rejected} if text.rejected else set()
        return cls(folder, numbers, frozenset(rejected))

    @property
    def record_paths(self) -> list[str]:
        """The paths of the files whose lines Spark parses."""
        return [path for path in self.numbers if path not in self.rejected]

    @property
    def raw_paths(self) -> set[str]:
        """The raw files of which Spark reads line files only."""
        return {*map(self.raw_path, self.numbers), *self.empty}

    def raw_path(self, path: str) -> str:
        """Return the path of the raw file of a line file."""
        return path.removeprefix(str(self.folder)).rpartition("~")[0]

    def __or__(self, other: LineFiles) -> LineFiles:
        """Return the files of both, which are below the same folder."""
        return LineFiles(
            self.folder,
            {**self.numbers, **other.numbers},
            self.rejected | other.rejected,
            self.empty | other.empty,
        )


@dataclass(frozen=True, slots=True)
class Preparation:
    """The settings by which raw records are prepared; `where` is the file of the definition, for messages.

    `fetched` is the folder with copies of raw files that are not local, each at `<scheme>/<rest of its address>`;
    `addresses` are the addresses of the raw files by the paths of their copies. `side_inputs` are the rows of the
    side inputs, by the name of the argument of the transformation. `line_files` are raw files, too, of which Spark
    reads some lines.
    """

    definition: Definition
    where: str
    transformation: UserCode | None = None
    fetched: Path | None = None
    addresses: Mapping[str, str] = field(default_factory=dict)
    side_inputs: Mapping[str, Any] = field(default_factory=dict)
    line_files: LineFiles | None = None

    @property
    def source(self) -> Source:
        """The source with the time of the windows as its event time."""
        source = self.definition.timed_source
        if source is self.definition.source:
            return source
        return source.model_copy(
            update={"event_time_unit": source.arrival_time_unit, "event_time_pattern": source.arrival_time_pattern}
        )

    def require_files(self, paths: Iterable[str]) -> None:
        """Check that raw files, given by their local paths, are still there.

        Raises:
            StorageError: when one was removed since it was listed; the next preparation lists the files again.
        """
        removed = next((path for path in paths if not Path(path).exists()), None)
        if removed is not None:
            address = self.addresses.get(removed, removed)
            msg = (
                f"input file {address} was removed while it was prepared ({self.where}, source.path)\n\n"
                "hint: repeat the command; it reads the files that are there then"
            )
            raise StorageError(msg) from None  # the error of the reader says less


def root_of_folders(source: Source) -> str | None:
    """Return the folder below which the names of folders can hold columns; None if they have no meaning."""
    roots = [root for root, _ in map(split_pattern, source.paths) if Path(root).is_dir()]
    return roots[0] if len(roots) == len(source.paths) == 1 else None


def raw_file_uri(path: str, preparation: Preparation) -> str:
    """Return the value of `FILE` for a raw file."""
    uri = file_uri(path)
    if preparation.fetched is None:
        return uri
    return re.sub(copies_pattern(preparation.fetched), r"\1://", uri)


def copies_pattern(folder: Path) -> str:
    """Return the pattern of the beginning of a copy's URI, with the scheme of the original as a group."""
    return f"^{uri_pattern(folder)}/([a-z0-9]+)/"


def uri_pattern(folder: Path) -> str:
    """Return the pattern of the URI of a folder, with any number of slashes at its beginning."""
    return f"file:/+{re.escape(file_uri(str(folder)).removeprefix('file:/'))}"
