"""Event-time timers of a keyed process function: each key is folded on its own, over its records and the rises.

A process function has state and may take timers back, so nothing shorter than a fold per key is exact. The rises
travel with the function; a key only stops at those that reach one of its timers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from backstream.errors import SpecError
from backstream.eventtime.records import Record
from backstream.eventtime.timers import KeyTimers, ProcessFunction
from backstream.spark.schemas import ARRIVAL_ORDER, int64_literal
from backstream.spark.watermarks.timeline import Longs, WatermarkTimeline

_NEEDED = ("event_time_ms", "watermark_ms", *ARRIVAL_ORDER)
_OPTIONAL = ("value", "delete_timers_ms")
_FIRING = ("timestamp_ms", "watermark_ms", "by")
_STREAM = "stream"


@dataclass(frozen=True, slots=True)
class TimerInput:
    """Every rise of a stream's watermark, +inf included, and what makes the process function of a key."""

    rises_ms: Longs
    new_function: Callable[[], ProcessFunction]


def replay_timers(
    events: DataFrame, keys: Sequence[str], new_function: Callable[[], ProcessFunction], heard: WatermarkTimeline
) -> DataFrame:
    """Every timer that fires, with the watermark that it sees.

    Args:
        events: normalised events with `watermark_ms`. The function also gets the columns `value` and
            `delete_timers_ms`, where there are such. It sees no source partition and no marker.
        keys: key columns. A record's key is their one value, or a tuple of them.
        new_function: makes the process function of one key. It travels to the workers, so its module must be
            importable there.
        heard: the watermarks that `watermark_ms` was taken from.

    Returns:
        Keys, `timestamp_ms`, `watermark_ms`, `by` (which rise, from 0) and `after` (how many records had arrived
        before it, less one). When it is evaluated, a function that raises fails the job, and the message
        names it, the key, and the record or timer.
    """
    played = TimerInput(heard.all_rises_ms(), new_function)
    one = events.withColumn(_STREAM, int64_literal(0))
    return replay_timers_of_streams(one, _STREAM, keys, {0: played}).drop(_STREAM)


def replay_timers_of_streams(
    events: DataFrame, stream: str, keys: Sequence[str], streams: Mapping[int, TimerInput]
) -> DataFrame:
    """`timer_firings` of several streams at once, which the column `stream` numbers."""
    by = [stream, *keys]
    kept = dict.fromkeys([*by, *_NEEDED, *(name for name in _OPTIONAL if name in events.columns)])
    of_keys = [events.schema[name] for name in by]
    schema = StructType([*of_keys, *(StructField(name, LongType()) for name in _FIRING)])

    def fold(group: tuple[pa.Scalar, ...], table: pa.Table) -> pa.Table:
        number, *key = (scalar.as_py() for scalar in group)
        played = streams[number]
        fold_of_key = _Fold(played.rises_ms, played.new_function(), key[0] if len(key) == 1 else tuple(key))
        fired = list(fold_of_key.fired(table))
        same = {name: pa.repeat(scalar, len(fired)) for name, scalar in zip(by, group, strict=True)}
        columns = zip(*fired, strict=True) if fired else ([],) * len(_FIRING)
        return pa.table(
            {**same, **{name: pa.array(each, pa.int64()) for name, each in zip(_FIRING, columns, strict=True)}}
        )

    fired = events.select(*kept).groupBy(*by).applyInArrow(fold, schema)
    return fired.join(F.broadcast(_places(events, stream, streams)), [stream, "watermark_ms"], how="left")


def _places(events: DataFrame, stream: str, streams: Mapping[int, TimerInput]) -> DataFrame:
    """Where each rise stands: every record that met a lower watermark came before it."""
    rises = [(number, int(rise_ms), 0) for number, played in streams.items() for rise_ms in played.rises_ms]
    table = pa.table(
        {
            name: pa.array([rise[column] for rise in rises], pa.int64())
            for column, name in enumerate((stream, "watermark_ms", "met"))
        }
    )
    met = events.groupBy(stream, "watermark_ms").agg(F.count(F.lit(1)).alias("met"))
    levels = met.unionByName(events.sparkSession.createDataFrame(table))
    lower = Window.partitionBy(stream).orderBy("watermark_ms").rowsBetween(Window.unboundedPreceding, -1)
    before = F.coalesce(F.sum("met").over(lower), F.lit(0)) - F.lit(1)
    summed = levels.groupBy(stream, "watermark_ms").agg(F.sum("met").alias("met"))
    return summed.select(stream, "watermark_ms", before.alias("after"))


@dataclass(slots=True)
class _Queue(KeyTimers):
    """Pending timers of which the earliest is at hand; those taken back stay in the heap until they come up."""

    heap: list[int] = field(default_factory=list)

    def register(self, timestamp_ms: int) -> None:
        if timestamp_ms not in self.pending:
            self.pending.add(timestamp_ms)
            heappush(self.heap, timestamp_ms)

    def earliest_ms(self) -> int | None:
        while self.heap and self.heap[0] not in self.pending:
            heappop(self.heap)
        return self.heap[0] if self.heap else None


@dataclass(slots=True)
class _Fold:
    """One key: its function, its timers, and how many rises are behind it."""

    rises_ms: Longs
    function: ProcessFunction
    key: Hashable
    timers: _Queue = field(default_factory=_Queue)
    passed: int = 0

    def fired(self, table: pa.Table) -> Iterator[tuple[int, int, int]]:
        """Timestamp, watermark and number of the rise, of each timer that fires."""
        ordered = table.sort_by([(name, "ascending") for name in ARRIVAL_ORDER])
        for row in ordered.to_pylist():
            yield from self._until(bisect_right(self.rises_ms, row["watermark_ms"]))
            record = Record(
                row["arrival_time_ms"],
                0,
                self.key,
                row["event_time_ms"],
                row.get("value", 1),
                delete_timers_ms=tuple(row.get("delete_timers_ms") or ()),
            )
            self._called(f"the record of arrival {record.arrival_time_ms} ms", "on_record", record)
        yield from self._until(len(self.rises_ms))

    def _until(self, end: int) -> Iterator[tuple[int, int, int]]:
        """Pass the rises up to that number, and stop at those that reach a timer."""
        while (earliest_ms := self.timers.earliest_ms()) is not None:
            by = max(self.passed, bisect_left(self.rises_ms, earliest_ms))
            if by >= end:
                break
            self.passed = by
            yield from self._at(by)
            self.passed = by + 1
        self.passed = max(self.passed, end)

    def _at(self, by: int) -> Iterator[tuple[int, int, int]]:
        watermark_ms = int(self.rises_ms[by])
        while (due_ms := self.timers.earliest_ms()) is not None and due_ms <= watermark_ms:
            self.timers.delete(due_ms)
            yield due_ms, watermark_ms, by
            self._called(f"the timer of {due_ms} ms", "on_timer", self.key, due_ms)

    def _called(self, what: str, hook: str, *about: object) -> None:
        try:
            getattr(self.function, hook)(*about, self.timers)
        except Exception as error:
            name = type(self.function).__qualname__
            msg = f"process function {name} failed at {what}, key {self.key!r}: {error!r}"
            raise SpecError(msg) from error
