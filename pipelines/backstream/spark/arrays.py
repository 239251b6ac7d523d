"""Small tables as arrays that a plan holds once, to be looked into by position: no join, no exchange.

Generated code refers to them. A number it spells out is another matter: Spark compiles a stage anew for each other
one, and a new class runs slowly until Java has compiled it too. So what differs from chunk to chunk is looked up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from backstream.core.intervals import Interval


def as_arrays(spark: SparkSession, columns: Mapping[str, pa.Array]) -> dict[str, Column]:
    """Each column as one array value, for `F.get`: the one row of a scalar subquery."""
    row = spark.createDataFrame(pa.table({name: _one_row(values) for name, values in columns.items()}))
    return {name: row.select(name).scalar() for name in columns}


def looked_up(spark: SparkSession, *numbers: int) -> list[Column]:
    """64-bit integers that generated code does not spell out; never null."""
    array = as_arrays(spark, {"numbers": pa.array(numbers, pa.int64())})["numbers"]
    return [F.coalesce(F.get(array, F.lit(place)), F.lit(0)) for place in range(len(numbers))]


@dataclass(frozen=True, slots=True)
class IntervalColumns:
    """`[start_ms, end_ms)` of event time, looked up."""

    start_ms: Column
    end_ms: Column

    @classmethod
    def of(cls, spark: SparkSession, interval: Interval) -> IntervalColumns:
        """The bounds of an interval."""
        return cls(*looked_up(spark, interval.start_ms, interval.end_ms))

    def hold(self, time_ms: Column) -> Column:
        """Whether an instant lies in the interval."""
        return (time_ms >= self.start_ms) & (time_ms < self.end_ms)


def _one_row(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
