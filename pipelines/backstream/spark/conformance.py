"""The Spark engine on conformance cases: the steps of a run, with all streams in one frame, told apart by number.

Each case has settings of its own, so they travel as columns (`WindowColumns`, `ClockColumns`, `SessionColumns`)
where a run has literals. A few jobs play hundreds of cases.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from backstream.core.conformance import Case, Engine, Firing, Outcome, UnsupportedCaseError
from backstream.core.errors import BackstreamError
from backstream.core.fates import Fate
from backstream.core.generators import StrategyKind
from backstream.core.instants import MAX_MS
from backstream.core.panes import PaneTiming
from backstream.core.records import Record
from backstream.core.windows import Cumulate, Session, Sliding, Tumbling
from backstream.spark.fates import fated, timed
from backstream.spark.panes import WINDOW, late_firings, on_time_firings
from backstream.spark.schemas import long
from backstream.spark.sessions import SessionColumns, sessions
from backstream.spark.watermarks import (
    ClockColumns,
    Heard,
    compressed,
    heard,
    in_force_table,
    looked_up,
    marker_table,
)
from backstream.spark.windows import WindowColumns, step_ms, windowed

_SAFE_MS = 2**60
"""Event times beyond this may overflow in window arithmetic; no calendar reaches it."""
_STREAM = ("case",)
_KEYS = ("case", "key")
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
)
_SCHEMA = pa.schema([(name, pa.int64()) for name in _LONGS] + [(name, pa.string()) for name in _STRINGS])


@dataclass(slots=True)
class _Seen:
    """What came back for one case."""

    met: dict[int, Row] = field(default_factory=dict)
    firings: list[Row] = field(default_factory=list)


def engine(spark: SparkSession) -> Engine:
    """What plays cases on this session."""

    def play(cases: Sequence[Case]) -> list[Outcome | BackstreamError]:
        refused = {number: reason for number, case in enumerate(cases) if (reason := _refusal(case))}
        playable = {number: case for number, case in enumerate(cases) if number not in refused}
        outcomes = _played(spark, playable) if playable else {}
        return [refused[number] if number in refused else outcomes[number] for number in range(len(cases))]

    return play


def _refusal(case: Case) -> UnsupportedCaseError | None:
    extreme = max((abs(record.event_time_ms) for record in case.records), default=0)
    if case.timers:
        return UnsupportedCaseError("timers of process functions")
    if extreme > _SAFE_MS:
        return UnsupportedCaseError(f"event times near the limits of 64 bits ({extreme} ms)")
    if isinstance(case.window, Session) and case.allowed_lateness_ms > _SAFE_MS:
        lateness_ms = case.allowed_lateness_ms
        return UnsupportedCaseError(f"sessions with a lateness near the limits of 64 bits ({lateness_ms} ms)")
    return None


def _played(spark: SparkSession, cases: Mapping[int, Case]) -> dict[int, Outcome]:
    rows = [_row(number, case, *each) for number, case in cases.items() for each in enumerate(case.records)]
    events = spark.createDataFrame(pa.Table.from_pylist(rows, _SCHEMA))
    clock = ClockColumns(F.col("start_ms"), F.col("interval_ms"), F.col("end_ms"))
    cells = compressed(events, clock, _STREAM).toArrow()
    watermarks = {number: _heard(cells, number, case) for number, case in cases.items()}
    tables = _stacked({number: in_force_table(each) for number, each in watermarks.items()})
    markers = _stacked({number: marker_table(each) for number, each in watermarks.items()})
    known = events.transform(looked_up(spark, tables, markers, clock, _STREAM))
    seen: dict[int, _Seen] = defaultdict(_Seen)
    for kind in sorted({_kind(case) for case in cases.values()}):
        _collect(known.where(F.col("kind") == F.lit(kind)), kind, seen)
    return {number: _outcome(case, watermarks[number], seen[number]) for number, case in cases.items()}


def _heard(cells: pa.Table, number: int, case: Case) -> Heard:
    mine = cells.filter(pa.compute.equal(cells["case"], number))
    return heard(mine, case.emission, case.clock, [str(partition) for partition in case.partitions])


def _stacked(tables: Mapping[int, pa.Table]) -> pa.Table:
    """Each stream's table under the others, with its number."""
    numbered = [
        table.append_column("case", pa.array([number] * table.num_rows, pa.int64()))
        for number, table in tables.items()
    ]
    # PySpark 4.3 loses every row behind an empty chunk (tests/spark/test_arrow.py).
    return pa.concat_tables(numbered).combine_chunks()


