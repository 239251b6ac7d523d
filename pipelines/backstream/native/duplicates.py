"""Generate the queries that find duplicates, by the rule of `eventtime.duplicates.Identity`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backstream.definition import prepared_columns
from backstream.eventtime.duplicates import Identity
from backstream.eventtime.intervals import Interval
from backstream.native.record_scans import INSTANT_OF_EVENT, ROW_NUMBER, Groups, column_alias, scan_query
from backstream.native.sql import PARTITION_TEXT
from backstream.native.task import ReadSpec
from backstream.storage.files import file_uri

_ROW, _PLACE = "row_in_file", "place_among_copies"


@dataclass(frozen=True, slots=True)
class DuplicateQueries:
    """Queries of the records of some files with a mark for duplicates.

    `locations` are those of the files in `list_group_files(groups)`.
    """

    identity: Identity
    reading: ReadSpec
    groups: Groups
    locations: Sequence[str]

    @property
    def by(self) -> str:
        """The columns that copies of a record share: those of the id, and without a tolerance the event time."""
        return ", ".join(self._by)

    @property
    def has_id(self) -> str:
        """The condition that a record has an id."""
        return f"({' OR '.join(f'{name} IS NOT NULL' for name in self._ids)})"

    def is_same(self, one: str, other: str) -> str:
        """Return the condition that the columns `by` of two relations are equal."""
        return " AND ".join(f"{one}.{name} IS NOT DISTINCT FROM {other}.{name}" for name in self._by)

    def scan(self, interval: Interval) -> str:
        """Return a query of all records that decide about those of an interval."""
        reach, valid = self.identity.reach(interval), self.reading.valid
        if self.reading.zone:
            valid = self.reading.zone.local_span(valid)
        # DuckDB cannot express all instants of Python's integers.
        start_ms = max(reach.start_ms, min(valid.start_ms, interval.start_ms))
        end_ms = min(reach.end_ms, max(valid.end_ms, interval.end_ms))
        return scan_query(self.groups, self.reading, Interval(start_ms, end_ms), f"{ROW_NUMBER} AS {_ROW}")

    def ids_of_copies(self, records: str) -> str:
        """Return a query of the values of `by` that several records have."""
        return f"SELECT {self.by} FROM ({records}) WHERE {self.has_id} GROUP BY {self.by} HAVING count(*) > 1"

    def records(self, interval: Interval, ids: str) -> str:
        """Return a query of the records of an interval with `is_duplicate`.

        Args:
            interval: the interval of event time.
            ids: a table with the values of `by` of all records that may be duplicates. Only those are sorted.
        """
        is_same = self.is_same("r", "c")
        once = scan_query(self.groups, self.reading, interval)
        copies = f"SELECT * FROM ({self.scan(interval)}) r SEMI JOIN {ids} c ON {is_same}"
        placed = f"SELECT *, row_number() OVER (PARTITION BY {self.by} ORDER BY {self._order}) AS {_PLACE}"
        within = self.identity.within_ms
        near = f"RANGE BETWEEN {within}::BIGINT PRECEDING AND {within}::BIGINT FOLLOWING"
        first = f"min({_PLACE}) OVER (PARTITION BY {self.by} ORDER BY event_ms {near})"
        return (
            f"SELECT *, false AS is_duplicate FROM ({once}) r ANTI JOIN {ids} c ON {is_same}"
            f" UNION ALL BY NAME SELECT * EXCLUDE ({_PLACE}, {_ROW})"
            f" FROM (SELECT *, {_PLACE} > {first} AS is_duplicate FROM ({placed} FROM ({copies})))"
            f" WHERE event_ms >= {interval.start_ms} AND event_ms < {interval.end_ms}"
        )

    @property
    def _ids(self) -> list[str]:
        return [column_alias(self.reading, name) for name in self.identity.columns]

    @property
    def _by(self) -> list[str]:
        instant = INSTANT_OF_EVENT if self.reading.zone else "event_ms"
        return [*([] if self.identity.within_ms else [instant]), *self._ids]

    @property
    def _order(self) -> str:
        """The order in which the first of several copies counts."""
        raw_file = prepared_columns.FILE
        names = [column_alias(self.reading, raw_file)] if raw_file in self.reading.types else []
        # Spark compares the URIs of files.
        ranks = {path: rank for rank, path in enumerate(sorted(self.locations, key=file_uri))}
        rank = f"list_extract([{', '.join(str(ranks[path]) for path in self.locations)}], file::BIGINT + 1)"
        order = "ASC NULLS FIRST" if self.identity.keep == "first" else "DESC NULLS LAST"
        columns = ["arrival_ms", "arrival_seq", PARTITION_TEXT, *names, rank, _ROW]
        return ", ".join(f"{column} {order}" for column in columns)
