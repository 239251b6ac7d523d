"""Columns that every step may rely on, and the check that a table has what it promised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StringType

from backstream.errors import ContractError
from backstream.eventtime.intervals import Interval

Step = Callable[[DataFrame], DataFrame]
"""A pipeline is a chain of these."""

EVENT: Mapping[str, DataType] = {
    "event_time_ms": LongType(),
    "arrival_time_ms": LongType(),
    "source_partition": StringType(),
    "arrival_seq": LongType(),
}
"""A normalised event, before its key and value columns."""

PARTITION_NUMBER = "source_partition__number"
"""`source_partition` as a number, beside the text, where it was recorded as one. Whoever replaces one of the two
replaces or drops the other."""

ARRIVAL_ORDER = ("arrival_time_ms", "arrival_seq", "source_partition")
"""The total order in which records arrived; the partition breaks the last ties."""


def partition_to_group_by(events: DataFrame) -> Column:
    """The source partition as what is faster to group by: a number, where there is one, and else text.

    It is called `source_partition`; behind the grouping, `with_partition_as_text` makes text of it.
    """
    name = PARTITION_NUMBER if PARTITION_NUMBER in events.columns else "source_partition"
    return F.col(name).alias("source_partition")


def with_partition_as_text(grouped: DataFrame) -> DataFrame:
    """`source_partition` as every table has it."""
    return grouped.withColumn("source_partition", F.col("source_partition").cast("string"))


def conform(name: str, columns: Mapping[str, DataType]) -> Step:
    """Select exactly these columns, in this order, after comparing types; no job is run.

    Raises:
        ContractError: naming each column that is missing or of another type.
    """

    def step(frame: DataFrame) -> DataFrame:
        found = {field.name: field.dataType for field in frame.schema.fields}
        wrong = [
            f"  {column}: expected {expected.simpleString()}, got {_type_name(found.get(column))}"
            for column, expected in columns.items()
            if found.get(column) != expected
        ]
        if wrong:
            msg = "\n".join([f"table `{name}` breaks its contract:", *wrong[:10]])
            raise ContractError(msg)
        return frame.select(*(F.col(column) for column in columns))

    return step


def _type_name(found: DataType | None) -> str:
    return found.simpleString() if found else "no such column"


def integer_quotient(dividend: Column, divisor: Column) -> Column:
    """Integer division; `/` would go through floating point. For dividends that are not negative."""
    return F.call_function("div", dividend, divisor)


def int64_literal(value: int | None) -> Column:
    """A 64-bit literal; Spark would take a small number for 32 bits."""
    return F.lit(value).cast("long")


def table_literals(spark: SparkSession, columns: Mapping[str, pa.Array]) -> dict[str, Column]:
    """Each column as one array value, for `F.get`: the one row of a scalar subquery."""
    row = spark.createDataFrame(pa.table({name: _one_row(values) for name, values in columns.items()}))
    return {name: row.select(name).scalar() for name in columns}


def plan_literals(spark: SparkSession, *numbers: int) -> list[Column]:
    """64-bit integers that generated code does not spell out; never null."""
    array = table_literals(spark, {"numbers": pa.array(numbers, pa.int64())})["numbers"]
    return [F.coalesce(F.get(array, F.lit(place)), F.lit(0)) for place in range(len(numbers))]


@dataclass(frozen=True, slots=True)
class IntervalColumns:
    """`[start_ms, end_ms)` of event time, looked up."""

    start_ms: Column
    end_ms: Column

    @classmethod
    def from_interval(cls, spark: SparkSession, interval: Interval) -> IntervalColumns:
        """The bounds of an interval."""
        return cls(*plan_literals(spark, interval.start_ms, interval.end_ms))

    def hold(self, time_ms: Column) -> Column:
        """Whether an instant lies in the interval."""
        return (time_ms >= self.start_ms) & (time_ms < self.end_ms)


def _one_row(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
