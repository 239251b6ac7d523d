"""Columns that every step may rely on, and the check that a table has what it promised."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StringType

from backstream.core.errors import ContractError

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


def conforming(name: str, columns: Mapping[str, DataType]) -> Step:
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


def long(value: int | None) -> Column:
    """A 64-bit literal; Spark would take a small number for 32 bits."""
    return F.lit(value).cast("long")
