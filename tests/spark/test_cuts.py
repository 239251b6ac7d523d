"""Test that the rows of a range don't depend on its chunks, and that a chunk reads only the files it needs."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.histories import DAY_ONE_MS, Row, definition_of, random_history, write_history
from tests.spark.runs import planned, replay_chunk, rows

from backstream.chunks.replay import replay_chunks
from backstream.eventtime.instants import DAY_MS, HOUR_MS
from backstream.runs.manifest import Manifest, sum_fates
from backstream.runs.plan import Mode, Plan
from backstream.spark.engine import SparkEngine

pytestmark = pytest.mark.slow

TABLES = ("", "panes", "metrics", "dropped")


def random_window(chance: random.Random) -> dict[str, str]:
    kinds: list[dict[str, str]] = [
        {"kind": "tumbling", "size": "6h", "offset": f"{chance.randrange(-300, 300)}m"},
        {"kind": "sliding", "size": f"{chance.randrange(70, 900)}m", "slide": "1h", "offset": "13m"},
        {"kind": "sliding", "size": "30m", "slide": "2h", "offset": f"{chance.randrange(-90, 90)}m"},
        {"kind": "session", "gap": f"{chance.randrange(20, 200)}m"},
        {"kind": "cumulate", "size": "1d", "step": "4h", "offset": f"{chance.randrange(0, 600)}m"},
    ]
    return chance.choice(kinds)


def random_watermark(chance: random.Random) -> dict[str, Any]:
    bounded = {"strategy": "bounded_out_of_orderness", "delay": f"{chance.randrange(90)}m", "emit_interval": "30s"}
    kinds: list[dict[str, Any]] = [
        {"strategy": "none"},
        {"strategy": "monotonous", "emit_interval": "10s"},
        bounded | {"idle_timeout": "2h"},
        bounded | {"topology": "subtasks", "idle_timeout": "2h"},
        bounded | {"emit": "on_event"},
        {"strategy": "time_lag", "delay": "45m", "emit_interval": "1m"},
    ]
    return chance.choice(kinds)


def sorted_rows(manifests: list[Manifest], suffix: str) -> list[str]:
    result = ({name: value for name, value in row.items() if name != "run_id"} for row in rows(manifests, suffix))
    return sorted(str(sorted(row.items())) for row in result)


@pytest.mark.parametrize("seed", range(1, 6))  # each kind of window once, with five watermarks
def test_however_a_range_is_cut_and_whatever_runs_together_the_rows_are_the_same(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 - a test's history, not a secret
    write_history(tmp_path / "data", random_history(seed=seed, rows=150))
    sections = {"window": random_window(chance), "watermark": random_watermark(chance)}
    if sections["watermark"]["strategy"] == "none":
        sections["lateness"] = {}

    def planned_in(chunk: str, name: str) -> Plan:
        (tmp_path / name).mkdir()
        content = definition_of(tmp_path / "data", backfill={"chunk": chunk}, **sections)
        return planned(tmp_path / name, content, Mode.REPLAY, since=0, until=3)

    plan = planned_in("1d", "alone")
    alone = [replay_chunk(spark, plan, each) for each in plan.chunks]
    others = {}
    cuts = {"1d": 3, ("2d", "3d")[seed % 2]: 2 - seed % 2}
    for chunk in cuts:
        plan = planned_in(chunk, chunk)
        others[chunk] = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    assert {chunk: len(each) for chunk, each in others.items()} == cuts
    for each in others.values():
        assert len({manifest.attempt for manifest in each}) == 1
        assert sum_fates(each) == sum_fates(alone)
        assert all(manifest.events_read == events_of(manifest) for manifest in each)
        for suffix in TABLES:
            result = sorted_rows(each, suffix)
            assert result == sorted_rows(alone, suffix)
            assert result or suffix == "dropped"
    for one, other in zip(alone, others["1d"], strict=True):
        assert sum_fates([one]) == sum_fates([other])
        assert [sorted_rows([one], suffix) for suffix in TABLES] == [
            sorted_rows([other], suffix) for suffix in TABLES
        ]


def events_of(manifest: Manifest) -> int:
    return sum(sum(counts.values()) for counts in manifest.fates.values())


@pytest.mark.parametrize(("short_by_ms", "events"), [(0, 2), (1, 1)])
def test_a_chunk_that_read_one_millisecond_less_would_miss_an_event(
    spark: SparkSession, tmp_path: Path, short_by_ms: int, events: int
) -> None:
    last_ms = DAY_ONE_MS + DAY_MS + 2 * HOUR_MS - 1  # of the window that starts at 23:00
    history: list[Row] = [(at, at, "A", seq, "x", 1) for seq, at in enumerate((DAY_ONE_MS + DAY_MS - 1, last_ms))]
    write_history(tmp_path / "data", history)
    content = definition_of(tmp_path / "data", window={"kind": "sliding", "size": "3h", "slide": "1h"})
    plan = planned(tmp_path, content, Mode.RECOMPUTE, since=0, until=1)
    chunk = plan.chunks[0]

    manifest = replay_chunk(spark, plan, replace(chunk, halo_end_ms=chunk.halo_end_ms - short_by_ms))

    assert max(row["events"] for row in rows([manifest], "")) == events
