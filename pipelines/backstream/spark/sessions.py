"""Sessions: islands of touching events per key; only islands that lateness can have split are folded in order.

An island whose every record came while the watermark was at least two milliseconds behind it fired exactly once,
whole. The others are played, each on its own, by the reference: that is the one place where rows go through
Python, and a recompute never gets there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, LongType, StringType, StructField, StructType

from backstream.core.fates import Fate
from backstream.core.instants import MAX_MS
from backstream.core.panes import PaneTiming, panes
from backstream.core.records import Record
from backstream.core.watermarks import WatermarkEvent, Watermarks
from backstream.core.windows import Session
from backstream.spark.panes import WINDOW
from backstream.spark.schemas import ARRIVAL_ORDER

_FIRINGS = pa.list_(
    pa.struct(
        [
            ("number", pa.int64()),
            ("window_start_ms", pa.int64()),
            ("window_end_ms", pa.int64()),
            ("timing", pa.string()),
            ("is_by", pa.bool_()),
        ]
    )
)
_GAP, _LATENESS = "gap_ms", "allowed_lateness_ms"
_FIRING = StructType(
    [
        StructField("number", LongType()),
        StructField("window_start_ms", LongType()),
        StructField("window_end_ms", LongType()),
        StructField("timing", StringType()),
        StructField("is_by", BooleanType()),
    ]
)


@dataclass(frozen=True, slots=True)
class SessionColumns:
    """A session's parameters as columns: literals in a run, a row's own where many streams are played at once."""

    gap_ms: Column
    allowed_lateness_ms: Column


def sessions(
    events: DataFrame,
    keys: Sequence[str],
    window: SessionColumns,
    aggregates: Mapping[str, str],
    *,
    is_offline: bool = False,
) -> tuple[DataFrame, DataFrame]:
    """Every record with its `fate`, and every firing.

    Args:
        events: normalised events with `watermark_ms`.
        keys: key columns.
        window: the session gap, and how long a fired session is kept.
        aggregates: name to SQL aggregate call.
        is_offline: no watermark but -inf and +inf exists, so nothing can be late.

    Returns:
        The records; and the firings: keys, window, `watermark_ms` and `by_record` (the late record's
        `arrival_seq`; both null when a watermark caused the firing), aggregates.
    """
    islands = _islands(events, keys, window, is_offline=is_offline)
    clean = islands.where("is_clean").withColumn("fate", F.lit(Fate.ON_TIME))
    whole = _whole(clean, keys, window, aggregates)
    if is_offline:
        return clean, whole
    folded = _folded(islands.where("not is_clean"), keys, window)
    records = clean.select(*events.columns, "fate").unionByName(folded.select(*events.columns, "fate"))
    return records, whole.unionByName(_fired(folded, keys, aggregates))


def _islands(events: DataFrame, keys: Sequence[str], window: SessionColumns, *, is_offline: bool) -> DataFrame:
    """Add `island` per key and `is_clean`; two events exactly one gap apart touch."""
    of_key = Window.partitionBy(*keys).orderBy("event_time_ms")
    since_last_ms = F.col("event_time_ms") - F.lag("event_time_ms").over(of_key)
    begins = F.coalesce(since_last_ms > window.gap_ms, F.expr("true"))
    so_far = of_key.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    numbered = events.withColumn("begins", begins).withColumn(
        "island", F.sum(F.col("begins").cast("long")).over(so_far)
    )
    if is_offline:
        return numbered.drop("begins").withColumn("is_clean", F.expr("true"))
    # One millisecond more than `not late`: an event exactly at the bound can miss a session that has just fired.
    in_time = F.col("watermark_ms") < F.col("event_time_ms") - F.lit(1)
    of_island = Window.partitionBy(*keys, "island")
    return numbered.drop("begins").withColumn("is_clean", F.min(in_time).over(of_island))


def _whole(
    clean: DataFrame, keys: Sequence[str], window: SessionColumns, aggregates: Mapping[str, str]
) -> DataFrame:
    bounds = {
        "window_start_ms": F.min("event_time_ms"),
        "window_end_ms": F.max(F.col("event_time_ms") + window.gap_ms),
        "watermark_ms": F.first(F.lit(None).cast("long")),
        "by_record": F.first(F.lit(None).cast("long")),
    }
    grouped = clean.groupBy(*keys, "island").agg(
        *(column.alias(name) for name, column in bounds.items()), *_values(aggregates)
    )
    return grouped.drop("island")


def _values(aggregates: Mapping[str, str]) -> list[Column]:
    return [F.expr(aggregate).alias(name) for name, aggregate in aggregates.items()]


def _folded(dirty: DataFrame, keys: Sequence[str], window: SessionColumns) -> DataFrame:
    """Add `fate` and the `firings` each record took part in."""
    told = dirty.withColumns({_GAP: window.gap_ms, _LATENESS: window.allowed_lateness_ms})
    schema = StructType(
        [*told.schema.fields, StructField("fate", StringType()), StructField("firings", ArrayType(_FIRING))]
    )
    return told.groupBy(*keys, "island").applyInArrow(_fold, schema)


def _fold(island: pa.Table) -> pa.Table:
    """Play one island, by itself, as the stream met it."""
    window, allowed_lateness_ms = Session(island[_GAP][0].as_py()), island[_LATENESS][0].as_py()
    ordered = island.sort_by([(column, "ascending") for column in ARRIVAL_ORDER])
    event_times, in_force = ordered["event_time_ms"].to_pylist(), ordered["watermark_ms"].to_pylist()
    records = [Record(0, 0, "", event_time_ms) for event_time_ms in event_times]
    played = panes(records, _as_met(in_force), window, allowed_lateness_ms)
    firings: list[list[dict[str, int | str | bool]]] = [[] for _ in records]
    for number, pane in enumerate(played.panes):
        for record in pane.records:
            is_by = pane.timing is PaneTiming.LATE and pane.by == record
            firing = dict(zip(_FIRING.names, (number, *pane.window, pane.timing.value, is_by), strict=True))
            firings[record].append(firing)
    fates = pa.array([fate.value for fate in played.fates], pa.string())
    return ordered.append_column("fate", fates).append_column("firings", pa.array(firings, _FIRINGS))


def _as_met(in_force_ms: Sequence[int]) -> Watermarks:
    """The watermarks that an island's records met. Those in between change nothing before the next record."""
    heard, met_ms = Watermarks(), None
    for number, watermark_ms in enumerate(in_force_ms):
        if watermark_ms != met_ms:
            heard.events.append(WatermarkEvent(watermark_ms, number - 1, 0))
            met_ms = watermark_ms
    if met_ms != MAX_MS:
        heard.events.append(WatermarkEvent(MAX_MS, len(in_force_ms) - 1, 0))
    return heard


def _fired(folded: DataFrame, keys: Sequence[str], aggregates: Mapping[str, str]) -> DataFrame:
    """The firings that folded records took part in, aggregated like any other."""
    members = folded.withColumn("firing", F.explode("firings"))
    members = members.withColumn("firing_by", F.when(F.col("firing.is_by"), F.col("arrival_seq")))
    members = members.withColumn("met_ms", F.when(F.col("firing.is_by"), F.col("watermark_ms")))
    members = members.withColumns({name: F.col(f"firing.{name}") for name in ("number", *WINDOW)})
    grouped = members.groupBy(*keys, "island", "number", *WINDOW).agg(
        F.max("met_ms").alias("watermark_ms"), F.max("firing_by").alias("by_record"), *_values(aggregates)
    )
    return grouped.drop("island", "number")
