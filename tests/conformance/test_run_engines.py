"""Compare the path of a run, on the native engine and on Spark, with recordings of Apache Flink 2.3.0."""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.conformance import random_cases, random_jobs
from tests.conformance.pair_cover import RECORDINGS, Line, all_recordings, cover_pairs

from backstream.conformance import reference_engine
from backstream.conformance.cases import load_cases, parse_case
from backstream.conformance.comparison import find_difference
from backstream.conformance.run_engine import RunEngine
from backstream.conformance.workers import ConformanceRunner
from backstream.errors import BackstreamError
from backstream.watermarks import firing_times
from backstream.workflow.runners import SparkRunner

UNSUPPORTED = {
    "windows are sessions, and watermarks may move between two ticks",
    "windows have gaps between them",
    "no final watermark, which a definition cannot ask for",
    "times outside of the years 1 to 9999",
    "sessions with a gap or lateness of more than 100 years",
    "no records",
}
"""The reasons for which the native engine does not run some of the recordings."""


def recorded_by_reference(case: dict[str, Any]) -> Line:
    """Return a case with the result of the reference engine in the form of a recording."""
    (result,) = reference_engine.run_cases([parse_case(case)])
    if isinstance(result, BackstreamError):
        return {"case": case, "flink": {"error": str(result)}}
    assert isinstance(result, reference_engine.StreamResult)
    return {
        "case": case,
        "flink": {
            "record_wm": result.record_wm,
            "firings": [asdict(firing) for firing in result.firings],
            "late": result.late,
            "timers": [{"ts": at_ms, "key": key, "wm": wm} for _, at_ms, key, wm, _ in result.timers or ()],
        },
    }


@pytest.mark.slow
@pytest.mark.parametrize("recordings", RECORDINGS, ids=lambda path: path.stem)
def test_a_native_run_agrees_with_flink(
    spark: SparkSession, recordings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In half of the files, windows with the same firing times are one stretch, as in a long range.
    if RECORDINGS.index(recordings) % 2:
        monkeypatch.setattr(firing_times, "_MAX_LISTED_WINDOWS", 0)
        monkeypatch.setattr(firing_times, "_LISTED_PER_STRETCH", 0)

    # `make conformance` runs all of them. A union is prepared first, which takes longer than its replay.
    lines = list(load_cases([recordings]))[:: 8 if recordings.stem == "union" else 3]

    tally = find_difference(lines, run_engine(spark, "native"))

    assert tally.differ == []
    assert tally.unsupported.keys() <= UNSUPPORTED
    assert tally.agree > len(lines) // 3


JOBS = Path(__file__).parent / "spark" / "structured_streaming.jsonl"
JOBS_UNSUPPORTED = {
    "windows that are not in whole milliseconds",
    "joins of streams",
    "deduplication",
    "windows of windows",
    "output mode complete: no record is late, and no window ends",
}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["native", "spark"])
def test_a_run_agrees_with_jobs_of_structured_streaming(spark: SparkSession, engine: str) -> None:
    lines = list(load_cases([JOBS]))
    is_run = [line["case"]["query"]["kind"] in {"window", "session"} for line in lines]
    assert sum(is_run) == 60
    if engine == "spark":
        lines = [line for line, has_windows in zip(lines, is_run, strict=True) if has_windows][::4]

    tally = find_difference(lines, run_engine(spark, engine))

    assert tally.differ == []
    assert tally.unsupported.keys() <= JOBS_UNSUPPORTED
    assert tally.agree == (55 if engine == "native" else 14)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["native", "spark"])
def test_a_run_agrees_with_the_rules_of_spark_on_random_jobs(spark: SparkSession, engine: str) -> None:
    lines = [random_jobs.recorded_job(random.Random(seed)) for seed in range(24 if engine == "native" else 5)]  # noqa: S311 - cases, not secrets

    tally = find_difference(lines, run_engine(spark, engine))

    assert (tally.differ, tally.agree) == ([], len(lines))


def run_engine(spark: SparkSession, engine: str) -> RunEngine:
    runner = ConformanceRunner(lambda: spark) if engine == "native" else SparkRunner(lambda: spark)
    return RunEngine(runner, engine)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_a_run_on_spark_agrees_with_flink(spark: SparkSession, part: int) -> None:
    lines = cover_pairs(all_recordings())[part::4]

    tally = find_difference(lines, RunEngine(SparkRunner(lambda: spark), "spark"))

    assert (tally.differ, tally.unsupported, tally.agree) == ([], {}, len(lines))


RANDOM = {
    "streams": (random_cases.random_case, 20_130_208, 20),
    "unions": (random_cases.random_union, 2_030, 20),
    "watermarks between ticks": (random_cases.random_emission, 11, 12),
    "timers": (random_cases.random_timers, 21, 8),
    "local time": (random_cases.random_local, 5, 12),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "kind"),
    [
        *(("native", kind) for kind in RANDOM),
        ("spark", "streams"),
        *(pytest.param("spark", kind, marks=pytest.mark.long) for kind in [*RANDOM][1:]),
    ],
)
def test_a_run_agrees_with_the_reference_on_random_streams(spark: SparkSession, engine: str, kind: str) -> None:
    new_case, seed, number = RANDOM[kind]
    chance = random.Random(seed)  # noqa: S311 - cases, not secrets
    lines = [recorded_by_reference(new_case(chance, each) | {"end_of_input": "active"}) for each in range(number)]

    # Spark plans each of its jobs anew, so it gets a fifth of them.
    tally = find_difference(lines[:: 5 if engine == "spark" else 1], run_engine(spark, engine))

    assert tally.differ == []
    assert tally.agree > tally.cases // 2


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["native", "spark"])
@pytest.mark.parametrize(
    ("path", "value", "difference"),
    [
        (["firings", 0, "records"], [0], "windows: at"),
        (["late"], [0], "dropped records: at 0 recorded 0, this engine 9"),
        (["record_wm", 9], -7, "fates: at dropped recorded None, this engine 1"),
    ],
)
def test_a_changed_recording_differs(
    spark: SparkSession, engine: str, path: list[str | int], value: object, difference: str
) -> None:
    line = next(line for line in all_recordings() if line["case"]["name"] == "edge/table_x1ms")
    tampered = json.loads(json.dumps(line))
    target = tampered["flink"]
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value

    tally = find_difference([line, tampered], run_engine(spark, engine))

    assert (tally.agree, len(tally.differ)) == (1, 1)
    assert tally.differ[0].startswith(f"differs: edge/table_x1ms: {difference}")
