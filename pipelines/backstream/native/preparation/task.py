"""Define the tasks that prepare raw files natively, and their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from backstream.definition.values import TimeUnit
from backstream.native.preparation.folders import FolderValue
from backstream.native.preparation.kinds import Kind, Leaf
from backstream.native.preparation.text_form import TextForm


class UnusualFileError(Exception):
    """The reason why Spark must prepare a whole file: the native reader could read it differently."""


class UnusualLinesError(Exception):
    """The reason why Spark must prepare some of the lines that are parsed together."""


class UnusualLineError(UnusualLinesError):
    """The reason why Spark must prepare the line at the position `row`; those before it have no such error."""

    def __init__(self, reason: str, row: int) -> None:
        super().__init__(reason)
        self.row = row


class UnusualRowsError(UnusualLinesError):
    """The reason why Spark must prepare the rows that are true in `rows`."""

    def __init__(self, reason: str, rows: pa.BooleanArray | np.ndarray) -> None:
        super().__init__(reason)
        self.rows = np.asarray(rows)


@dataclass(frozen=True, slots=True)
class TimeSpec:
    """The place of a time in a record.

    `unit` is that of a number since 1970. With `needs_zone`, a text without a time zone is unusual.
    """

    name: str
    leaf: Leaf
    unit: TimeUnit | None = None
    needs_zone: bool = False


@dataclass(frozen=True, slots=True)
class UnionSpec:
    """The name of a source of a union, and the places of its partition and its sequence."""

    name: str
    partition: Leaf | None
    sequence: Leaf | None


@dataclass(frozen=True, slots=True)
class TextSpec:
    """The declared columns of lines of text, and the columns of the prepared files.

    `folders` are the types of the columns that the names of folders hold. `form` is that of the text files.
    """

    form: TextForm

    kinds: Mapping[str, Kind]
    event: TimeSpec
    arrival: TimeSpec | None
    payload: Mapping[str, Leaf]
    union: UnionSpec | None = None
    folders: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Piece:
    """The lines of a raw file that begin in a range of bytes; without an end, up to the end of the file.

    `uri` is the name of the file in prepared files, and `folder_values` are those of its folders' columns.
    `columns` are the names of the columns of a CSV file, in their order.
    """

    path: str
    uri: str
    size_bytes: int
    start: int = 0
    end: int | None = None
    folder_values: Mapping[str, FolderValue] = field(default_factory=dict)
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PreparationTask:
    """Pieces that one task prepares: one piece, or several whole files that fit into memory together.

    Lines that Spark must read are written to files below `lines_folder`.
    """

    spec: TextSpec
    pieces: Sequence[Piece]
    output: str
    lines_folder: str

    def __str__(self) -> str:
        return f"prepared records of {len(self.pieces)} files ({self.pieces[0].path} ...)"


@dataclass(frozen=True)
class RewrittenText:
    """The files in place of lines of a text file: their records, one per line, and the lines without a record.

    Both begin with an empty line, and exist only if they have a line. Numbers are those of the lines in the text
    file, or in a piece of it, from 1.
    """

    records: str | None
    numbers: np.ndarray
    rejected: str | None
    rejected_numbers: np.ndarray

    @property
    def numbers_by_path(self) -> dict[str, np.ndarray]:
        """The numbers of the lines by file."""
        files = ((self.records, self.numbers), (self.rejected, self.rejected_numbers))
        return {path: numbers for path, numbers in files if path is not None}


@dataclass(frozen=True, slots=True)
class UnusualLines:
    """The files with the lines of a piece that Spark must read; `reason` is that of the first of them."""

    raw_path: str
    files: RewrittenText
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class PreparationResult:
    """The Parquet file of a task, or None without records; its records, and what Spark must read.

    `lines` is the number of lines of all pieces. `unusual_files` has the reason by file.
    """

    output: str | None
    rows: int
    lines: int
    unusual_files: Mapping[str, str] = field(default_factory=dict)
    unusual_lines: Sequence[UnusualLines] = ()
