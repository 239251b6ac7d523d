"""Define the columns of events, check schemas, and put values into plans as subqueries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StringType, StructType, _parse_datatype_string

from backstream.errors import ContractError
from backstream.eventtime.intervals import Interval

Step = Callable[[DataFrame], DataFrame]
"""A step of a pipeline."""

EVENT: Mapping[str, DataType] = {
    "event_time_ms": LongType(),
    "arrival_time_ms": LongType(),
    "source_partition": StringType(),
    "arrival_seq": LongType(),
}
"""The columns of a normalized event, before its key and value columns."""

EVENT_TIME_US = "event_time_us"
"""The event time in microseconds, a column that only the sessions of a job of Structured Streaming need."""

PARTITION_NUMBER = "source_partition__number"
"""The column with `source_partition` as a number, if it was recorded as one.

If you replace one of the two columns, replace or drop the other, too.
"""

ARRIVAL_ORDER = ("arrival_time_ms", "arrival_seq", "source_partition")
"""The columns of the total arrival order; the partition breaks the last ties."""


def partition_to_group_by(events: DataFrame) -> Column:
    """Return the source partition as a column that is fast to group by: a number if possible, else text.

    The column is called `source_partition`. After the grouping, `with_partition_as_text` converts it to text.
    """
    name = PARTITION_NUMBER if PARTITION_NUMBER in events.columns else "source_partition"
    return F.col(name).alias("source_partition")


def with_partition_as_text(grouped: DataFrame) -> DataFrame:
    """Convert `source_partition` to text, its type in every table."""
    return grouped.withColumn("source_partition", F.col("source_partition").cast("string"))


def conform(name: str, columns: Mapping[str, DataType]) -> Step:
    """Select exactly these columns in this order, after a check of their types; no job is run.

    Raises:
        ContractError: naming each column that is missing or has another type.
    """

    def step(frame: DataFrame) -> DataFrame:
        types = {field.name: field.dataType for field in frame.schema.fields}
        wrong = [
            f"  {column}: expected {expected.simpleString()}, got {_type_name(types.get(column))}"
            for column, expected in columns.items()
            if types.get(column) != expected
        ]
        if wrong:
            msg = "\n".join([f"table `{name}` breaks its contract:", *wrong[:10]])
            raise ContractError(msg)
        return frame.select(*(F.col(column) for column in columns))

    return step


def parse_schema(ddl: str) -> StructType:
    """Return columns with their types, such as `at timestamp, hits int`, as a schema; Java parses them."""
    # Spark 3.5 has no public name for it.
    return cast("StructType", _parse_datatype_string(ddl)) if ddl else StructType()


def parse_type(text: str) -> DataType:
    """Return the type for its name in Spark SQL."""
    return parse_schema(f"c {text}").fields[0].dataType


def _type_name(kind: DataType | None) -> str:
    return kind.simpleString() if kind else "no such column"


def integer_quotient(dividend: Column, divisor: Column) -> Column:
    """Return the integer quotient of dividends that aren't negative; `/` would use floating point."""
    return F.call_function("div", dividend, divisor)


def int64_literal(value: int | None) -> Column:
    """Return a 64-bit literal; Spark would use 32 bits for a small number."""
    return F.lit(value).cast("long")


def table_literals(spark: SparkSession, columns: Mapping[str, pa.Array]) -> dict[str, Column]:
    """Return each column as one array value for `F.get`: the only row of a scalar subquery."""
    row = spark.createDataFrame(pa.table({name: _one_row(values) for name, values in columns.items()}))
    return {name: row.select(name).scalar() for name in columns}


def plan_literals(spark: SparkSession, *numbers: int) -> list[Column]:
    """Return 64-bit integers, never null, that generated code gets as data, so that Spark can reuse the code."""
    array = table_literals(spark, {"numbers": pa.array(numbers, pa.int64())})["numbers"]
    return [F.coalesce(F.get(array, F.lit(position)), F.lit(0)) for position in range(len(numbers))]


@dataclass(frozen=True, slots=True)
class IntervalColumns:
    """An interval `[start_ms, end_ms)` of event time as plan literals."""

    start_ms: Column
    end_ms: Column

    @classmethod
    def from_interval(cls, spark: SparkSession, interval: Interval) -> IntervalColumns:
        """Return the bounds of an interval as plan literals."""
        return cls(*plan_literals(spark, interval.start_ms, interval.end_ms))

    def hold(self, time_ms: Column) -> Column:
        """Return whether an instant is in the interval."""
        return (time_ms >= self.start_ms) & (time_ms < self.end_ms)


def _one_row(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
