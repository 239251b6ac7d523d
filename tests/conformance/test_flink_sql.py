"""Compare each engine with recordings of windows and watermarks of Flink SQL 2.3.0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.conformance.pair_cover import Line
from tests.conformance.test_run_engines import UNSUPPORTED, run_engine

from backstream.conformance.cases import load_cases
from backstream.conformance.comparison import find_difference
from backstream.conformance.reference_engine import run_cases

FOLDER = Path(__file__).parent / "flink_sql"
LOST = {"Flink has lost records in a buffer, which depends on its checkpoints": 11}
OUT_OF_ORDER = {"windows that fire out of order where the clocks of Australia/Lord_Howe change": 3}


def lines_of(name: str) -> Sequence[Line]:
    return list(load_cases([FOLDER / f"{name}.jsonl"]))


@pytest.mark.parametrize(
    ("name", "agree", "unsupported"),
    [("sql_window", 70, {}), ("sql_watermark", 77, {}), ("sql_time_zone", 76, LOST)],
)
@pytest.mark.parametrize("cuts", [0, 3])
def test_the_reference_agrees_with_flink_sql(
    name: str, agree: int, unsupported: dict[str, int], cuts: int
) -> None:
    tally = find_difference(lines_of(name), lambda cases: run_cases(cases, cuts))

    assert (tally.differ, tally.agree, tally.unsupported) == ([], agree, unsupported)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "agree"), [("sql_window", 65), ("sql_watermark", 66)])
def test_a_native_run_agrees_with_flink_sql(spark: SparkSession, name: str, agree: int) -> None:
    tally = find_difference(lines_of(name), run_engine(spark, "native"))

    assert (tally.differ, tally.agree) == ([], agree)
    assert tally.unsupported.keys() <= UNSUPPORTED


@pytest.mark.slow
def test_a_run_on_spark_agrees_with_flink_sql(spark: SparkSession) -> None:
    lines = [*lines_of("sql_watermark")[::9], *lines_of("sql_window")[::14]]

    tally = find_difference(lines, run_engine(spark, "spark"))

    assert (tally.differ, tally.agree, tally.unsupported) == ([], len(lines), {})


@pytest.mark.parametrize(
    ("part", "value", "reason"),
    [
        ("top", {"of": "joined rows", "n": 1}, "top-N of joined rows"),
        ("join", {"kind": "regular"}, "join kind 'regular'"),
    ],
)
def test_a_case_that_no_definition_can_say_is_counted_with_its_reason(
    part: str, value: object, reason: str
) -> None:
    (line, *_) = lines_of("sql_window")

    tally = find_difference([{**line, "case": {**line["case"], part: value}}], run_cases)

    assert tally.unsupported == {reason: 1}


@pytest.mark.slow
def test_a_native_run_agrees_with_windows_in_local_time(spark: SparkSession) -> None:
    lines = lines_of("sql_time_zone")[::4]

    tally = find_difference(lines, run_engine(spark, "native"))

    assert (tally.differ, tally.agree) == ([], 17)
    assert tally.unsupported.keys() <= LOST.keys() | OUT_OF_ORDER.keys()


@pytest.mark.slow
def test_a_run_on_spark_agrees_with_windows_in_local_time(spark: SparkSession) -> None:
    lines = [line for line in lines_of("sql_time_zone") if line["flink"]["plain_rule"]][3::13]

    tally = find_difference(lines, run_engine(spark, "spark"))

    assert (tally.differ, tally.agree, tally.unsupported) == ([], len(lines), {})


def test_another_time_zone_differs() -> None:
    def of_utc(line: Line) -> Line:
        return {**line, "case": {**line["case"], "time_zone": "UTC"}}

    lines = [of_utc(line) for line in lines_of("sql_time_zone") if line["flink"]["plain_rule"]]

    assert len(find_difference(lines, run_cases).differ) == 68


def test_a_watermark_of_datastream_differs() -> None:
    def of_datastream(line: Line) -> Line:
        strategy = {**line["case"]["strategy"], "kind": "bounded"}
        return {**line, "case": {**line["case"], "strategy": strategy}}

    lines = [
        of_datastream(line) for line in lines_of("sql_watermark") if line["case"]["watermarks_by"] == "pushdown"
    ]

    assert len(find_difference(lines, run_cases).differ) > 40
