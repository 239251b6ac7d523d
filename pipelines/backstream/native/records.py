"""The records of a task: the readable ones of its files, each with the mark of a copy where copies are told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from backstream.core.intervals import Interval
from backstream.native.sql import PARTITION_TEXT, Groups, alias, readable_within, scan
from backstream.native.task import Reading

if TYPE_CHECKING:
    import duckdb

PLACE = ("arrival_ms", "arrival_seq", "source_partition")
"""Columns of a record's place in arrival order; of the partition it is the text that counts."""


class Records:
    """Queries for the records of some files.

    Args:
        reading: how a row is read.
        groups: the files.
        columns: names of columns that are wanted besides those that say when and where.
        deduplicate_on: of those with the same values here and the same event time, only the first counts.
    """

    def __init__(
        self, reading: Reading, groups: Groups, columns: Iterable[str], deduplicate_on: Sequence[str]
    ) -> None:
        self._reading, self._groups = reading, groups
        self._columns = list(dict.fromkeys([*columns, *deduplicate_on]))
        self._told_apart = [alias(reading, name) for name in deduplicate_on]
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

    def of(self, interval: Interval) -> str:
        """Return all records of an interval of event time."""
        if not self.has_copies:
            return self._scanned(interval)
        return f"SELECT * FROM kept WHERE event_ms >= {interval.start_ms} AND event_ms < {interval.end_ms}"

    def once(self, interval: Interval) -> str:
        """Return those that are no copies of another."""
        records = self.of(interval)
        return f"SELECT * FROM ({records}) WHERE NOT is_duplicate" if self.has_copies else records

    def _scanned(self, interval: Interval) -> str:
        columns = ", ".join(["event_ms", *PLACE, *(alias(self._reading, name) for name in self._columns)])
        rows = scan(self._groups, self._reading, readable_within(self._reading, interval))
        return f"SELECT {columns} FROM ({rows})"
