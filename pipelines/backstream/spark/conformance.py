"""The Spark engine on conformance cases: the same steps as in a run, on one small stream at a time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from backstream.core.conformance import Case, Engine, Firing, Outcome, UnsupportedCaseError
from backstream.core.generators import StrategyKind
from backstream.core.instants import MAX_MS
from backstream.core.panes import PaneTiming
from backstream.core.records import Record
from backstream.core.windows import Session, Sliding
from backstream.spark.fates import fated, timed
from backstream.spark.panes import WINDOW, late_firings, on_time_firings
from backstream.spark.sessions import sessions
from backstream.spark.watermarks import Heard, compressed, heard, watermarked
from backstream.spark.windows import windowed

_SCHEMA = pa.schema(
    [
        ("event_time_ms", pa.int64()),
        ("arrival_time_ms", pa.int64()),
        ("source_partition", pa.string()),
        ("arrival_seq", pa.int64()),
        ("key", pa.string()),
        ("value", pa.int64()),
        ("marker_ms", pa.int64()),
    ]
)
_SAFE_MS = 2**60
"""Event times beyond this may overflow in window arithmetic; no calendar reaches it."""


def engine(spark: SparkSession) -> Engine:
    """What plays a case on this session."""
    return lambda case: _play(spark, case)


def _play(spark: SparkSession, case: Case) -> Outcome:
    _require_supported(case)
    rows = [_row(case, *each) for each in enumerate(case.records)]
    events = spark.createDataFrame(pa.Table.from_pylist(rows, _SCHEMA))
    cells = compressed(events, case.emission, case.clock).toArrow()
    partitions = [str(partition) for partition in case.partitions]
    watermarks = heard(cells, case.emission, case.clock, partitions)
    known = events.transform(watermarked(spark, watermarks, case.clock))
    if isinstance(case.window, Session):
        records, firings = sessions(
            known,
            ["key"],
            case.window,
            case.allowed_lateness_ms,
            {"records": _NUMBERS},
            is_offline=not len(watermarks.watermark_ms),
        )
    else:
        judged = known.transform(fated(case.window, case.allowed_lateness_ms))
        records = judged
        firings = _firings(judged.transform(windowed(case.window)).transform(timed(case.allowed_lateness_ms)))
    met = {row.arrival_seq: row for row in records.select("arrival_seq", "watermark_ms", "fate").collect()}
    return Outcome(
        firings=sorted(_labelled(firings.collect(), watermarks), key=_stream_order(case)),
        late=[number for number, row in sorted(met.items()) if row.fate == "dropped"],
        record_wm=[met[number].watermark_ms for number in range(len(case.records))],
        is_final=watermarks.is_final,
    )


def _require_supported(case: Case) -> None:
    extreme = max((abs(record.event_time_ms) for record in case.records), default=0)
    if case.timers:
        msg = "timers of process functions"
        raise UnsupportedCaseError(msg)
    if extreme > _SAFE_MS:
        msg = f"event times near the limits of 64 bits ({extreme} ms)"
        raise UnsupportedCaseError(msg)
    if isinstance(case.window, Session) and case.allowed_lateness_ms > _SAFE_MS:
        msg = f"sessions with a lateness near the limits of 64 bits ({case.allowed_lateness_ms} ms)"
        raise UnsupportedCaseError(msg)


_NUMBERS = "sort_array(collect_list(arrival_seq))"


def _row(case: Case, number: int, record: Record) -> dict[str, int | str | None]:
    marker = record.marker if case.emission.strategy.kind is StrategyKind.PUNCTUATED else None
    if marker is True:
        marker = record.event_time_ms - case.emission.strategy.delay_ms
    return {
        "event_time_ms": record.event_time_ms,
        "arrival_time_ms": record.arrival_time_ms,
        "source_partition": str(record.source_partition),
        "arrival_seq": number,
        "key": str(record.key),
        "value": record.value,
        "marker_ms": None if marker is False else marker,
    }


def _firings(assigned: DataFrame) -> DataFrame:
    """On-time and late firings in one frame; `by_record` is null for those that a watermark caused."""
    columns = ["key", *WINDOW, "watermark_ms", "by_record", "records"]
    numbers = {"records": _NUMBERS}
    on_time = on_time_firings(assigned, ["key"], numbers).withColumns(
        {"watermark_ms": F.lit(None).cast("long"), "by_record": F.lit(None).cast("long")}
    )
    late = late_firings(assigned, ["key"], {"records": "collect_list(arrival_seq)"})
    late = late.withColumn("by_record", F.col("arrival_seq")).withColumn("records", F.sort_array("records"))
    return on_time.select(*columns).unionByName(late.select(*columns))


def _labelled(rows: Iterable[Row], watermarks: Heard) -> Iterable[Firing]:
    """Firings with the watermark that caused them; one that no watermark ever reaches did not happen."""
    events = [int(value) for value in watermarks.watermark_ms]
    if watermarks.is_final and events[-1:] != [MAX_MS]:
        events.append(MAX_MS)
    for row in rows:
        window = (row.window_start_ms, row.window_end_ms)
        if row.by_record is not None:
            wm = row.watermark_ms
            yield Firing(row.by_record, PaneTiming.LATE, *window, row.key, tuple(row.records), wm)
            continue
        by = bisect_left(events, row.window_end_ms - 1)
        if by < len(events):
            yield Firing(by, PaneTiming.ON_TIME, *window, row.key, tuple(row.records), events[by])


def _stream_order(case: Case) -> Callable[[Firing], tuple[int, bool, int, int]]:
    """As the stream fired: a watermark fires what it reaches, by window end; then late records, one by one.

    A late record's windows come in the order in which they are assigned, for sliding ones the latest first.
    """
    descends = isinstance(case.window, Sliding)

    def position(firing: Firing) -> tuple[int, bool, int, int]:
        if firing.kind == PaneTiming.ON_TIME:
            return firing.wm, False, 0, firing.end
        return firing.wm, True, firing.by, -firing.end if descends else firing.end

    return position
