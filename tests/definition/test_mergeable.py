"""Aggregates taken apart: what is counted over rows, how that is merged, and what it comes to."""

from __future__ import annotations

import pytest

from backstream.definition.mergeable import mergeable_aggregate

Parts = tuple[tuple[str, ...], tuple[str, ...]]


def parts_of(text: str) -> Parts:
    """The partial aggregates of an expression, and what merges them."""
    steps = mergeable_aggregate(text)
    assert steps
    return (
        tuple(sql for call in steps.calls for sql in call.partial),
        tuple(sql for call in steps.calls for sql in call.merged_by),
    )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("count(*)", (("count(*)",), ("sum",))),
        ("count(hits, page)", (("count(hits, page)",), ("sum",))),
        ("count_if(hits > 2)", (("count_if(hits > 2)",), ("sum",))),
        ("sum(hits * 2)", (("sum(hits * 2)",), ("sum",))),
        ("min(page)", (("min(page)",), ("min",))),
        ("cast(max(hits) as int)", (("max(hits)",), ("max",))),
        ("sum(hits) / count(*)", (("sum(hits)", "count(*)"), ("sum", "sum"))),
        ("sum(hits) filter (where is_bot)", (("sum(hits) filter (where is_bot)",), ("sum",))),
        (
            "avg(hits / 60) filter (where is_bot)",
            (
                (
                    "sum(cast(hits / 60 as double)) FILTER (WHERE is_bot)",
                    "count(hits / 60) FILTER (WHERE is_bot)",
                ),
                ("sum", "sum"),
            ),
        ),
    ],
)
def test_each_call_has_parts_of_its_own(text: str, parts: Parts) -> None:
    assert parts_of(text) == parts


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("count(*)", "coalesce(a, 0)"),
        ("sum(hits)", "a"),
        ("cast(sum(hits) as decimal(10,4))", "cast(a as decimal(10,4))"),
        ("100 * sum(hits) / sum(seq)", "100 * a / b"),
    ],
)
def test_the_text_around_the_calls_stays(text: str, value: str) -> None:
    steps = mergeable_aggregate(text)

    assert steps
    assert steps.value([call.value([name]) for call, name in zip(steps.calls, "ab", strict=False)]) == value


def test_an_average_is_a_sum_and_a_count() -> None:
    steps = mergeable_aggregate("avg(hits)")

    assert steps
    assert steps.calls[0].value(["a", "b"]) == "(a / nullif(b, 0))"


@pytest.mark.parametrize(
    "text",
    [
        "count(distinct page)",
        "sum(distinct hits)",
        "cast(avg(distinct hits) as int)",
        "stddev(hits)",
        "approx_count_distinct(page)",
        "percentile(hits, 0.5)",
        "sum(hits) / count(distinct page)",
    ],
)
def test_what_needs_all_rows_has_no_parts(text: str) -> None:
    assert mergeable_aggregate(text) is None
