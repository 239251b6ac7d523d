"""Compare both engines on random streams without a Flink recording."""

from __future__ import annotations

import random
from typing import Any

from pyspark.sql import SparkSession

from backstream.conformance import reference_engine
from backstream.conformance.cases import Case, EngineResult, parse_case
from backstream.conformance.spark_engine import new_engine
from backstream.errors import BackstreamError

CASES = 300


def random_case(chance: random.Random, number: int) -> dict[str, Any]:
    """Return a random stream with extreme settings, in the form of the recordings."""
    interval_ms = chance.choice([0, 1, 7, 50, 200])
    span_ms = chance.choice([60, 900, 20_000])
    base_ms = chance.choice([0, -5_000, 1_700_000_000_000])
    partitions = chance.randint(1, 4)
    arrivals = sorted(base_ms + chance.randrange(span_ms) for _ in range(chance.randint(1, 40)))
    kind = chance.choice(["monotonous", "bounded", "bounded", "punctuated", "time_lag", "none"])
    records = [random_record(chance, at, partitions, span_ms, is_marker=kind == "punctuated") for at in arrivals]
    strategy: dict[str, Any] = {
        "kind": kind,
        "interval_ms": interval_ms,
        "delay_ms": chance.choice([0, 1, 30, 500]),
    }
    if chance.random() < 0.5:
        strategy["idle_timeout_ms"] = chance.choice([1, 20, 300])
    return {
        "name": f"parity/{number}",
        "partitions": partitions,
        "strategy": strategy,
        "window": random_window(chance),
        "allowed_lateness_ms": chance.choice([0, 0, 1, 40, 1_000]),
        "records": records,
        "topology": chance.choice(["splits", "splits", "splits", "subtasks", "operator"]),
        "partition_end": chance.choice(["hold", "hold", "release"]),
        "end_of_input": chance.choice(["active", "active", "raw"]),
        **({"start_ms": base_ms - chance.randrange(300)} if chance.random() < 0.3 else {}),
        **({"end_ms": base_ms + span_ms + chance.randrange(900)} if chance.random() < 0.3 else {}),
    }


def random_record(
    chance: random.Random, at: int, partitions: int, span_ms: int, *, is_marker: bool
) -> dict[str, int | str | bool]:
    """Return a record that arrives at a time, with an event time before it."""
    event_ms = at - chance.choice([0, 0, chance.randrange(40), chance.randrange(span_ms)])
    record: dict[str, int | str | bool] = {
        "arrival_ms": at,
        "partition": chance.randrange(partitions),
        "key": chance.choice("abc"),
        "ts": event_ms,
        "value": 1,
    }
    if is_marker and chance.random() < 0.4:
        record["marker"] = True if chance.random() < 0.5 else event_ms - chance.randrange(60)
    return record


def random_window(chance: random.Random) -> dict[str, int | str]:
    """Return a window of any kind."""
    size_ms = chance.choice([5, 35, 300, 1_000])
    match chance.choice(["tumbling", "sliding", "session", "cumulate"]):
        case "sliding":
            slide_ms = chance.choice([5, 20, 300, 450])
            offset_ms = chance.randrange(-slide_ms + 1, slide_ms)
            return {"kind": "sliding", "size_ms": size_ms, "slide_ms": slide_ms, "offset_ms": offset_ms}
        case "session":
            return {"kind": "session", "gap_ms": chance.choice([1, 10, 60, 500])}
        case "cumulate":
            return {"kind": "cumulate", "size_ms": size_ms * 4, "slide_ms": size_ms, "offset_ms": 0}
        case _:
            return {"kind": "tumbling", "size_ms": size_ms, "offset_ms": chance.randrange(-size_ms + 1, size_ms)}


def comparable(case: Case, outcome: EngineResult | BackstreamError) -> object:
    """Return the results of both engines for a case; firings of one watermark and window end are a set."""
    if isinstance(outcome, BackstreamError):
        return case.name, str(outcome)
    order = [(firing.kind, firing.by, firing.end) for firing in outcome.firings]
    return case.name, order, sorted(outcome.firings), outcome.late, outcome.record_wm, outcome.is_final


def test_spark_agrees_with_the_reference_on_random_streams(spark: SparkSession) -> None:
    chance = random.Random(20_130_208)  # noqa: S311 - cases, not secrets
    cases = [parse_case(random_case(chance, number)) for number in range(CASES)]

    ours, theirs = new_engine(spark)(cases), reference_engine.run_cases(cases)

    differing = [
        (spark_result, reference_result)
        for spark_result, reference_result in zip(
            map(comparable, cases, ours), map(comparable, cases, theirs), strict=True
        )
        if spark_result != reference_result
    ]
    assert differing == []
