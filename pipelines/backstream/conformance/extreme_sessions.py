"""Compute sessions of conformance cases near the limits of 64 bits, where the search for islands overflows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from backstream.errors import BackstreamError
from backstream.eventtime.instants import MAX_MS
from backstream.eventtime.records import Record
from backstream.eventtime.watermarks import Watermarks
from backstream.eventtime.window_operator import PaneTiming, fire_windows
from backstream.eventtime.windows import Session
from backstream.spark.windows.aggregation import WINDOW

_KEYS = ("case", "key")
_ROWS = pa.schema(
    [
        *((name, pa.int64()) for name in ("case", "arrival_seq", "watermark_ms", *WINDOW, "by_record")),
        *((name, pa.string()) for name in ("key", "fate", "error")),
        ("records", pa.list_(pa.int64())),
    ]
)
"""The columns of a record with its fate, a firing, or the error of the whole stream."""


def extreme_sessions(events: DataFrame) -> DataFrame:
    """Run the reference engine on every key of every case; errors become rows.

    Returns:
        Rows of three kinds: a record (`fate` is set), a firing, or an `error`.
    """
    columns = events.select(
        *_KEYS, "arrival_seq", "event_time_ms", "watermark_ms", "gap_ms", "allowed_lateness_ms"
    )
    return columns.groupBy(*_KEYS).applyInArrow(_run_key, from_arrow_schema(_ROWS))


def _run_key(key: pa.Table) -> pa.Table:
    """Return rows of three kinds: a record with its fate, a firing, or the error of the whole stream."""
    stream = {"case": key["case"][0].as_py(), "key": key["key"][0].as_py()}
    rows = key.sort_by("arrival_seq").to_pylist()
    records = [Record(0, 0, "", row["event_time_ms"]) for row in rows]
    try:
        window = Session(rows[0]["gap_ms"])
        result = fire_windows(records, _watermarks_of_key(rows), window, rows[0]["allowed_lateness_ms"])
    except BackstreamError as error:
        return pa.Table.from_pylist([{**stream, "error": str(error)}], _ROWS)
    output = [{**row, **stream, "fate": fate.value} for row, fate in zip(rows, result.fates, strict=True)]
    for pane in result.panes:
        by_record = rows[pane.by]["arrival_seq"] if pane.timing is PaneTiming.LATE else None
        firing = dict(zip(WINDOW, pane.window, strict=True)) | {"watermark_ms": pane.watermark_ms}
        numbers = [rows[number]["arrival_seq"] for number in pane.records]
        output.append({**stream, **firing, "by_record": by_record, "records": numbers})
    return pa.Table.from_pylist(output, _ROWS)


def _watermarks_of_key(rows: Sequence[Mapping[str, int]]) -> Watermarks:
    """Return the watermarks in force at a key's records; the others have no effect before the next record."""
    watermarks = Watermarks()
    for number, row in enumerate(rows):
        watermarks.at(number - 1, 0)
        watermarks.emit(row["watermark_ms"])
    watermarks.at(len(rows) - 1, 0)
    watermarks.emit(MAX_MS)
    return watermarks
