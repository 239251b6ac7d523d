"""Find by footers, without reading records, columns without nulls and files that no window task counts whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from backstream.eventtime.instants import epoch_ms
from backstream.eventtime.intervals import Interval
from backstream.native.task import ReadSpec
from backstream.storage.stores import NO_STORES, Stores, map_files


def list_files_with_rest(
    files: Sequence[str], reading: ReadSpec, interval: Interval, stores: Stores = NO_STORES
) -> list[str]:
    """Return the files that may have an unreadable record, or one with an event time outside of an interval.

    A file without statistics may have such records.
    """
    if reading.zone:
        interval = reading.zone.certain_span(interval)
    inside = Interval(max(interval.start_ms, reading.valid.start_ms), min(interval.end_ms, reading.valid.end_ms))
    footers = zip(files, map_files(stores.read_footer, dict(zip(files, files, strict=True))), strict=True)
    return [
        file
        for file, footer in footers
        if not _has_only_records_of(pq.read_metadata(pa.BufferReader(footer.content)), reading, inside)
    ]


def find_complete_columns(footer: Any, names: Iterable[str]) -> frozenset[str]:
    """Return the columns of which a file's statistics say that they have no null."""
    columns = _column_numbers(footer)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    return frozenset(
        name
        for name in names
        if name in columns and all(_has_no_null(group.column(columns[name]).statistics) for group in groups)
    )


def _column_numbers(footer: Any) -> dict[str, int]:
    return {footer.schema.column(number).path: number for number in range(footer.num_columns)}


def _has_only_records_of(footer: Any, reading: ReadSpec, interval: Interval) -> bool:
    columns = _column_numbers(footer)
    required = [name for name in (reading.arrival_time, reading.partition, reading.sequence) if name]
    if not {reading.event_time, *required} <= columns.keys():
        return False
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    return all(
        _is_inside(group.column(columns[reading.event_time]).statistics, interval)
        and all(_has_no_null(group.column(columns[name]).statistics) for name in required)
        for group in groups
        if group.num_rows
    )


def _has_no_null(statistics: Any) -> bool:
    return statistics is not None and statistics.has_null_count and not statistics.null_count


def _is_inside(statistics: Any, interval: Interval) -> bool:
    """Return whether all instants of a row group are in an interval."""
    if not _has_no_null(statistics) or not statistics.has_min_max:
        return False
    try:
        first, last = statistics.min, statistics.max
    except (OverflowError, ValueError):  # a time outside of Python's years, 1 to 9999
        return False
    if not isinstance(first, datetime) or not isinstance(last, datetime):
        return False
    return interval.start_ms <= _floor_ms(first) and _floor_ms(last) < interval.end_ms


def _floor_ms(instant: datetime) -> int:
    return epoch_ms(instant if instant.tzinfo else instant.replace(tzinfo=UTC))
