"""Test panes of aggregates that can't be merged."""

from __future__ import annotations

from decimal import Decimal

from pyspark.sql import SparkSession

from backstream.spark.windows.aggregation import panes_of_rows

AGGREGATES = {
    "mean": "cast(avg(x) as decimal(10, 2))",
    "number": "try_cast(max(name) as int)",
    "kinds": "count(distinct x)",
}


def test_panes_aggregate_the_records_in_time_and_are_null_without_records(spark: SparkSession) -> None:
    rows = [("a", 1, "7", True, True), ("a", 2, "8", False, True), ("a", 2, "z", False, False)]
    rows.append(("b", 5, "q", False, False))
    timed = spark.createDataFrame(rows, "key string, x long, name string, is_on_time boolean, is_accepted boolean")

    result = panes_of_rows(timed, ["key"], AGGREGATES)

    values = [f"{name}__{pane}" for name in AGGREGATES for pane in ("first", "live", "final")]
    assert result.columns == [
        "key",
        "record_count__first",
        "record_count__live",
        "record_count__final",
        *values,
        "late_firings",
    ]
    means, numbers = [Decimal("1.00"), Decimal("1.50"), Decimal("1.67")], [7, 8, None]
    assert sorted(map(list, result.collect())) == [
        ["a", 1, 2, 3, *means, *numbers, 1, 2, 2, 1],
        ["b", 0, 0, 1, None, None, Decimal("5.00"), None, None, None, None, None, 1, 0],
    ]
