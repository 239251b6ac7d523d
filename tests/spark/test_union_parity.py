"""Compare both engines on random unions of several sources without a Flink recording."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.test_parity import comparable, random_case, random_record

from backstream.conformance import reference_engine
from backstream.conformance.cases import parse_case
from backstream.conformance.spark_engine import new_engine

pytestmark = pytest.mark.slow

CASES = 300
KINDS = ["monotonous", "bounded", "bounded", "punctuated", "punctuated", "time_lag", "none"]


def random_strategy(chance: random.Random) -> dict[str, Any]:
    """Return a strategy of any kind, half of them with idleness."""
    idleness = {"idle_timeout_ms": chance.choice([1, 20, 300])} if chance.random() < 0.5 else {}
    return {"kind": chance.choice(KINDS), "delay_ms": chance.choice([0, 1, 30, 500]), **idleness}


def random_union(chance: random.Random, number: int) -> dict[str, Any]:
    """Return a random stream of up to four sources; some have no records, and some have no partitions."""
    case = random_case(chance, number)
    partitions = chance.randint(1, 6)
    owners = [chance.randrange(4) for _ in range(partitions)]
    arrivals = [record["arrival_ms"] for record in case["records"]]
    sources = [
        {
            "partitions": [partition for partition, owner in enumerate(owners) if owner == source],
            "strategy": random_strategy(chance),
        }
        for source in chance.sample(range(4), 4)
        if source in owners or chance.random() < 0.1
    ]
    busy = chance.randint(1, partitions)
    records = [random_record(chance, at, busy, arrivals[-1] - arrivals[0] + 1, is_marker=True) for at in arrivals]
    settings = {key: case[key] for key in ("window", "allowed_lateness_ms", "start_ms", "end_ms") if key in case}
    interval = {"kind": "per_source", "interval_ms": case["strategy"]["interval_ms"]}
    return settings | {
        "name": f"union/{number}",
        "partitions": partitions,
        "strategy": interval,
        "records": records,
        "topology": "union",
        "sources": sources,
    }


def test_spark_agrees_with_the_reference_on_random_unions(spark: SparkSession) -> None:
    chance = random.Random(2_030)  # noqa: S311 - cases, not secrets
    cases = [parse_case(random_union(chance, number)) for number in range(CASES)]

    ours, theirs = new_engine(spark)(cases), reference_engine.run_cases(cases)

    pairs = zip(map(comparable, cases, ours), map(comparable, cases, theirs), strict=True)
    assert [(mine, judge) for mine, judge in pairs if mine != judge] == []
    results = [result for result in theirs if not isinstance(result, Exception)]
    assert len(results) == CASES
    assert sum(bool(result.late) for result in results) > CASES // 10
