"""Counting what an input file delivered: for the seals of days, which ask who has sent what, and when last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backstream.core.instants import DAY_MS
from backstream.core.records import ONLY_PARTITION
from backstream.definition.model import Definition, Source
from backstream.steps.instants import InstantColumn
from backstream.steps.reading import row_groups

_PLACED = pa.schema([("partition", pa.string()), ("day_ms", pa.int64()), ("at_ms", pa.int64())])


def count_delivered(path: Path, definition: Definition) -> list[list[Any]]:
    """Per partition and UTC day of event time the records that can be read, and their last arrival.

    Raises:
        UnreadableError: when the file is damaged.
        PlanError: when only Spark can evaluate the event or arrival times.
    """
    source = definition.timed_source
    event = InstantColumn.of(source.event_time, "source.event_time")
    arrival = InstantColumn.of(source.arrival_time or "", "source.arrival_time")
    names = sorted({event.name, arrival.name, *({source.partition} if source.partition else ())})
    parts = [_placed(rows, source, event, arrival) for rows in row_groups(path, names)]
    whole = pa.concat_tables([_PLACED.empty_table(), *parts])
    found = whole.group_by(["partition", "day_ms"]).aggregate([("at_ms", "count"), ("at_ms", "max")])
    columns = [found[name].to_pylist() for name in ("partition", "day_ms", "at_ms_count", "at_ms_max")]
    return [list(row) for row in zip(*columns, strict=True)]


def _placed(rows: pa.Table, source: Source, event: InstantColumn, arrival: InstantColumn) -> pa.Table:
    """The records that can be read."""
    for name in rows.column_names:
        rows = rows.filter(pc.is_valid(rows[name]))
    if not rows.num_rows:
        return _PLACED.empty_table()
    event_ms, arrival_ms = event.values_ms(rows[event.name]), arrival.values_ms(rows[arrival.name])
    columns = [_partitions(rows, source.partition), pa.array(event_ms // DAY_MS * DAY_MS), pa.array(arrival_ms)]
    return pa.table(columns, schema=_PLACED).filter(pa.array(_is_sane(event_ms, source.event_time_range)))


def _is_sane(event_ms: np.ndarray, bounds_ms: tuple[int, int]) -> np.ndarray:
    return (event_ms >= bounds_ms[0]) & (event_ms < bounds_ms[1])


def _partitions(rows: pa.Table, column: str | None) -> pa.ChunkedArray | pa.Array:
    if column is None:
        return pa.array([ONLY_PARTITION] * rows.num_rows, pa.string())
    return rows[column].cast(pa.string())
