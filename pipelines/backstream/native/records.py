"""The records of a task: the readable ones of its files, each with the mark of a copy where copies are told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from backstream.errors import ContractError
from backstream.eventtime.intervals import Interval
from backstream.native.sql import FILE_NUMBER, PARTITION_TEXT, Groups, column_alias, readable_within, scan_query
from backstream.native.task import ReadSpec

if TYPE_CHECKING:
    import duckdb


PLACE = ("arrival_ms", "arrival_seq", "source_partition")
"""Columns of a record's place in arrival order; of the partition it is the text that counts."""


class RecordsQuery:
    """Queries for the records of some files.

    Args:
        reading: how a row is read.
        groups: the files.
        columns: names of columns that are wanted besides those that say when and where.
        deduplicate_on: of those with the same values here and the same event time, only the first counts.
    """

    def __init__(
        self, reading: ReadSpec, groups: Groups, columns: Iterable[str], deduplicate_on: Sequence[str]
    ) -> None:
        self._reading, self._groups = reading, groups
        self._columns = list(dict.fromkeys([*columns, *deduplicate_on]))
        self._told_apart = [column_alias(reading, name) for name in deduplicate_on]
        self.has_copies = False

    def mark_copies(self, opened: duckdb.DuckDBPyConnection, span: Interval) -> None:
        """Keep all records of a span in a table with `is_duplicate`, if there are copies among them.

        `of` then gives that column, too. Few have copies, so that few have to be ordered.
        """
        if not self._told_apart:
            return
        by = ", ".join(["event_ms", *self._told_apart])
        scanned = self._scanned(span)
        opened.execute(
            f"CREATE TEMP TABLE copies AS SELECT {by} FROM ({scanned}) GROUP BY {by} HAVING count(*) > 1"
        )
        if not opened.execute("SELECT 1 FROM copies LIMIT 1").fetchall():
            return
        on = " AND ".join(f"r.{name} IS NOT DISTINCT FROM c.{name}" for name in ("event_ms", *self._told_apart))
        order = ", ".join([*PLACE[:2], PARTITION_TEXT])
        opened.execute(
            "CREATE TEMP TABLE kept AS"
            f" SELECT *, false AS is_duplicate FROM ({scanned}) r ANTI JOIN copies c ON {on}"
            f" UNION ALL SELECT *, row_number() OVER (PARTITION BY {by} ORDER BY {order}) > 1"
            f" FROM (SELECT * FROM ({scanned}) r SEMI JOIN copies c ON {on})"
        )
        self.has_copies = True

    def select(self, interval: Interval) -> str:
        """Return all records of an interval of event time."""
        if not self.has_copies:
            return self._scanned(interval)
        return f"SELECT * FROM kept WHERE event_ms >= {interval.start_ms} AND event_ms < {interval.end_ms}"

    def select_once(self, interval: Interval) -> str:
        """Return those that are no copies of another."""
        records = self.select(interval)
        return f"SELECT * FROM ({records}) WHERE NOT is_duplicate" if self.has_copies else records

    def _scanned(self, interval: Interval) -> str:
        columns = ", ".join(["event_ms", *PLACE, *(column_alias(self._reading, name) for name in self._columns)])
        rows = scan_query(self._groups, self._reading, readable_within(self._reading, interval))
        return f"SELECT {columns} FROM ({rows})"


_ARROW_TYPES: dict[str, Sequence[str]] = {
    "timestamp": ("timestamp[us, tz=UTC]", "timestamp[ms, tz=UTC]"),
    "timestamp_ntz": ("timestamp[us]", "timestamp[ms]"),
    "tinyint": ("int8",),
    "smallint": ("int8", "int16"),
    "int": ("int8", "int16", "int32"),
    "bigint": ("int8", "int16", "int32", "int64"),
    "string": ("string", "large_string"),
    "date": ("date32[day]",),
    "boolean": ("bool",),
    "float": ("float",),
    "double": ("float", "double"),
}
"""Which types of a file's column are read as a Spark SQL type."""


def group_files_by_schema(files: Sequence[str], reading: ReadSpec) -> list[tuple[list[str], list[str]]]:
    """Put files together that have the same of the columns that are read, each of the same type.

    DuckDB reads all files of a list with the types of the first one, and refuses a value that is too large for it.

    Raises:
        ContractError: naming a file, a column and its type that the engine does not read.
    """
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for file in files:
        found.setdefault(tuple(_columns(file, reading)), []).append(file)
    return [(alike, [name for name, _ in columns]) for columns, alike in found.items()]


def _columns(file: str, reading: ReadSpec) -> Iterator[tuple[str, str]]:
    """Return which of the columns that are read a file has, and their types."""
    schema = pq.read_schema(file)
    if any(name.lower() == FILE_NUMBER for name in schema.names):
        msg = f"the native engine reads no file with a column {FILE_NUMBER!r}\n  {file}"
        raise ContractError(msg)
    for name, kind in reading.types.items():
        alike = [each for each in schema.names if each.lower() == name.lower()]
        if not alike:
            continue
        if alike != [name]:
            msg = f"the native engine takes columns for the same if only their case differs: {alike}\n  {file}"
            raise ContractError(msg)
        said = str(schema.field(name).type)
        allowed = _ARROW_TYPES.get(kind, (kind.replace("decimal", "decimal128").replace(",", ", "),))
        if said not in allowed:
            msg = f"the native engine reads a {kind} of {', '.join(allowed)}, column {name!r} is {said}\n  {file}"
            raise ContractError(msg)
        yield name, said
