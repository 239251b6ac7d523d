"""The look-up by sorting, for streams with so many rises between two ticks that searching them takes longer."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from backstream.core.instants import MIN_MS
from backstream.core.records import Clock
from backstream.spark.schemas import ARRIVAL_ORDER, Step, integer_quotient, long
from backstream.spark.streams.heard import Heard, longs

_PLACE = pa.struct([("time_ms", pa.int64()), ("seq", pa.int64()), ("partition", pa.string())])
_STRETCHES = 4_096
"""Stretches of time that are sorted each on its own."""


def merged_in_order(spark: SparkSession, heard: Heard, clock: Clock) -> Step:
    """Add `watermark_ms`: rises and records are sorted together, stretch of time by stretch."""
    rises = pa.table(
        {
            "place": pa.array(
                [dict(zip(_PLACE.names, each, strict=True)) for each in heard.places(clock)], _PLACE
            ),
            "rise_ms": heard.watermark_ms,
        }
    )
    first_ms, last_ms = rises["place"][0]["time_ms"].as_py(), rises["place"][-1]["time_ms"].as_py()
    width_ms = (last_ms - first_ms) // _STRETCHES + 1
    stretches = np.arange((last_ms - first_ms) // width_ms + 1)

    def stretch(time_ms: Column) -> Column:
        """Before the first rise and behind the last one time goes on."""
        number = integer_quotient(F.greatest(time_ms - long(first_ms), long(0)), long(width_ms))
        return F.least(number, long(len(stretches) - 1))

    times_ms = np.array([place[0] for place in heard.places(clock)])
    risen = np.searchsorted(times_ms, first_ms + stretches * width_ms, side="left")
    begun_ms = np.concatenate([longs([MIN_MS]), heard.watermark_ms])[risen]
    before = pa.array([(MIN_MS, MIN_MS, "")] * len(stretches), _PLACE)
    begun = spark.createDataFrame(pa.table({"place": before, "rise_ms": begun_ms, "stretch": stretches}))
    inside = spark.createDataFrame(rises).withColumn("stretch", stretch(F.col("place.time_ms")))
    # A record does not see the watermark it carries, so it comes first where the two are in one place.
    in_order = Window.partitionBy("stretch").orderBy("place", F.col("event").isNull())
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)

    def step(events: DataFrame) -> DataFrame:
        place = F.struct(
            *(F.col(name).alias(part) for name, part in zip(ARRIVAL_ORDER, _PLACE.names, strict=True))
        )
        placed = events.select(
            F.struct(*events.columns).alias("event"),
            place.alias("place"),
            stretch(F.col("arrival_time_ms")).alias("stretch"),
        )
        both = placed.unionByName(inside.unionByName(begun), allowMissingColumns=True)
        met = both.withColumn("watermark_ms", F.max("rise_ms").over(so_far)).where(F.col("event").isNotNull())
        return met.select("event.*", "watermark_ms")

    return step
