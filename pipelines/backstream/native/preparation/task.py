"""Define the tasks that prepare raw files natively, and their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from backstream.definition.values import TimeUnit
from backstream.native.preparation.kinds import Kind, Leaf


class UnusualInputError(Exception):
    """The reason why Spark must prepare a file: the native reader could read it differently."""


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
class JsonSpec:
    """The declared columns of JSON lines, and the columns of the prepared files."""

    kinds: Mapping[str, Kind]
    event: TimeSpec
    arrival: TimeSpec | None
    payload: Mapping[str, Leaf]
    union: UnionSpec | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """The lines of a raw file that begin in a range of bytes; without an end, up to the end of the file.

    `uri` is the name of the file in prepared files.
    """

    path: str
    uri: str
    size_bytes: int
    start: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True)
class PreparationTask:
    """Pieces that one task prepares: one piece, or several whole files that fit into memory together."""

    spec: JsonSpec
    pieces: Sequence[Piece]
    output: str

    def __str__(self) -> str:
        return f"prepared records of {len(self.pieces)} files ({self.pieces[0].path} ...)"


@dataclass(frozen=True, slots=True)
class PreparationResult:
    """The Parquet file of a task, or None without records; its records, and the reason by unusual file."""

    output: str | None
    rows: int
    unusual: Mapping[str, str] = field(default_factory=dict)