def _kind(case: Case) -> str:
    return type(case.window).__name__


def _row(number: int, case: Case, seq: int, record: Record) -> dict[str, int | str | None]:
    marker = record.marker if case.emission.strategy.kind is StrategyKind.PUNCTUATED else None
    if marker is True:
        marker = record.event_time_ms - case.emission.strategy.delay_ms
    window = case.window
    gap = {"gap_ms": window.gap_ms} if isinstance(window, Session) else {}
    size = {} if isinstance(window, Session) else {"size_ms": window.size_ms, "offset_ms": window.offset_ms}
    step = {} if isinstance(window, Session) else {"step_ms": step_ms(window)}
    return {
        "case": number,
        "event_time_ms": record.event_time_ms,
        "arrival_time_ms": record.arrival_time_ms,
        "source_partition": str(record.source_partition),
        "arrival_seq": seq,
        "marker_ms": None if marker is False else marker,
        "key": str(record.key),
        "kind": _kind(case),
        "start_ms": case.clock.start_ms,
        "interval_ms": case.clock.interval_ms,
        "end_ms": case.clock.end_ms,
        "allowed_lateness_ms": case.allowed_lateness_ms,
        **gap,
        **size,
        **step,
    }


def _collect(known: DataFrame, kind: str, seen: dict[int, _Seen]) -> None:
    """Play the cases of one window kind, and sort what comes back by case."""
    records, firings = _session_firings(known) if kind == Session.__name__ else _firings(known, kind)
    for row in records.select("case", "arrival_seq", "watermark_ms", "fate").collect():
        seen[row["case"]].met[row.arrival_seq] = row
    for row in firings.collect():
        seen[row["case"]].firings.append(row)


def _session_firings(known: DataFrame) -> tuple[DataFrame, DataFrame]:
    window = SessionColumns(F.col("gap_ms"), F.col("allowed_lateness_ms"))
    return sessions(known, _KEYS, window, _NUMBERS)


def _firings(known: DataFrame, kind: str) -> tuple[DataFrame, DataFrame]:
    """Records with their fate; firings, where `by_record` is null for those that a watermark caused."""
    kinds = {each.__name__: each for each in (Tumbling, Sliding, Cumulate)}
    window = WindowColumns(kinds[kind], F.col("size_ms"), F.col("step_ms"), F.col("offset_ms"))
    allowed_lateness_ms = F.col("allowed_lateness_ms")
    judged = known.transform(fated(window, allowed_lateness_ms))
    assigned = judged.transform(windowed(window)).transform(timed(allowed_lateness_ms))
    columns = [*_KEYS, *WINDOW, "watermark_ms", "by_record", "records"]
    nothing = {"watermark_ms": long(None), "by_record": long(None)}
    on_time = on_time_firings(assigned, _KEYS, _NUMBERS).withColumns(nothing)
    late = late_firings(assigned, _KEYS, {"records": "collect_list(arrival_seq)"})
    late = late.withColumns({"by_record": F.col("arrival_seq"), "records": F.sort_array("records")})
    return judged, on_time.select(*columns).unionByName(late.select(*columns))


def _outcome(case: Case, watermarks: Heard, seen: _Seen) -> Outcome:
    return Outcome(
        firings=sorted(_labelled(seen.firings, watermarks), key=_stream_order(case)),
        late=[number for number, row in sorted(seen.met.items()) if row.fate == Fate.DROPPED],
        record_wm=[seen.met[number].watermark_ms for number in range(len(case.records))],
        is_final=watermarks.is_final,
    )


def _labelled(rows: Sequence[Row], watermarks: Heard) -> Iterator[Firing]:
    """Firings with the watermark that caused them; one that no watermark ever reaches did not happen."""
    events = [int(value) for value in watermarks.watermark_ms]
    if watermarks.is_final and events[-1:] != [MAX_MS]:
        events.append(MAX_MS)
    for row in rows:
        window, records = (row.window_start_ms, row.window_end_ms), tuple(row.records)
        if row.by_record is not None:
            yield Firing(row.by_record, PaneTiming.LATE, *window, row.key, records, row.watermark_ms)
            continue
        by = bisect_left(events, row.window_end_ms - 1)
        if by < len(events):
            yield Firing(by, PaneTiming.ON_TIME, *window, row.key, records, events[by])


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
