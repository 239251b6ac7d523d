"""Check times near the limits of 64 bits, where sums wrap around as in Java."""

from __future__ import annotations

import random
from typing import Any

from pyspark.sql import SparkSession
from tests.spark.test_parity import comparable

from backstream.conformance import reference_engine
from backstream.conformance.cases import Case, EngineResult, parse_case
from backstream.errors import BackstreamError
from backstream.eventtime.instants import MAX_MS, MIN_MS

SIZES = [10, 300, 1_000]


def extreme_case(chance: random.Random, number: int) -> dict[str, Any]:
    """Return a stream near one limit; sliding and cumulate windows are only near the upper one."""
    kind = chance.choice(["tumbling", "session", "sliding", "cumulate"])
    at_top = kind in ("sliding", "cumulate") or chance.random() < 0.5
    size_ms = chance.choice(SIZES)

    def event_time_ms() -> int:
        far_ms = chance.choice([0, 1, 5, 40, 900, 5_000])
        edge_ms = MAX_MS - far_ms if at_top else MIN_MS + far_ms
        return chance.choice([edge_ms, edge_ms, chance.randrange(2_000)])

    window: dict[str, Any] = {"kind": kind, "size_ms": size_ms, "offset_ms": chance.choice([0, 3, -7])}
    window |= {"gap_ms": size_ms} if kind == "session" else {}
    window |= {"slide_ms": chance.choice([10, 25, 450])} if kind == "sliding" else {}
    window |= {"slide_ms": size_ms // 10} if kind == "cumulate" else {}
    return {
        "name": f"extreme/{number}",
        "partitions": 1,
        "strategy": {
            "kind": chance.choice(["monotonous", "bounded", "none"]),
            "interval_ms": 1,
            "delay_ms": chance.choice([0, 30]),
        },
        "window": window,
        "allowed_lateness_ms": chance.choice([0, 0, 25, 2_000, MAX_MS]),
        "records": [
            {"arrival_ms": at, "partition": 0, "key": chance.choice("ab"), "ts": event_time_ms()}
            for at in range(chance.randint(1, 8))
        ],
    }


def error_text(outcome: EngineResult | BackstreamError) -> str | None:
    return str(outcome) if isinstance(outcome, BackstreamError) else None


def test_both_engines_agree_near_the_limits(spark: SparkSession) -> None:
    from backstream.conformance.spark_engine import new_engine

    chance = random.Random(64)  # noqa: S311 - cases, not secrets
    cases = [parse_case(extreme_case(chance, number)) for number in range(200)]

    actual, expected = new_engine(spark)(cases), reference_engine.run_cases(cases)

    pairs = zip(map(comparable, cases, actual), map(comparable, cases, expected), strict=True)
    assert [(mine, judge) for mine, judge in pairs if mine != judge] == []
    errors = {str(error).split("\n")[0] for error in map(error_text, expected) if error}
    assert errors == {
        "session cannot merge to end before the watermark: lateness overflows",
        f"event time {MIN_MS} ms means `no timestamp`, so no window can be assigned",
    }


def sliding(event_time_ms: int) -> Case:
    window = {"kind": "sliding", "size_ms": 30, "slide_ms": 10}
    record = {"arrival_ms": 0, "partition": 0, "key": "a", "ts": event_time_ms}
    strategy = {"kind": "none"}
    return parse_case({"name": "mine", "strategy": strategy, "window": window, "records": [record]})


def test_sliding_windows_at_the_lower_limit_follow_the_loop_of_flink(spark: SparkSession) -> None:
    """`for (start = last; start > timestamp - size; start -= slide)`, in Java's arithmetic."""
    from backstream.conformance.spark_engine import new_engine

    # -2^63 is 2 ms above a window start: the first window starts below -2^63 and wraps to the top.
    wraps_too, wraps_alone = new_engine(spark)([sliding(MIN_MS + 1), sliding(MIN_MS + 20)])

    assert isinstance(wraps_too, EngineResult)
    assert [(firing.start, firing.end) for firing in wraps_too.firings] == [
        (MAX_MS - 21, MIN_MS + 8),
        (MAX_MS - 11, MIN_MS + 18),
        (MAX_MS - 1, MIN_MS + 28),
    ]
    assert isinstance(wraps_alone, EngineResult)
    assert (wraps_alone.firings, wraps_alone.late) == ([], [])
