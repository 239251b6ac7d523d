"""Compare top-N of windows with Flink SQL 2.3.0: recordings on each engine, and whole jobs with their rows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.conformance.test_run_engines import run_engine
from tests.spark.runs import rows

from backstream.chunks.replay import replay_chunks
from backstream.conformance.cases import load_cases
from backstream.conformance.comparison import find_difference
from backstream.conformance.reference_engine import run_cases
from backstream.eventtime.instants import DAY_MS, instant_ms
from backstream.eventtime.intervals import Interval
from backstream.eventtime.ranks import rank_rows
from backstream.runs.home import Home
from backstream.runs.plan import Mode
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.plan.plan_request import PlanRequest
from backstream.workflow.plan.planning import plan_run
from backstream.workflow.runners import SparkRunner

FOLDER = Path(__file__).parent / "flink_sql"


def test_equal_rows_follow_each_other_or_have_one_rank() -> None:
    scores = [("a", 5), ("b", 7), ("c", 5), ("d", 1), ("e", 7)]

    def ranks(*, keeps_ties: bool) -> dict[str, int]:
        ranked = rank_rows(scores, lambda _: None, lambda row: -row[1], keeps_ties=keeps_ties)
        return {name: rank for (name, _), rank in ranked}

    assert ranks(keeps_ties=False) == {"b": 1, "e": 2, "a": 3, "c": 4, "d": 5}
    assert ranks(keeps_ties=True) == {"b": 1, "e": 1, "a": 3, "c": 3, "d": 5}


@pytest.mark.parametrize("cuts", [0, 3])
def test_the_reference_agrees_with_top_n_of_flink_sql(cuts: int) -> None:
    tally = find_difference(list(load_cases([FOLDER / "sql_top_n.jsonl"])), lambda cases: run_cases(cases, cuts))

    assert (tally.differ, tally.agree, tally.unsupported) == ([], 70, {})


def test_another_order_differs() -> None:
    lines = list(load_cases([FOLDER / "sql_top_n.jsonl"]))
    swapped = {"first": "last", "last": "first", "records": "first", "aggregates": "records"}
    changed = [
        {
            **line,
            "case": {**line["case"], "top": {**line["case"]["top"], "of": swapped[line["case"]["top"]["of"]]}},
        }
        for line in lines
        if line["case"]["top"]["of"] != "aggregates"
    ]

    assert len(find_difference(changed, run_cases).differ) > 40


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "names"), [("native", "2346"), ("spark", "0125")])
def test_a_run_agrees_with_top_n_of_flink_sql(spark: SparkSession, engine: str, names: str) -> None:
    """Each engine gets a window of each kind, and both of them each kind of top-N."""
    wanted = {f"sql_top_n/1/{name}" for name in names}
    lines = [line for line in load_cases([FOLDER / "sql_top_n.jsonl"]) if line["case"]["name"] in wanted]

    tally = find_difference(lines, run_engine(spark, engine))

    assert (tally.differ, tally.agree, tally.unsupported) == ([], len(names), {})


SOURCE = """
name = "winners"

[source]
format = "json"
path = "{path}"
arrival_time = "arrival_ms"
arrival_time_unit = "ms"
partition = "partition"
sequence = "offset"
{source}

[watermark]
strategy = "flink_sql"
{rest}

[backfill]
mode = "replay"
publish = "live"
"""
JOBS = {
    "hot_items": (
        {
            "source": """event_time = "value.bid_time"
time_zone = "UTC"
event_time_pattern = "yyyy-MM-dd HH:mm:ss.SSS"
key = ["auction"]
derive = { auction = "value.auction" }
[source.columns]
value = "struct<auction: bigint, bid_time: string>"
partition = "int"
offset = "bigint"
arrival_ms = "bigint\"""",
            "rest": """delay = "4s"
[window]
kind = "sliding"
size = "60s"
slide = "20s"
[aggregates]
bids = "count(*)"
[top]
n = 1
by = "bids desc"
ties = "keep\"""",
        },
        ("auction", "bids"),
    ),
    "top_shops": (
        {
            "source": """event_time = "value.created_ms"
event_time_unit = "ms"
key = ["shop"]
derive = { shop = "value.shop", amount = "cast(value.amount as decimal(10, 2))" }
[source.columns]
value = "struct<shop: string, amount: string, created_ms: bigint>"
partition = "int"
offset = "bigint"
arrival_ms = "bigint\"""",
            "rest": """delay = "30s"
[window]
kind = "tumbling"
size = "10m"
[aggregates]
revenue = "sum(amount)"
[top]
n = 2
by = "revenue desc, shop"
rank = "place\"""",
        },
        ("shop", "revenue", "window_start", "window_end", "place"),
    ),
}


def text_of(value: object) -> str:
    """Return a value as Flink's JSON has it."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M")
    return f"{value:.2f}" if isinstance(value, Decimal) else str(value)


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS)
def test_a_job_of_flink_sql_has_its_rows(spark: SparkSession, tmp_path: Path, job: str) -> None:
    parts, columns = JOBS[job]
    definition, home = tmp_path / "winners.toml", Home(tmp_path / "home")
    definition.write_text(SOURCE.format(path=FOLDER / job / "events.jsonl", **parts))
    runner = SparkRunner(lambda: spark)
    prepare_source(definition, home, runner)
    start_ms = instant_ms("2026-03-02T00:00Z", "day")
    day = Interval(start_ms, start_ms + DAY_MS)
    plan = plan_run(PlanRequest(definition, day, mode=Mode.REPLAY, trigger="test", home=home))

    manifests = list(replay_chunks(runner.engine(), plan, plan.chunks))

    recorded = [
        json.loads(line)["row"] for line in (FOLDER / job / "expected_live.jsonl").read_text().splitlines()
    ]
    found = [{name: text_of(row[name]) for name in columns} for row in rows(manifests, "")]
    assert sorted(map(str, found)) == sorted(
        str({name: text_of(row[name]) for name in columns}) for row in recorded
    )
