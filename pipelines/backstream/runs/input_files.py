"""Decide which files of a source are data, and describe the files that a run does not read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Self

from backstream.eventtime.instants import instant_text

SHOWN = 10
_YEAR_MS = 31_556_952_000
SUFFIXES = (".parquet", ".parq", ".pq")
"""Suffixes of Parquet files; compressed ones end with `.snappy.parquet` or similar."""
HIDDEN = "a name that begins with _ or ."
EQUAL_TO = " has the content of "
"""Text between the paths of two equal files."""
OTHER_SUFFIX = f"another suffix than {', '.join(SUFFIXES)}"


def reason_ignored(parts: Sequence[str]) -> str | None:
    """Return the reason why a file is not data, from its path within the source; None: it is data.

    Spark also ignores names that begin with `_` or `.`, since writers use them for their own files.
    """
    if any(part.startswith(("_", ".")) for part in parts):
        return HIDDEN
    return None if PurePath(parts[-1]).suffix.lower() in SUFFIXES else OTHER_SUFFIX


@dataclass(frozen=True, slots=True)
class FileList:
    """A number of files and the first ten names."""

    count: int = 0
    first: tuple[str, ...] = ()

    @classmethod
    def from_paths(cls, paths: Iterable[object]) -> Self:
        """Create a list from paths; only the first ten names are kept."""
        names = sorted(map(str, paths))
        return cls(len(names), tuple(names[:SHOWN]))

    @classmethod
    def sum(cls, lists: Iterable[Self]) -> Self:
        """Return all lists as one."""
        whole = list(lists)
        names = sorted(name for files in whole for name in files.first)
        return cls(sum(files.count for files in whole), tuple(names[:SHOWN]))

    def __bool__(self) -> bool:
        """Return whether there are any files."""
        return self.count > 0

    def __str__(self) -> str:
        """Return the names, such as `a.json, b.json and 3 more`."""
        more = self.count - len(self.first)
        return ", ".join(self.first) + (f" and {more:,} more" if more else "")

    def shorten(self) -> Self:
        """Return the list with its first name only."""
        return replace(self, first=self.first[:1])

    @property
    def count_text(self) -> str:
        """The number as text, such as `3 files`."""
        return "1 file" if self.count == 1 else f"{self.count:,} files"


@dataclass(frozen=True, slots=True)
class PinnedInput:
    """The version of a side input: its files, with a digest of their names, sizes, and modification times.

    `snapshot_id` is the snapshot of an Iceberg table.
    """

    files: int
    size_bytes: int
    digest: str
    snapshot_id: int | None = None

    def __str__(self) -> str:
        """Return the version as text, such as `3 files, 1,204 bytes (5c3e0a8b7d21)`."""
        count = "1 file" if self.files == 1 else f"{self.files:,} files"
        snapshot = f"snapshot {self.snapshot_id}, " if self.snapshot_id is not None else ""
        return f"{snapshot}{count}, {self.size_bytes:,} bytes ({self.digest})"


@dataclass(frozen=True, slots=True)
class MisplacedRecords:
    """Records of a file whose event times are outside of what its folder promises (`source.partition_filter`)."""

    path: str
    records: int
    first_ms: int
    last_ms: int

    def __str__(self) -> str:
        """Return the number, the path, and the event times."""
        first, last = instant_text(self.first_ms), instant_text(self.last_ms)
        count = "1 record" if self.records == 1 else f"{self.records:,} records"
        return f"{count} of {self.path}, {first if first == last else f'{first} to {last}'}"


def _time_text(value_ms: int) -> str:
    """Return an instant as text; outside the years 1 to 9999 only its year."""
    text = instant_text(value_ms)
    return f"in the year {1970 + value_ms // _YEAR_MS:,}" if text.endswith(" ms") else text


@dataclass(frozen=True, slots=True)
class ImplausibleTimes:
    """Records of a source whose times are far from those of all its other records, for the same reason.

    `time` is the key of the definition, such as `source.event_time`, and `total` the number of all records of the
    source. `first_ms` and `last_ms` are None for numbers that are too large for any time. `example` is the first
    of these times as it is written, and `file` has it. `unit` is the unit that fits, empty for other reasons.
    """

    time: str
    records: int
    total: int
    first_ms: int | None
    last_ms: int | None
    example: str
    file: str
    unit: str
    reason: str

    def __str__(self) -> str:
        """Return the number, the times, an example, and the reason."""
        count = "all" if self.records == self.total else f"{self.records:,} of"
        example = f"e.g., {self.example} in {self.file}"
        return f"{self.time} of {count} {self.total:,} records is {self._times}, {example}: {self.reason}"

    @property
    def _times(self) -> str:
        if self.first_ms is None or self.last_ms is None:
            return "too large for its unit"
        first, last = _time_text(self.first_ms), _time_text(self.last_ms)
        return first if first == last else f"from {first} to {last}"


@dataclass(frozen=True, slots=True)
class InexactNumbers:
    """Numbers in text files that the type of their column cannot hold, e.g., a `double` for ids of 19 digits.

    `text` is one of them, `stored` the number in its place, and `path` its file.
    """

    column: str
    type: str
    count: int
    text: str
    stored: str
    path: str

    @classmethod
    def sum(cls, found: Iterable[Self]) -> tuple[Self, ...]:
        """Return the numbers of each column together, with the first example."""
        columns: dict[tuple[str, str], Self] = {}
        for numbers in found:
            first = columns.get((numbers.column, numbers.type))
            total = numbers.count + (first.count if first else 0)
            columns[numbers.column, numbers.type] = replace(first or numbers, count=total)
        return tuple(columns.values())

    def __str__(self) -> str:
        """Return the number, the column, and the example."""
        count = "1 number" if self.count == 1 else f"{self.count:,} numbers"
        return (
            f"{count} of column {self.column!r} ({self.type}), e.g., {self.text} is stored as"
            f" {self.stored} ({self.path})"
        )


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A damaged file that a run skips because of its definition (`source.corrupt_files`).

    `rows` is the number in the footer, None if the footer is damaged.
    """

    path: str
    size_bytes: int
    modified_ms: int
    reason: str
    rows: int | None = None

    def __str__(self) -> str:
        """Return the path, the number of lost rows, and the reason."""
        rows = (
            "an unknown number of rows"
            if self.rows is None
            else f"{self.rows:,} row{'s' if self.rows > 1 else ''}"
        )
        return f"{self.path}, {rows}: {self.reason}"
