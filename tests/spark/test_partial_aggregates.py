"""Compare merged partial aggregates with the same aggregates in one step."""

from __future__ import annotations

import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backstream.spark.windows.partial_aggregates import split_aggregates

MERGING = {
    "rows": "count(*)",
    "known": "count(whole)",
    "pairs": "count(whole, name)",
    "twos": "count_if(whole = 2)",
    "total": "sum(whole)",
    "total_small": "sum(small)",
    "total_float": "sum(half)",
    "total_price": "sum(price)",
    "total_of_long_price": "sum(long_price)",
    "least": "min(name)",
    "most": "max(half)",
    "latest": "max(day)",
    "mean": "avg(whole)",
    "mean_half": "avg(half)",
    "mean_of_sum": "avg(whole + half)",
    "mean_cast": "cast(avg(whole) as decimal(10,4))",
    "count_cast": "cast(count(*) as int)",
    "maybe": "try_cast(max(name) as int)",
}
ROWS = (
    "(1, 1, 'a', cast(2 as short), cast(0.5 as float), 1.25, 3), (1, 2, '7', 1, 1.5, -9.75, 2),"
    "(1, 3, 'c', null, null, null, null), (1, 3, null, 5, 2.25, 0.01, 2), (2, 1, null, null, null, null, null)"
)


def rows(spark: SparkSession) -> DataFrame:
    """Return two groups of few rows; `part` has the rows that are merged first."""
    kinds = {
        "whole": "cast(whole as bigint)",
        "price": "cast(price as decimal(12, 2))",
        "long_price": "cast(price as decimal(38, 2))",
        "day": "current_date()",
    }
    typed = ", ".join(f"{kind} {name}" for name, kind in kinds.items())
    source = f"values {ROWS} t(grp, part, name, small, half, price, whole)"
    return spark.sql(f"select grp, part, name, small, half, {typed} from {source}")  # noqa: S608 - literals


def direct(frame: DataFrame, aggregates: dict[str, str]) -> DataFrame:
    return frame.groupBy("grp").agg(*(F.expr(call).alias(name) for name, call in aggregates.items()))


def stepwise(frame: DataFrame, aggregates: dict[str, str]) -> DataFrame:
    """Return the aggregates after two merges."""
    steps = split_aggregates(frame, aggregates)
    assert steps
    once = frame.groupBy("grp", "part").agg(*steps.partial)
    twice = once.groupBy("grp", F.col("part") > F.lit(1)).agg(*steps.merges)
    return twice.groupBy("grp").agg(*steps.merges).select("grp", *steps.values)


def test_aggregates_from_parts_have_the_values_and_types_of_direct_ones(spark: SparkSession) -> None:
    frame = rows(spark)

    merged, plain = stepwise(frame, MERGING), direct(frame, MERGING)

    assert {field.name: field.dataType for field in merged.schema} == {
        field.name: field.dataType for field in plain.schema
    }
    assert sorted(map(str, merged.collect())) == sorted(map(str, plain.collect()))


@pytest.mark.parametrize(
    "call",
    [
        "count(distinct name)",
        "sum(distinct whole)",
        "avg(price)",
        "cast(avg(price) as double)",
        "stddev(whole)",
        "percentile(whole, 0.5)",
        "approx_count_distinct(name)",
        "max_by(name, whole)",
        "cast(median(whole) as int)",
    ],
)
def test_what_needs_all_rows_at_once_is_not_taken_apart(spark: SparkSession, call: str) -> None:
    assert split_aggregates(rows(spark), {"rows": "count(*)", "other": call}) is None


def test_a_sum_that_overflows_still_fails(spark: SparkSession) -> None:
    frame = spark.sql(f"select 1 grp, id part, cast({2**62} as bigint) whole from range(2)")  # noqa: S608 - literals

    for way in (direct, stepwise):
        with pytest.raises(ArithmeticException):
            way(frame, {"total": "sum(whole)"}).collect()


def test_an_average_of_large_numbers_is_that_of_doubles(spark: SparkSession) -> None:
    frame = spark.sql(f"select 1 grp, id part, cast({2**62} + id as bigint) whole from range(4)")  # noqa: S608 - literals

    assert stepwise(frame, {"mean": "avg(whole)"}).collect() == direct(frame, {"mean": "avg(whole)"}).collect()
