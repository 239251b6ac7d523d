"""Query the readable records of a task's files, with a mark for duplicates if the definition removes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.errors import ContractError
from backstream.eventtime.duplicates import Identity, RecordGap
from backstream.eventtime.intervals import Interval
from backstream.native.duplicates import DuplicateQueries
from backstream.native.footers import find_complete_columns
from backstream.native.record_scans import (
    FILE_NUMBER,
    ROW_NUMBER,
    Groups,
    ScanGroup,
    column_alias,
    is_counted,
    list_group_files,
    scan_query,
)
from backstream.native.task import ReadSpec

if TYPE_CHECKING:
    import duckdb


PLACE = ("arrival_ms", "arrival_seq", "source_partition")
"""The columns of a record's position in arrival order; source partitions are compared as text."""


class RecordsQuery:
    """Queries of the records of some files.

    Args:
        reading: how to read a record.
        groups: the files.
        columns: the names of columns besides those of event time and arrival order.
        identity: the rule for duplicates.
        locate: returns the location of a local file.
    """

    def __init__(
        self,
        reading: ReadSpec,
        groups: Groups,
        columns: Iterable[str],
        identity: Identity,
        locate: Callable[[str], str] = str,
    ) -> None:
        self._reading, self._groups = reading, groups
        condition = [reading.filter] if reading.filter else []
        self._columns = list(dict.fromkeys([*columns, *identity.columns, *condition]))
        locations = [locate(path) for path in list_group_files(groups)]
        self._duplicates = DuplicateQueries(identity, reading, groups, locations)
        self.has_duplicates = False

    def mark_duplicates(self, database: duckdb.DuckDBPyConnection, span: Interval) -> None:
        """Store all records of a span in a table with `is_duplicate`, if it contains duplicates.

        Then `select` returns that column too. Few records have duplicates, and only those are sorted.
        """
        duplicates = self._duplicates
        if not duplicates.identity.columns:
            return
        database.execute(f"CREATE TEMP TABLE copies AS {duplicates.ids_of_copies(duplicates.scan(span))}")
        if not database.execute("SELECT 1 FROM copies LIMIT 1").fetchall():
            return
        marked = duplicates.records(span, "copies")
        database.execute(
            f"CREATE TEMP TABLE marked_records AS SELECT {self._column_list}, is_duplicate FROM ({marked})"
        )
        self.has_duplicates = True

    def select(self, interval: Interval) -> str:
        """Return a query of all records in an interval of event time."""
        if not self.has_duplicates:
            return self._scan(interval)
        return (
            f"SELECT * FROM marked_records WHERE event_ms >= {interval.start_ms} AND event_ms < {interval.end_ms}"
        )

    def select_once(self, interval: Interval) -> str:
        """Return a query of the records in an interval that windows get."""
        conditions = [*(["NOT is_duplicate"] if self.has_duplicates else []), *self.is_counted]
        records = self.select(interval)
        return f"SELECT * FROM ({records}) WHERE {' AND '.join(conditions)}" if conditions else records

    @property
    def is_counted(self) -> list[str]:
        """The condition of `[filter]`; empty without one."""
        return [is_counted(self._reading)] if self._reading.filter else []

    def count_gaps(self, keys: Sequence[str]) -> dict[str, str]:
        """Return the number of records with each `RecordGap` as expressions over the records of `select`.

        Args:
            keys: the names of the key columns.
        """
        ids = [column_alias(self._reading, name) for name in self._duplicates.identity.columns]
        has_no_id = " AND ".join(f"{name} IS NULL" for name in ids) or "false"
        has_empty_id = " AND ".join(map(self._is_empty, self._duplicates.identity.columns)) or "false"
        conditions = {
            RecordGap.NO_ID: has_no_id,
            RecordGap.EMPTY_ID: f"{has_empty_id} AND NOT ({has_no_id})",
            RecordGap.NO_KEY: " OR ".join(map(self._is_empty, keys)) or "false",
        }
        return {gap.value: f"count(*) FILTER (WHERE {condition})" for gap, condition in conditions.items()}

    def _is_empty(self, name: str) -> str:
        """Return the condition that a column is null or an empty text."""
        column = column_alias(self._reading, name)
        is_text = self._reading.types[name] == "string"
        return f"({column} IS NULL OR {column} = '')" if is_text else f"{column} IS NULL"

    def _scan(self, interval: Interval) -> str:
        return f"SELECT {self._column_list} FROM ({scan_query(self._groups, self._reading, interval)})"

    @property
    def _column_list(self) -> str:
        return ", ".join(["event_ms", *PLACE, *(column_alias(self._reading, name) for name in self._columns)])


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
"""The types of a file's column that can be read as a Spark SQL type."""


def group_files_by_schema(files: Sequence[str], reading: ReadSpec) -> list[ScanGroup]:
    """Group files that have the same columns of those that are read, each with the same type.

    DuckDB reads all files of a list with the types of the first file, and fails if a value is too large for them.

    Raises:
        ContractError: with a file, a column, and its type, if the engine cannot read it.
    """
    files_by_schema: dict[tuple[tuple[str, str], ...], list[str]] = {}
    complete_by_schema: dict[tuple[tuple[str, str], ...], frozenset[str]] = {}
    for file in files:
        footer = pq.read_metadata(file)
        columns = tuple(_list_columns(file, footer.schema.to_arrow_schema(), reading))
        complete = find_complete_columns(footer, [name for name, _ in columns])
        files_by_schema.setdefault(columns, []).append(file)
        complete_by_schema[columns] = complete_by_schema.get(columns, complete) & complete
    return [
        ScanGroup(group, [name for name, _ in columns], complete_by_schema[columns])
        for columns, group in files_by_schema.items()
    ]


def _list_columns(file: str, schema: pa.Schema, reading: ReadSpec) -> Iterator[tuple[str, str]]:
    """Yield the columns that are read and that a file has, with their types."""
    if taken := [name for name in schema.names if name.lower() in (FILE_NUMBER, ROW_NUMBER)]:
        msg = f"the native engine cannot read a file with a column {taken[0]!r}\n  {file}"
        raise ContractError(msg)
    for name, type_name in reading.types.items():
        matches = [field_name for field_name in schema.names if field_name.lower() == name.lower()]
        if not matches:
            continue
        if matches != [name]:
            msg = f"the native engine cannot read columns whose names differ only in case: {matches}\n  {file}"
            raise ContractError(msg)
        file_type = str(schema.field(name).type)
        allowed = _ARROW_TYPES.get(type_name, (type_name.replace("decimal", "decimal128").replace(",", ", "),))
        if file_type not in allowed:
            msg = (
                f"column {name!r} must be {' or '.join(allowed)} for the native engine, got {file_type}\n  {file}"
            )
            raise ContractError(msg)
        yield name, file_type
