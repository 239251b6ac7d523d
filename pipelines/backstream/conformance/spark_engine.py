"""Run conformance cases on Spark: the steps of a run, with the streams of all cases in one frame.

The column `case` numbers the streams. Each case has its own settings. So they are columns (`WindowColumns`,
`ClockColumns`, `SessionColumns`), where a run has literals. A few Spark jobs run hundreds of cases.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from backstream.conformance.cases import Case, Engine, EngineResult, RecordedFiring, UnsupportedCaseError
from backstream.conformance.extreme_sessions import extreme_sessions
from backstream.conformance.spark_fates import add_fates, add_timing
from backstream.errors import BackstreamError, PlanError
from backstream.eventtime.emission import EmissionModel
from backstream.eventtime.instants import MIN_MS, wrap_int64
from backstream.eventtime.records import Fate, Record
from backstream.eventtime.watermark_generators import StrategyKind
from backstream.eventtime.window_operator import PaneTiming
from backstream.eventtime.windows import Cumulate, Session, Sliding, Tumbling
from backstream.spark.schemas import int64_literal
from backstream.spark.sessions.islands import SessionColumns
from backstream.spark.sessions.session_panes import all_sessions
from backstream.spark.timers import TimerInput, replay_timers_of_streams
from backstream.spark.watermarks.compress import ClockColumns, compress_events, timeline_of_maxima
from backstream.spark.watermarks.join import in_force_table, join_watermarks, marker_table
from backstream.spark.watermarks.timeline import WatermarkTimeline
from backstream.spark.windows.aggregation import WINDOW, aggregate_late, aggregate_on_time
from backstream.spark.windows.assignment import WindowColumns, assign_windows, end_step_ms

_SAFE_MS = 2**60
"""The limit beyond which times may overflow in window arithmetic; no calendar reaches it."""
_STREAM = ("case",)
_KEYS = ("case", "key")
_TIMER = ("by", "timestamp_ms", "key", "watermark_ms", "after")
_NUMBERS = {"records": "sort_array(collect_list(arrival_seq))"}
_STRINGS = ("source_partition", "key", "kind")
_LONGS = (
    "case",
    "event_time_ms",
    "arrival_time_ms",
    "arrival_seq",
    "marker_ms",
    "start_ms",
    "interval_ms",
    "end_ms",
    "size_ms",
    "step_ms",
    "offset_ms",
    "gap_ms",
    "allowed_lateness_ms",
    "value",
)
_SCHEMA = pa.schema(
    [
        *((name, pa.int64()) for name in _LONGS),
        *((name, pa.string()) for name in _STRINGS),
        ("may_overflow", pa.bool_()),
        ("delete_timers_ms", pa.list_(pa.int64())),
    ]
)


@dataclass(slots=True)
class _CaseRows:
    """The rows that Spark returned for one case."""

    records: dict[int, Row] = field(default_factory=dict)
    firings: list[Row] = field(default_factory=list)
    timers: list[Row] = field(default_factory=list)
    error: str | None = None


def new_engine(spark: SparkSession) -> Engine:
    """Return an engine that runs cases on this session."""

    def run(cases: Sequence[Case]) -> list[EngineResult | BackstreamError]:
        errors = {number: error for number, case in enumerate(cases) if (error := _find_error(case))}
        supported = {number: case for number, case in enumerate(cases) if number not in errors}
        results = _run_cases(spark, supported) if supported else {}
        return [errors[number] if number in errors else results[number] for number in range(len(cases))]

    return run


def _find_error(case: Case) -> BackstreamError | None:
    """Return the error of a case that cannot be run on Spark; None if it can."""
    arrivals = [*(record.arrival_time_ms for record in case.records), case.clock.start_ms, case.clock.end_ms]
    if max(map(abs, arrivals)) > 2 * _SAFE_MS:
        return UnsupportedCaseError("arrivals near the limits of 64 bits")
    try:
        if any(record.event_time_ms == MIN_MS for record in case.records):
            case.window.assign(MIN_MS)
    except BackstreamError as error:
        return error
    return None


def _may_overflow(case: Case) -> bool:
    window = case.window
    if isinstance(window, Session):
        lengths_ms = [window.gap_ms]
    else:
        lengths_ms = [window.size_ms, end_step_ms(window), abs(window.offset_ms)]
    times_ms = (abs(record.event_time_ms) for record in case.records)
    return max(case.allowed_lateness_ms, *lengths_ms, *times_ms) > _SAFE_MS


def _run_cases(spark: SparkSession, cases: Mapping[int, Case]) -> dict[int, EngineResult | BackstreamError]:
    rows = [
        _event_row(number, case, seq, record)
        for number, case in cases.items()
        for seq, record in enumerate(case.records)
    ]
    events = spark.createDataFrame(pa.Table.from_pylist(rows, _SCHEMA))
    clock = ClockColumns(F.col("start_ms"), F.col("interval_ms"), F.col("end_ms"))
    compressed = _compress(events, clock, cases)
    results = {number: _compute_timeline(compressed, number, case) for number, case in cases.items()}
    timelines = {number: line for number, line in results.items() if isinstance(line, WatermarkTimeline)}
    errors = {number: error for number, error in results.items() if isinstance(error, BackstreamError)}
    tables = _concat({number: in_force_table(timeline) for number, timeline in timelines.items()})
    markers = _concat({number: marker_table(timeline) for number, timeline in timelines.items()})
    with_watermarks = events.transform(join_watermarks(spark, tables, markers, clock, _STREAM))
    rows_by_case: dict[int, _CaseRows] = defaultdict(_CaseRows)
    cases = {number: case for number, case in cases.items() if number in timelines}
    for kind, may_overflow in sorted({(_kind(case), _may_overflow(case)) for case in cases.values()}):
        is_of_kind = (F.col("kind") == F.lit(kind)) & (F.col("may_overflow") == F.lit(may_overflow))
        _collect(with_watermarks.where(is_of_kind), kind, rows_by_case, may_overflow=may_overflow)
    _collect_timers(with_watermarks, cases, timelines, rows_by_case)
    return errors | {
        number: _to_result(cases[number], timeline, rows_by_case[number]) for number, timeline in timelines.items()
    }


def _compress(events: DataFrame, clock: ClockColumns, cases: Mapping[int, Case]) -> pa.Table:
    """Return all streams, compressed; those with a watermark after each record keep more rows."""
    per_record = {
        number: case.emission for number, case in cases.items() if case.emission.model is EmissionModel.RECORD
    }
    is_per_record = F.col("case").isin(list(per_record)) if per_record else F.expr("false")
    compressed = compress_events(events.where(~is_per_record), clock, _STREAM).toArrow()
    if not per_record:
        return compressed
    # The rows depend only on whether the emission has an idle timeout; additional rows do no harm.
    strictest = max(per_record.values(), key=lambda emission: emission.strategy.idle_timeout_ms)
    kept = compress_events(events.where(is_per_record), clock, _STREAM, strictest).toArrow()
    return pa.concat_tables([compressed, kept.select(compressed.column_names).cast(compressed.schema)])


def _compute_timeline(compressed: pa.Table, number: int, case: Case) -> WatermarkTimeline | BackstreamError:
    stream = compressed.filter(pa.compute.equal(compressed["case"], number))
    try:
        timeline = timeline_of_maxima(stream, case.emission, case.clock, case.partition_names)
        timeline.all_rises_ms()  # may raise; the firings need all rises
    except BackstreamError as error:
        return error
    return timeline


def _concat(tables: Mapping[int, pa.Table]) -> pa.Table:
    """Return the tables of all streams as one, with the number of the stream."""
    numbered = [
        table.append_column("case", pa.array([number] * table.num_rows, pa.int64()))
        for number, table in tables.items()
    ]
    # PySpark 4.3 loses every row behind an empty chunk (tests/spark/test_arrow.py).
    return pa.concat_tables(numbered).combine_chunks()


def _kind(case: Case) -> str:
    return type(case.window).__name__


def _event_row(number: int, case: Case, seq: int, record: Record) -> dict[str, Any]:
    strategy = case.strategy_of(record.source_partition)
    marker = record.marker if strategy.kind is StrategyKind.PUNCTUATED else None
    if marker is True:
        marker = wrap_int64(record.event_time_ms - strategy.delay_ms)
    window = case.window
    gap = {"gap_ms": window.gap_ms} if isinstance(window, Session) else {}
    size = {} if isinstance(window, Session) else {"size_ms": window.size_ms, "offset_ms": window.offset_ms}
    step = {} if isinstance(window, Session) else {"step_ms": end_step_ms(window)}
    return {
        "case": number,
        "event_time_ms": record.event_time_ms,
        "arrival_time_ms": record.arrival_time_ms,
        "source_partition": case.partition_names[record.source_partition],
        "arrival_seq": seq,
        "marker_ms": None if marker is False else marker,
        "key": str(record.key),
        "kind": _kind(case),
        "may_overflow": _may_overflow(case),
        "value": record.value,
        "delete_timers_ms": record.delete_timers_ms,
        "start_ms": case.clock.start_ms,
        "interval_ms": case.clock.interval_ms,
        "end_ms": case.clock.end_ms,
        "allowed_lateness_ms": case.allowed_lateness_ms,
        **gap,
        **size,
        **step,
    }


def _collect(events: DataFrame, kind: str, rows_by_case: dict[int, _CaseRows], *, may_overflow: bool) -> None:
    """Run the cases of one window kind, and group the rows by case."""
    if kind == Session.__name__:
        if may_overflow:
            _collect_extreme_sessions(events, rows_by_case)
            return
        window = SessionColumns(F.col("gap_ms"), F.col("allowed_lateness_ms"))
        records, firings = all_sessions(events, _KEYS, window, _NUMBERS)
    else:
        records, firings = _fire_fixed_windows(events, kind, may_overflow=may_overflow)
    for row in records.select("case", "arrival_seq", "watermark_ms", "fate").collect():
        rows_by_case[row["case"]].records[row.arrival_seq] = row
    for row in firings.collect():
        rows_by_case[row["case"]].firings.append(row)


def _fire_fixed_windows(events: DataFrame, kind: str, *, may_overflow: bool) -> tuple[DataFrame, DataFrame]:
    """Return records with their fates, and firings; `by_record` is null if a watermark caused the firing."""
    kinds = {window.__name__: window for window in (Tumbling, Sliding, Cumulate)}
    size_ms, every_ms, offset_ms = F.col("size_ms"), F.col("step_ms"), F.col("offset_ms")
    window = WindowColumns(kinds[kind], size_ms, every_ms, offset_ms, may_overflow)
    allowed_lateness_ms = F.col("allowed_lateness_ms")
    with_fates = events.transform(add_fates(window, allowed_lateness_ms))
    in_windows = with_fates.transform(assign_windows(window))
    assigned = in_windows.transform(add_timing(allowed_lateness_ms, may_overflow=may_overflow))
    columns = [*_KEYS, *WINDOW, "watermark_ms", "by_record", "records"]
    nothing = {"watermark_ms": int64_literal(None), "by_record": int64_literal(None)}
    on_time = aggregate_on_time(assigned, _KEYS, _NUMBERS).withColumns(nothing)
    late = aggregate_late(assigned, _KEYS, {"records": "collect_list(arrival_seq)"})
    late = late.withColumns({"by_record": F.col("arrival_seq"), "records": F.sort_array("records")})
    return with_fates, on_time.select(*columns).unionByName(late.select(*columns))


def _collect_extreme_sessions(events: DataFrame, rows_by_case: dict[int, _CaseRows]) -> None:
    for row in extreme_sessions(events).collect():
        if row.error is not None:
            rows_by_case[row["case"]].error = row.error
        elif row.fate is not None:
            rows_by_case[row["case"]].records[row.arrival_seq] = row
        else:
            rows_by_case[row["case"]].firings.append(row)


def _collect_timers(
    events: DataFrame,
    cases: Mapping[int, Case],
    timelines: Mapping[int, WatermarkTimeline],
    rows_by_case: dict[int, _CaseRows],
) -> None:
    streams = {
        number: TimerInput(timelines[number].all_rises_ms(), partial(replace, case.timers))
        for number, case in cases.items()
        if case.timers
    }
    if streams:
        timed_cases = events.where(F.col("case").isin(list(streams)))
        for row in replay_timers_of_streams(timed_cases, "case", ["key"], streams).collect():
            rows_by_case[row["case"]].timers.append(row)


def _to_result(case: Case, timeline: WatermarkTimeline, rows: _CaseRows) -> EngineResult | BackstreamError:
    if rows.error is not None:
        return PlanError(rows.error)
    record_wm = [rows.records[number].watermark_ms for number in range(len(case.records))]
    rises_ms = timeline.all_rises_ms().tolist()
    return EngineResult(
        firings=sorted(_recorded_firings(rows.firings, rises_ms), key=_stream_order(case)),
        late=[number for number, row in sorted(rows.records.items()) if row.fate == Fate.DROPPED],
        record_wm=record_wm,
        # A rise follows the last record with a lower watermark.
        watermarks=[(rise_ms, bisect_left(record_wm, rise_ms) - 1) for rise_ms in rises_ms],
        is_final=timeline.is_final,
        timers=sorted(tuple(row[name] for name in _TIMER) for row in rows.timers) if case.timers else None,
    )


def _recorded_firings(rows: Sequence[Row], rises_ms: Sequence[int]) -> Iterator[RecordedFiring]:
    """Yield the firings with the watermark that caused them, without those that no watermark reaches."""
    for row in rows:
        window, records = (row.window_start_ms, row.window_end_ms), tuple(row.records)
        if row.by_record is not None:
            yield RecordedFiring(row.by_record, PaneTiming.LATE, *window, row.key, records, row.watermark_ms)
            continue
        by = bisect_left(rises_ms, wrap_int64(row.window_end_ms - 1))
        if by < len(rises_ms):
            yield RecordedFiring(by, PaneTiming.ON_TIME, *window, row.key, records, rises_ms[by])


def _stream_order(case: Case) -> Callable[[RecordedFiring], tuple[int, bool, int, int]]:
    """Return the sort key of firings in stream order.

    A watermark fires the windows that it reaches, by window end; then late records fire theirs, one by one. The
    windows of a late record are in the order of their assignment: for sliding windows, the latest is first.
    """
    descends = isinstance(case.window, Sliding)

    def position(firing: RecordedFiring) -> tuple[int, bool, int, int]:
        if firing.kind == PaneTiming.ON_TIME:
            return firing.wm, False, 0, wrap_int64(firing.end - 1)
        return firing.wm, True, firing.by, -firing.end if descends else firing.end

    return position
