"""Run the event-time timers of a keyed process function.

A process function has state and can delete timers, so exact results need all records and rises of a key. One Arrow
function per key runs it. The rises are sent with the function; a key stops only at the rises that reach one of its
timers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from backstream.errors import UserCodeError
from backstream.eventtime.process_functions import Context, ProcessFunction
from backstream.spark.key_runs import KeyRun, TimerQueue
from backstream.spark.schemas import ARRIVAL_ORDER
from backstream.spark.watermarks.timeline import Longs

_NEEDED = ("event_time_ms", "watermark_ms", *ARRIVAL_ORDER)
_OPTIONAL = ("value", "delete_timers_ms")
_FIRING = ("timestamp_ms", "watermark_ms", "by")


@dataclass(frozen=True, slots=True)
class TimerInput:
    """All rises of a stream's watermark, including +inf, and the factory of process functions."""

    rises_ms: Longs
    new_function: Callable[[], ProcessFunction]


def replay_timers_of_streams(
    events: DataFrame, stream: str, keys: Sequence[str], streams: Mapping[int, TimerInput]
) -> DataFrame:
    """Return every timer that fires in several streams, with the watermark at its firing.

    Args:
        events: normalized events with `watermark_ms`. The function also gets the columns `value` and
            `delete_timers_ms` if they exist. It gets no source partition and no marker.
        stream: the column with the number of the stream.
        keys: key columns. The key of a record is their one value, or a tuple of them.
        streams: the rises of each stream, and its factory of process functions. Executors must be able to import
            the module of a factory.

    Returns:
        Stream, keys, `timestamp_ms`, `watermark_ms`, `by` (the number of the rise, from 0), and `after` (the
        number of records that had arrived, less one). If a function raises an error, the job fails with a message
        that names the function, the key, and the record or timer.
    """
    by = [stream, *keys]
    columns = dict.fromkeys([*by, *_NEEDED, *(name for name in _OPTIONAL if name in events.columns)])
    key_fields = [events.schema[name] for name in by]
    schema = StructType([*key_fields, *(StructField(name, LongType()) for name in _FIRING)])

    def run_key(group: tuple[pa.Scalar, ...], table: pa.Table) -> pa.Table:
        number, *key = (scalar.as_py() for scalar in group)
        stream_input = streams[number]
        key_value = key[0] if len(key) == 1 else tuple(key)
        firings = list(_fire_timers(stream_input, key_value, table))
        group_columns = {name: pa.repeat(scalar, len(firings)) for name, scalar in zip(by, group, strict=True)}
        values = zip(*firings, strict=True) if firings else ([],) * len(_FIRING)
        firing_columns = {name: pa.array(value, pa.int64()) for name, value in zip(_FIRING, values, strict=True)}
        return pa.table({**group_columns, **firing_columns})

    firings = events.select(*columns).groupBy(*by).applyInArrow(run_key, schema)
    return firings.join(
        F.broadcast(_arrival_positions(events, stream, streams)), [stream, "watermark_ms"], how="left"
    )


def _arrival_positions(events: DataFrame, stream: str, streams: Mapping[int, TimerInput]) -> DataFrame:
    """Return the arrival position of each rise: all records with a lower watermark arrived before it."""
    rises = [
        (number, int(rise_ms), 0) for number, timer_input in streams.items() for rise_ms in timer_input.rises_ms
    ]
    table = pa.table(
        {
            name: pa.array([rise[column] for rise in rises], pa.int64())
            for column, name in enumerate((stream, "watermark_ms", "records"))
        }
    )
    records = events.groupBy(stream, "watermark_ms").agg(F.count(F.lit(1)).alias("records"))
    levels = records.unionByName(events.sparkSession.createDataFrame(table))
    lower = Window.partitionBy(stream).orderBy("watermark_ms").rowsBetween(Window.unboundedPreceding, -1)
    before = F.coalesce(F.sum("records").over(lower), F.lit(0)) - F.lit(1)
    summed = levels.groupBy(stream, "watermark_ms").agg(F.sum("records").alias("records"))
    return summed.select(stream, "watermark_ms", before.alias("after"))


def _fire_timers(stream_input: TimerInput, key: Hashable, table: pa.Table) -> Iterator[tuple[int, int, int]]:
    """Return timestamp, watermark, and number of the rise for each timer of a key that fires."""
    firings: list[tuple[int, int, int]] = []
    context = Context(key, TimerQueue())
    run = KeyRun(
        stream_input.rises_ms, stream_input.new_function(), context, lambda *firing: firings.append(firing)
    )
    ordered = table.sort_by([(name, "ascending") for name in ARRIVAL_ORDER])
    try:
        for row in ordered.to_pylist():
            record = {"value": 1, **row, "delete_timers_ms": row.get("delete_timers_ms") or ()}
            run.process_element(record, row["event_time_ms"], row["watermark_ms"])
        run.finish()
    except Exception as error:
        name = type(run.function).__qualname__
        msg = f"process function {name} failed {run.place()}: {error!r}"
        raise UserCodeError(msg) from error
    return iter(firings)
