"""Run scripts of Flink SQL as definitions, and compare the rows with those of Flink 2.3.0."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.conformance.pair_cover import Line
from tests.conformance.test_run_engines import run_engine

from backstream.conformance.cases import load_cases
from backstream.conformance.comparison import find_difference
from backstream.conformance.reference_engine import run_cases

SCRIPTS = Path(__file__).parent / "flink_sql" / "scripts"


def lines_of(*numbers: str) -> list[Line]:
    return [line for line in load_cases([SCRIPTS]) if line["case"]["name"].startswith(numbers)]


@pytest.mark.slow
def test_rows_of_scripts_agree_with_flink_on_spark(spark: SparkSession) -> None:
    tally = find_difference(lines_of("02", "05"), run_engine(spark, "spark"))

    assert (tally.differ, tally.agree) == ([], 2)


@pytest.mark.long
@pytest.mark.parametrize(
    ("engine", "agree", "unsupported"),
    [
        ("spark", 6, []),
        (
            "native",
            4,
            [
                "aggregates.errors is count(*) filter (where status >= 500)",
                "aggregates.visitors is count(distinct visitor)",
            ],
        ),
    ],
)
def test_rows_of_all_scripts_agree_with_flink(
    spark: SparkSession, engine: str, agree: int, unsupported: list[str]
) -> None:
    tally = find_difference(lines_of("01", "02", "03", "04", "05", "11"), run_engine(spark, engine))

    assert (tally.differ, tally.agree, sorted(tally.unsupported)) == ([], agree, unsupported)


def test_scripts_that_no_definition_expresses_are_counted_by_their_reason() -> None:
    tally = find_difference(lines_of("06", "07", "08", "09", "10", "12", "13"), run_cases)

    assert (tally.differ, tally.agree) == ([], 0)
    reasons = Counter(reason.partition(" (")[0] for reason in tally.unsupported.elements())
    assert reasons == {
        "a join is not possible": 5,
        "windows of processing time are not possible: a replay has no clock of the wall": 1,
        "OVER is not possible": 1,
    }
    assert "a join is not possible (script.sql, line 45, column 6)" in tally.unsupported


def test_a_row_that_flink_does_not_have_is_a_difference(spark: SparkSession) -> None:
    (line,) = lines_of("01")
    live = [*line["flink"]["live"][1:], {**line["flink"]["live"][0], "orders": 1}]

    tally = find_difference([{**line, "flink": {**line["flink"], "live": live}}], run_engine(spark, "native"))

    assert len(tally.differ) == 1
    assert tally.differ[0].startswith(
        "differs: 01_tumble_revenue: live rows: at shop = east, window_start = 17724384"
    )
