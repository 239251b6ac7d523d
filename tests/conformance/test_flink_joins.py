"""Compare the rules of joins with recordings of Flink 2.3.0, of its DataStream API and of its SQL."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.conformance.pair_cover import Line
from tests.conformance.test_run_engines import run_engine

from backstream.chunks import replay
from backstream.conformance.cases import load_cases, parse_case
from backstream.conformance.comparison import find_difference
from backstream.conformance.join_results import JoinReplay
from backstream.conformance.reference_engine import run_cases
from backstream.eventtime.instants import DAY_MS

FOLDER = Path(__file__).parent / "flink_joins"
FAMILIES = {
    "interval_join": 74,
    "sql_interval_join": 88,
    "sql_temporal_join": 72,
    "sql_window_join": 70,
    "window_join": 70,
}


def lines_of(name: str) -> Sequence[Line]:
    return list(load_cases([FOLDER / f"{name}.jsonl"]))


@pytest.mark.parametrize(("name", "agree"), FAMILIES.items())
def test_the_reference_agrees_with_flink(name: str, agree: int) -> None:
    tally = find_difference(lines_of(name), run_cases)

    assert (tally.differ, tally.agree, tally.unsupported) == ([], agree, {})


@pytest.mark.parametrize(
    ("join", "reason"),
    [
        (
            {"kind": "interval", "condition": "left.value = right.value"},
            "join condition 'left.value = right.value'",
        ),
        ({"kind": "lookup"}, "join kind 'lookup'"),
    ],
)
def test_a_join_without_a_rule_is_counted_with_its_reason(join: dict[str, Any], reason: str) -> None:
    (line, *_) = lines_of("interval_join")
    case = {**line["case"], "join": {**line["case"]["join"], **join}}

    assert find_difference([{**line, "case": case}], run_cases).unsupported == {reason: 1}


def test_a_difference_is_told_with_its_row() -> None:
    (line, *_) = lines_of("sql_interval_join")
    flink = {**line["flink"], "rows": line["flink"]["rows"][1:]}

    (difference,) = find_difference([{**line, "flink": flink}], run_cases).differ

    assert difference.startswith(f"differs: {line['case']['name']}: rows: ")


OF_THE_PARALLELISM = "an interval join of Flink SQL in which the parallelism decides about a pair"


@pytest.mark.slow
def test_a_run_on_spark_agrees_with_flink(spark: SparkSession) -> None:
    # The other families run below, over several days.
    lines = [lines_of(name)[21] for name in ("sql_interval_join", "sql_temporal_join")]

    tally = find_difference(lines, run_engine(spark, "spark"))

    assert (tally.differ, tally.agree, tally.unsupported) == ([], len(lines), {})


@pytest.mark.slow
def test_pairs_that_depend_on_the_parallelism_are_counted_with_the_reason(spark: SparkSession) -> None:
    lines = [line for line in lines_of("sql_interval_join") if "/another_key" in line["case"]["name"]]

    tally = find_difference(lines, run_engine(spark, "spark"))

    assert (tally.differ, tally.unsupported) == ([], {OF_THE_PARALLELISM: 3})


@pytest.mark.slow
def test_the_native_engine_leaves_joins_to_spark(spark: SparkSession) -> None:
    (line, *_) = lines_of("interval_join")

    tally = find_difference([line], run_engine(spark, "native"))

    assert tally.unsupported == {"[join] needs the records of a key one after the other": 1}


def over_days(line: Line) -> Line:
    """Return a recording whose times are 100,000 times as long, with the rows of the reference."""

    def scale(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: scale(each, key) for key, each in value.items()}
        if isinstance(value, list):
            return [scale(each, name) for each in value]
        return value * 100_000 if name.endswith("_ms") or name in ("ts", "marker") else value

    content = scale({key: value for key, value in line["case"].items() if key not in ("sql", "datastream")})
    case_content = {**content, **{key: line["case"][key] for key in ("sql", "datastream") if key in line["case"]}}
    case = parse_case(case_content)
    (result,) = run_cases([case])
    assert isinstance(result, JoinReplay)
    rows = [
        {"left": row.row.get("left_id"), "right": row.row.get("right_id"), "kind": "", "by": 0, "after": 0}
        | ({"end": row.timestamp_ms + 1} if "window" in case_content else {})
        for row, _, _ in result.trace
        if row.tag is None
    ]
    late = [number for row, number, _ in result.trace if row.tag is not None]
    return {"case": case_content, "flink": {"rows": rows, "late": sorted({*late}), "num_dropped": len(late)}}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), [("interval_join", 26), ("window_join", 12), ("sql_window_join", 23)])
def test_each_chunk_of_a_day_reads_all_records_of_its_rows(
    spark: SparkSession, name: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "group_chunks", lambda chunks, _: ([chunk] for chunk in chunks))
    line = over_days(lines_of(name)[number])
    times_ms = [record["ts"] for record in line["case"]["records"]]
    assert max(times_ms) - min(times_ms) > 5 * DAY_MS

    tally = find_difference([line], run_engine(spark, "spark"))

    assert (tally.differ, tally.agree) == ([], 1)
