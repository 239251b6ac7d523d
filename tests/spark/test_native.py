"""Chunks run by the native engine against the reference interpreter, and against Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.histories import Expected, Row, definition_of, random_history, write_history
from tests.spark.runs import STREAMS, WINDOWS, fates, panes, planned, published, rows

from backstream.core.plan import Mode
from backstream.definition.load import parse
from backstream.spark.run import replay_chunks

KINDS = ["tumbling", "tumbling with an offset", "sliding", "sliding, size no multiple", "cumulate"]
CUTS = [*((kind, "1d") for kind in KINDS), ("sliding", "3d"), ("cumulate", "3d")]


def history_of(seed: int, count: int = 400) -> list[Row]:
    """No row comes twice: copies are for Spark."""
    return list(dict.fromkeys(random_history(seed, rows=count)))


def native_definition(folder: Path, chunk: str, **sections: object) -> dict[str, object]:
    content = definition_of(folder, backfill={"chunk": chunk, "engine": "native"}, **sections)  # type: ignore[arg-type]
    source = {name: value for name, value in content["source"].items() if name != "deduplicate_on"}
    return content | {"source": source}


@pytest.mark.parametrize(("kind", "chunk"), CUTS)
def test_a_replay_gives_what_the_reference_gives_however_it_is_cut(
    spark: SparkSession, tmp_path: Path, kind: str, chunk: str
) -> None:
    history = history_of(len(kind))
    write_history(tmp_path / "data", history)
    content = native_definition(tmp_path / "data", chunk, window=WINDOWS[kind])
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)
    expected = Expected(history, parse(content, "test"), plan.range)

    manifests = list(replay_chunks(spark, plan, plan.chunks))

    assert fates(manifests) == expected.fates()
    assert panes(manifests) == expected.values()
    assert published(manifests) == expected.published()
    for row in rows(manifests, "metrics"):
        assert row["events"] == row["on_time"] + row["late"] + row["dropped"] + row["expired"]


@pytest.mark.parametrize("stream", STREAMS)
def test_every_kind_of_stream_is_replayed_as_the_reference_plays_it(
    spark: SparkSession, tmp_path: Path, stream: str
) -> None:
    history = history_of(len(stream), 150)
    write_history(tmp_path / "data", history)
    window = WINDOWS["sliding"] if stream == "after each record" else WINDOWS["tumbling"]
    content = native_definition(tmp_path / "data", "3d", window=window, **STREAMS[stream])
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)
    expected = Expected(history, parse(content, "test"), plan.range)

    manifests = list(replay_chunks(spark, plan, plan.chunks))

    assert fates(manifests) == expected.fates()
    assert panes(manifests) == expected.values()


@pytest.mark.parametrize("kind", KINDS)
def test_a_recompute_knows_nothing_late(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    history = history_of(5)
    write_history(tmp_path / "data", history)
    content = native_definition(tmp_path / "data", "1d", window=WINDOWS[kind])
    plan = planned(tmp_path, content, Mode.RECOMPUTE, since=0, until=3)
    expected = Expected(history, parse(content, "test"), plan.range)

    manifests = list(replay_chunks(spark, plan, plan.chunks))

    assert set().union(*fates(manifests).values()) == {"on_time"}
    assert published(manifests) == expected.published()
