"""What type each column of a result has, said before anything runs."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.definition.clicks import SOURCE, aggregating, definition

from backstream.definition.aggregates import key_columns, require_columns, value_columns, with_filter
from backstream.errors import SpecError

ICEBERG_TYPE = {
    "count(*)": "long",
    "count(page)": "long",
    "count(distinct page)": "long",
    "count_if(hits > 3)": "long",
    "approx_count_distinct(page)": "long",
    "sum(hits)": "long",
    "sum(seq)": "long",
    "sum(hits + 1)": "long",
    "sum(if(hits > 15, 1, 0))": "long",
    "sum(case when is_bot then 1 else 0 end)": "long",
    "sum(seconds)": "double",
    "sum(ratio)": "double",
    "sum(seconds / 60)": "double",
    "sum(price)": "decimal(20,2)",
    "sum(cast(seconds as decimal(12,3)))": "decimal(22,3)",
    "sum(cast(seconds as decimal))": "decimal(20,0)",
    "avg(hits)": "double",
    "avg(hits / 60)": "double",
    "stddev(seconds)": "double",
    "variance(hits)": "double",
    "min(hits)": "int",
    "min(ratio)": "float",
    "max(price)": "decimal(10,2)",
    "max(page)": "string",
    "max(happened_at)": "timestamptz",
    "max(day)": "date",
    "max(is_bot)": "boolean",
    "max(cast(hits as bigint))": "long",
    "cast(avg(price) as decimal(10,4))": "decimal(10,4)",
    "cast(percentile(hits, 0.5) as double)": "double",
    "try_cast(max(page) as int)": "int",
    "cast(max_by(page, hits) as string)": "string",
}


@pytest.mark.parametrize("call", ICEBERG_TYPE)
def test_an_aggregate_yields_a_type_that_is_known_before_anything_runs(call: str) -> None:
    clicks = aggregating(call)

    require_columns(clicks, SOURCE, "clicks.toml")
    assert [column.type for column in value_columns(clicks, SOURCE)] == [ICEBERG_TYPE[call]]


def test_spark_yields_these_types_also_for_some_of_the_rows(spark: SparkSession) -> None:
    events = spark.createDataFrame([], ", ".join(f"{name} {kind}" for name, kind in SOURCE.items()))
    whole = events.agg(*(F.expr(call).alias(call) for call in ICEBERG_TYPE))
    some = events.agg(*(F.expr(with_filter(call, "timing = 'late'")).alias(call) for call in ICEBERG_TYPE))

    spelled = {"long": "bigint", "timestamptz": "timestamp"}
    expected = {call: spelled.get(kind, kind) for call, kind in ICEBERG_TYPE.items()}
    assert {field.name: field.dataType.simpleString() for field in whole.schema} == expected
    assert {field.name: field.dataType.simpleString() for field in some.schema} == expected


@pytest.mark.parametrize(
    "call",
    ["avg(price)", "sum(price * 2)", "sum(hits * 1.5)", "max(hits + 1)", "median(hits)", "max_by(page, hits)"],
)
def test_a_type_that_is_not_certain_must_be_said(call: str) -> None:
    with pytest.raises(SpecError) as refused:
        value_columns(aggregating(call), SOURCE)

    assert str(refused.value) == (
        f"cannot determine the type of aggregates.total of clicks: {call!r}\n\n"
        f"hint: add a cast, e.g., cast({call} as double)"
    )


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("sum(page)", "must be over numbers, got 'sum(page)' over a string"),
        ("avg(day)", "must be over numbers, got 'avg(day)' over a date"),
        ("max(body)", "has the type binary, which a result column cannot have"),
        ("cast(max(page) as binary)", "has the type binary, which a result column cannot have"),
    ],
)
def test_an_aggregate_that_no_column_can_hold_is_refused(call: str, said: str) -> None:
    with pytest.raises(SpecError) as refused:
        value_columns(aggregating(call), SOURCE)

    assert str(refused.value) == f"aggregates.total of clicks {said}"


def test_keys_keep_their_types_and_bytes_are_no_key() -> None:
    keys = key_columns(definition({"source.key": '["page", "price"]'}), SOURCE)

    assert [(key.name, key.type) for key in keys] == [("page", "string"), ("price", "decimal(10,2)")]
    with pytest.raises(SpecError) as refused:
        key_columns(definition({"source.key": '["body"]'}), SOURCE)
    assert str(refused.value) == (
        "source.key 'body' of clicks has the type binary, which a result column cannot have"
    )
