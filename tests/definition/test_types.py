"""What type each column of a result has, said before anything runs."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.definition.clicks import SOURCE, aggregating, definition

from backstream.definition.aggregates import with_filter
from backstream.definition.columns import key_columns, require_columns, spark_type_name, value_columns
from backstream.definition.spark_functions import (
    AGGREGATES,
    GENERATORS,
    NOT_REPEATABLE,
    OTHERS,
    SINCE,
    WINDOW_FUNCTIONS,
)
from backstream.errors import SpecError
from backstream.installed_spark import find_older_spark

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
    "avg(price)": "decimal(14,6)",
    "sum(price * 2)": "decimal(22,2)",
    "sum(hits * 1.5)": "decimal(23,1)",
    "max(hits + 1)": "int",
    "median(hits)": "double",
    "max_by(page, hits)": "string",
    "min_by(happened_at, seq)": "timestamptz",
    "mode(day)": "date",
    "mode() within group (order by hits)": "int",
    "percentile(hits, array(0.5, 0.9))": "list<double>",
    "percentile_cont(0.5) within group (order by hits)": "double",
    "percentile_disc(0.5) within group (order by hits)": "double",
    "percentile_approx(price, 0.5)": "decimal(10,2)",
    "approx_percentile(hits, array(0.5, 0.9), 100)": "list<int>",
    "bool_or(is_bot)": "boolean",
    "every(hits > 1)": "boolean",
    "corr(hits, seconds)": "double",
    "covar_pop(hits, seconds)": "double",
    "regr_slope(hits, seconds)": "double",
    "regr_count(hits, seconds)": "long",
    "kurtosis(hits)": "double",
    "bit_or(seq)": "long",
    "try_sum(price)": "decimal(20,2)",
    "try_avg(hits)": "double",
    "collect_set(page)": "list<string>",
    "sort_array(collect_list(price))": "list<decimal(10,2)>",
    "listagg(page, ',') within group (order by page)": "string",
    "sum(hits) / count(*)": "double",
    "sum(price) / count(*)": "decimal(38,20)",
    "sum(hits) + count(*)": "long",
    "max(price) - min(price)": "decimal(11,2)",
    "sum(price) * 2": "decimal(22,2)",
    "max(ratio) + max(hits)": "double",
    "coalesce(sum(price), 0)": "decimal(20,2)",
    "if(count(*) > 1, 1.5, 2)": "decimal(11,1)",
    "sum(hits) > 3 and any(is_bot)": "boolean",
    "case when count(*) > 1 then 'many' else 'few' end": "string",
    "round(avg(hits), 2)": "double",
    "upper(max(page))": "string",
    "size(collect_set(page))": "int",
    "date_trunc('hour', max(happened_at))": "timestamptz",
    "to_json(named_struct('total', sum(hits)))": "string",
    "sum(hits) filter (where is_bot) div 2": "long",
    "array_max(collect_set(hits))": "int",
    "count(*) * 100.0 / count(distinct page)": "decimal(38,14)",
    "max(page) || min(page)": "string",
    "unix_millis(max(happened_at)) - unix_millis(min(happened_at))": "long",
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

    expected = {call: spark_type_name(kind) for call, kind in ICEBERG_TYPE.items()}
    assert {field.name: field.dataType.simpleString() for field in whole.schema} == expected
    assert {field.name: field.dataType.simpleString() for field in some.schema} == expected


@pytest.mark.parametrize("call", ["max(map(page, hits))", "max(bit_length(page))", "sum(hits % price)"])
def test_an_aggregate_of_uncertain_type_needs_a_cast(call: str) -> None:
    with pytest.raises(SpecError) as refused:
        value_columns(aggregating(call), SOURCE)

    assert str(refused.value) == (
        f"cannot determine the type of aggregates.total of clicks: {call!r}\n\n"
        "hint: put a cast to its type around it, e.g., cast(.. as double) or cast(.. as string)"
    )


def test_planning_lists_all_functions_of_spark(spark: SparkSession) -> None:
    registry = spark._jsparkSession.sessionState().functionRegistry()  # noqa: SLF001 - the only way to the groups
    found, functions = {}, registry.listFunction().iterator()
    while functions.hasNext():
        function = functions.next()
        name = str(function.unquotedString()).rpartition(".")[2]
        info = registry.lookupFunction(function).get()
        # Other tests register functions in the same session.
        if name.isidentifier() and info.getSource() == "built-in":
            found[name] = str(info.getGroup())

    def of_group(group: str) -> set[str]:
        return {name for name, its_group in found.items() if its_group == group}

    missing = {name for name, since in SINCE.items() if find_older_spark(since)}
    assert of_group("agg_funcs") == AGGREGATES - missing
    assert of_group("window_funcs") == WINDOW_FUNCTIONS - missing
    assert of_group("generator_funcs") == GENERATORS
    only_in_the_parser = {"try_cast", "timestampadd", "timestampdiff", "extract"}
    known = (AGGREGATES | WINDOW_FUNCTIONS | GENERATORS | NOT_REPEATABLE | OTHERS) - missing
    assert known - found.keys() <= only_in_the_parser
    assert found.keys() - known == set()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("sum(page)", "must be over numbers, got 'sum(page)' over a string"),
        ("avg(day)", "must be over numbers, got 'avg(day)' over a date"),
        ("max(body)", "has the type binary, which a result column cannot have"),
        (
            "max(struct(hits, seq))",
            (
                "has the type struct<hits:int,seq:bigint>, which a result column cannot have"
                " (to_json(..) makes text of it)"
            ),
        ),
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
