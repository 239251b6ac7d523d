"""Count the readable records of an input file per partition and day."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backstream.definition.model import Definition
from backstream.definition.source_section import Source
from backstream.eventtime.instants import DAY_MS
from backstream.eventtime.records import ONLY_PARTITION
from backstream.eventtime.time_zones import TimeZone
from backstream.source.local_times import list_local_ms
from backstream.source.reader import scan_row_groups
from backstream.source.time_columns import TimeColumn

_RECORDS = pa.schema([("partition", pa.string()), ("day_ms", pa.int64()), ("at_ms", pa.int64())])


def count_deliveries(path: str, definition: Definition) -> list[list[Any]]:
    """Return the number of readable records and their last arrival, per partition and day of event time.

    Raises:
        UnreadableError: when the file is damaged.
        PlanError: when only Spark can evaluate the event or arrival times.
    """
    source = definition.timed_source
    event = TimeColumn.from_expression(source.event_time, "source.event_time")
    arrival = TimeColumn.from_expression(source.arrival_time or "", "source.arrival_time")
    names = sorted({event.name, arrival.name, *({source.partition} if source.partition else ())})
    zone = definition.window.spec().zone
    parts = [_readable_records(rows, source, event, arrival, zone) for rows in scan_row_groups(path, names)]
    records = pa.concat_tables([_RECORDS.empty_table(), *parts])
    counts = records.group_by(["partition", "day_ms"]).aggregate([("at_ms", "count"), ("at_ms", "max")])
    columns = [counts[name].to_pylist() for name in ("partition", "day_ms", "at_ms_count", "at_ms_max")]
    return [list(row) for row in zip(*columns, strict=True)]


def _readable_records(
    rows: pa.Table, source: Source, event: TimeColumn, arrival: TimeColumn, zone: TimeZone | None
) -> pa.Table:
    """Return partition, day and arrival of the records without nulls and within the event time range."""
    for name in rows.column_names:
        rows = rows.filter(pc.is_valid(rows[name]))
    if not rows.num_rows:
        return _RECORDS.empty_table()
    event_ms, arrival_ms = event.values_ms(rows[event.name]), arrival.values_ms(rows[arrival.name])
    day_ms = list_local_ms(zone, event_ms) // DAY_MS * DAY_MS
    columns = [_partitions(rows, source.partition), pa.array(day_ms), pa.array(arrival_ms)]
    return pa.table(columns, schema=_RECORDS).filter(pa.array(_is_in_range(event_ms, source.event_time_range)))


def _is_in_range(event_ms: np.ndarray, bounds_ms: tuple[int, int]) -> np.ndarray:
    return (event_ms >= bounds_ms[0]) & (event_ms < bounds_ms[1])


def _partitions(rows: pa.Table, column: str | None) -> pa.ChunkedArray | pa.Array:
    if column is None:
        return pa.array([ONLY_PARTITION] * rows.num_rows, pa.string())
    return rows[column].cast(pa.string())
