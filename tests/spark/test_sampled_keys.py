"""The rows of sampled keys on Spark are those of the full run: their watermarks are those of the whole stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.histories import Value, definition_of, random_history, write_history
from tests.spark.runs import STREAMS, WINDOWS, in_ms, planned, published

from backstream.chunks.replay import replay_chunks
from backstream.native.key_sample import draw_key_sample
from backstream.native.raw_input import RawInput
from backstream.runs.plan import Mode
from backstream.spark.engine import SparkEngine
from backstream.workflow.preview.computation import compute_sampled_rows, needed_span

pytestmark = pytest.mark.slow

SHARE = 0.53
"""It selects some of the three keys."""


@pytest.mark.parametrize("engine", ["native", "spark"])
@pytest.mark.parametrize("stream", ["sessions", "after each record", "gate with idleness"])
def test_sampled_keys_have_the_rows_of_the_full_run(
    spark: SparkSession, tmp_path: Path, stream: str, engine: str
) -> None:
    write_history(tmp_path / "data", random_history(seed=4))
    window = WINDOWS["session" if stream == "sessions" else "tumbling"]
    sections: dict[str, Any] = {"window": window, "lateness": {"allowed": "1h"}, **STREAMS.get(stream, {})}
    content = definition_of(
        tmp_path / "data", **sections, backfill={"chunk": "2d", "publish": "live", "engine": engine}
    )
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=2)
    raw = RawInput.from_plan(plan, "preview")
    sample = draw_key_sample(raw, SHARE, needed_span(raw.definition, plan), tmp_path / "sample.parquet")
    assert sample.keys in (1, 2)

    computed = compute_sampled_rows(raw, sample, tmp_path / "scratch", lambda _: spark).to_pylist()

    sampled: dict[Any, Value] = {in_ms(row): (row["events"], row["total"]) for row in computed}
    keys = {row["key"] for row in computed}
    whole = published(list(replay_chunks(SparkEngine(spark), plan, plan.chunks)))
    assert len(keys) == sample.keys
    assert sampled == {place: value for place, value in whole.items() if place[0] in keys}
