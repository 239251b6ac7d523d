"""Hold the records of a sample, and what was seen while they were read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from backstream.source.archive.encodings import UTF_8

_MAX_SHOWN = 100

Value = Any
Record = Mapping[str, Value]


class WrittenNumber(Decimal):
    """A number of a text file with all its digits; a double may not hold it."""


@dataclass(slots=True)
class Sample:
    """Records of some files of an archive, in the order of the files.

    `options` are those of Spark's reader. `records_path` is the field of a JSON value that holds an array of the
    records. `columns` are the names of a CSV file in their order. `derived` are columns of the records that SQL
    computes from others. `instants` are the columns that Spark reads as instants although Arrow has no zone for
    them. `unreadable` has a place, which is a file and a line, and a text per record that cannot be read.
    """

    records: list[Record] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    encoding: str = UTF_8
    options: dict[str, str] = field(default_factory=dict)
    records_path: str | None = None
    columns: tuple[str, ...] = ()
    derived: dict[str, str] = field(default_factory=dict)
    instants: set[str] = field(default_factory=set)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    files_read: int = 0
    is_complete: bool = True

    def add(self, record: Record, number: int) -> None:
        """Add a record of the file with this number."""
        self.records.append(record)
        self.files.append(number)

    def add_unreadable(self, path: str, line: int, text: str) -> None:
        """Add a text that is no record, or has bytes that are not in the encoding."""
        self.unreadable.append((f"{path}, line {line}", shown_text(text)))


def shown_text(value: object, limit: int = _MAX_SHOWN) -> str:
    """Return the begin of a value in one line of at most `limit` characters, with `?` for unprintable ones."""
    text = str(value)[: 10 * limit].strip()
    shown = "".join(" " if each in "\t\r\n" else each if each.isprintable() else "?" for each in text)
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"
