"""Sessions of conformance cases next to the limits of 64 bits, where even the search for islands overflows."""

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
"""A record with its fate, a firing, or the error of the whole stream."""


def extreme_sessions(known: DataFrame) -> DataFrame:
    """Every key of every case, folded whole by the reference; what fails is told, not raised.

    Returns:
        Rows of three sorts: a record (`fate` is set), a firing, or an `error`.
    """
    told = known.select(*_KEYS, "arrival_seq", "event_time_ms", "watermark_ms", "gap_ms", "allowed_lateness_ms")
    return told.groupBy(*_KEYS).applyInArrow(_fold, from_arrow_schema(_ROWS))


def _fold(key: pa.Table) -> pa.Table:
    """Rows of three sorts: a record with its fate, a firing, or the error of the whole stream."""
    same = {"case": key["case"][0].as_py(), "key": key["key"][0].as_py()}
    rows = key.sort_by("arrival_seq").to_pylist()
    records = [Record(0, 0, "", row["event_time_ms"]) for row in rows]
    try:
        window = Session(rows[0]["gap_ms"])
        played = fire_windows(records, _as_met(rows), window, rows[0]["allowed_lateness_ms"])
    except BackstreamError as error:
        return pa.Table.from_pylist([{**same, "error": str(error)}], _ROWS)
    told = [{**row, **same, "fate": fate.value} for row, fate in zip(rows, played.fates, strict=True)]
    for pane in played.panes:
        by_record = rows[pane.by]["arrival_seq"] if pane.timing is PaneTiming.LATE else None
        firing = dict(zip(WINDOW, pane.window, strict=True)) | {"watermark_ms": pane.watermark_ms}
        numbers = [rows[number]["arrival_seq"] for number in pane.records]
        told.append({**same, **firing, "by_record": by_record, "records": numbers})
    return pa.Table.from_pylist(told, _ROWS)


def _as_met(rows: Sequence[Mapping[str, int]]) -> Watermarks:
    """The watermarks that a key's records met. Those in between change nothing before the next record."""
    heard = Watermarks()
    for number, row in enumerate(rows):
        heard.at(number - 1, 0)
        heard.emit(row["watermark_ms"])
    heard.at(len(rows) - 1, 0)
    heard.emit(MAX_MS)
    return heard
