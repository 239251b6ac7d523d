"""Which files of a source are data, and what a plan keeps of those that a run does not read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Self

SHOWN = 10
SUFFIXES = (".parquet", ".parq", ".pq")
"""Of Parquet files; compressed ones are called `.snappy.parquet` and the like."""
HIDDEN = "a name that begins with _ or ."
OTHER_SUFFIX = f"another suffix than {', '.join(SUFFIXES)}"


def reason_ignored(parts: Sequence[str]) -> str | None:
    """Return why a file is not data, by its path within the source; None: it is data.

    Spark, too, leaves out what begins with `_` or `.`: writers keep their own notes under such names.
    """
    if any(part.startswith(("_", ".")) for part in parts):
        return HIDDEN
    return None if PurePath(parts[-1]).suffix.lower() in SUFFIXES else OTHER_SUFFIX


@dataclass(frozen=True, slots=True)
class FileList:
    """Some files: how many, and the first ten by name."""

    count: int = 0
    first: tuple[str, ...] = ()

    @classmethod
    def from_paths(cls, paths: Iterable[object]) -> Self:
        """Return these files; only the first ten names are kept."""
        names = sorted(map(str, paths))
        return cls(len(names), tuple(names[:SHOWN]))

    def __bool__(self) -> bool:
        """Return whether there is any."""
        return self.count > 0

    def __str__(self) -> str:
        """Return the names, such as `a.json, b.json and 3 more`."""
        more = self.count - len(self.first)
        return ", ".join(self.first) + (f" and {more:,} more" if more else "")

    @property
    def counted(self) -> str:
        """Such as `3 files`."""
        return "1 file" if self.count == 1 else f"{self.count:,} files"


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A damaged file that a run leaves out, since its definition says so (`source.corrupt_files`).

    `rows` is what the footer says, None where the footer itself is damaged.
    """

    path: str
    size_bytes: int
    modified_ms: int
    reason: str
    rows: int | None = None

    def __str__(self) -> str:
        """Return the path with the reason and the rows that are lost."""
        rows = (
            "an unknown number of rows"
            if self.rows is None
            else f"{self.rows:,} row{'s' if self.rows > 1 else ''}"
        )
        return f"{self.path}, {rows}: {self.reason}"
