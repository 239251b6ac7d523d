"""Aggregates taken apart: what is counted over rows, how that is merged, and what it comes to."""

from __future__ import annotations

import pytest

from backstream.definition.aggregates import MergeableAggregate, mergeable_aggregate, with_cast_of


@pytest.mark.parametrize(
    ("call", "partial", "merged_by", "value"),
    [
        ("count(*)", ("COUNT(*)",), ("sum",), "coalesce(a, 0)"),
        ("count(hits, page)", ("COUNT(hits, page)",), ("sum",), "coalesce(a, 0)"),
        ("count_if(hits > 2)", ("COUNT_IF(hits > 2)",), ("sum",), "coalesce(a, 0)"),
        ("sum(hits * 2)", ("SUM(hits * 2)",), ("sum",), "a"),
        ("min(page)", ("MIN(page)",), ("min",), "a"),
        ("cast(max(hits) as int)", ("MAX(hits)",), ("max",), "a"),
    ],
)
def test_a_call_is_its_own_part(
    call: str, partial: tuple[str, ...], merged_by: tuple[str, ...], value: str
) -> None:
    steps = mergeable_aggregate(call)

    assert steps == MergeableAggregate(partial[0], partial, merged_by)
    assert steps.value(["a"]) == value


def test_an_average_is_a_sum_and_a_count() -> None:
    steps = mergeable_aggregate("avg(hits / 60)")

    assert steps == MergeableAggregate(
        "AVG(hits / 60)", ("sum(cast(hits / 60 as double))", "count(hits / 60)"), ("sum", "sum")
    )
    assert steps.value(["a", "b"]) == "a / nullif(b, 0)"


@pytest.mark.parametrize(
    "call",
    [
        "count(distinct page)",
        "sum(distinct hits)",
        "cast(avg(distinct hits) as int)",
        "stddev(hits)",
        "approx_count_distinct(page)",
        "percentile(hits, 0.5)",
    ],
)
def test_what_needs_all_rows_has_no_parts(call: str) -> None:
    assert mergeable_aggregate(call) is None


@pytest.mark.parametrize(
    ("call", "value"),
    [
        ("sum(hits)", "a"),
        ("cast(sum(hits) as decimal(10,4))", "CAST(a AS DECIMAL(10, 4))"),
        ("try_cast(max(page) as int)", "TRY_CAST(a AS INT)"),
    ],
)
def test_a_cast_goes_around_the_value(call: str, value: str) -> None:
    assert with_cast_of(call, "a") == value
