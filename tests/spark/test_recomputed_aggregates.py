"""Compare each aggregate of the reference engine with the result of Spark over random values."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backstream.native.recomputed_aggregates import parse_recomputed
from backstream.workflow.recomputation.values import aggregate_values, are_equal

TYPES = {"word": "string", "flag": "boolean", "number": "bigint", "ratio": "double", "group": "int"}
CALLS = (
    "count(*)",
    "count(word)",
    "sum(number)",
    "sum(ratio)",
    "avg(number)",
    "avg(ratio)",
    "min(word)",
    "max(word)",
    "min(ratio)",
    "max(ratio)",
    "count(distinct word)",
    "count(distinct number)",
    "count(distinct flag)",
    "count_if(flag)",
    "bool_and(flag)",
    "bool_or(flag)",
    "median(number)",
    "median(ratio)",
    "percentile(number, 0.9)",
    "percentile(ratio, 0.25)",
)
Row = tuple[Any, ...]


def random_rows(groups: int = 40) -> list[Row]:
    """Return rows of groups with 1 to 12 records, many nulls, and some NaN; the first group has only nulls."""
    draw, rows = random.Random(7), []  # noqa: S311 - the same values each time
    choices: Sequence[Sequence[Any]] = (
        (None, "", "a", "A", "ä", "zz"),
        (None, True, False, True),
        (None, -(2**40), -7, 0, 3, 3, 2**40),
        (None, -1.5, -0.0, 0.0, 1e-3, 2.25, 1e6, math.nan),
    )
    for group in range(groups):
        for _ in range(draw.randint(1, 12)):
            values = [None if group == 0 else draw.choice(each) for each in choices]
            rows.append((*values, group))
    return rows


@pytest.mark.parametrize("group_has_nan", [False, True])
def test_each_aggregate_has_the_value_that_spark_has(spark: SparkSession, *, group_has_nan: bool) -> None:
    rows = random_rows()
    with_nan = {row[4] for row in rows if row[3] is not None and math.isnan(row[3])}
    rows = [row for row in rows if (row[4] in with_nan) is group_has_nan]
    schema = ", ".join(f"`{name}` {kind}" for name, kind in TYPES.items())
    calls = {f"value_{number}": call for number, call in enumerate(CALLS)}
    aggregates = [parse_recomputed(name, call, TYPES) for name, call in calls.items()]
    known = [each for each in aggregates if each is not None]
    assert len(known) == len(CALLS)

    expected = (
        spark.createDataFrame(rows, schema)
        .groupBy("group")
        .agg(*(F.expr(call).alias(name) for name, call in calls.items()))
        .collect()
    )

    assert len(expected) > 5
    for row in expected:
        own = [dict(zip(TYPES, each, strict=True)) for each in rows if each[4] == row["group"]]
        found = aggregate_values(known, TYPES, own)
        for name, call in calls.items():
            value = float(row[name]) if isinstance(row[name], Decimal) else row[name]
            assert are_equal(value, found[name]), (call, row["group"], value, found[name], own)
