"""Compare the native engine with the reference interpreter and with Spark."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.spark.histories import Expected, random_history, write_history
from tests.spark.native_runs import cut_finely, native_definition, run_engine
from tests.spark.runs import STREAMS, WINDOWS, fates, panes, planned, published

from backstream.chunks.native_engine import NativeEngine, NativeFirst
from backstream.chunks.replay import replay_chunks
from backstream.chunks.threads import Threads
from backstream.definition.loader import parse_definition
from backstream.errors import SpecError
from backstream.native import task_cuts
from backstream.runs.plan import Mode
from backstream.spark.engine import SparkEngine

pytestmark = pytest.mark.slow

KINDS = ["tumbling", "tumbling with an offset", "sliding", "sliding, size no multiple", "cumulate", "session"]


PIECES = [
    *((kind, "1d", "many tasks") for kind in KINDS),
    ("tumbling", "1d", "days together"),
    ("sliding, size no multiple", "1d", "days apart"),
    ("sliding", "3d", "days apart"),
    ("cumulate", "3d", "many tasks"),
    ("session", "3d", "days together"),
]


@pytest.fixture
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run with different task sizes; the result must be the same."""
    if request.param != "days together":
        monkeypatch.setattr(task_cuts, "SMALL_DAY_ROWS", 0)
    if request.param == "many tasks":
        cut_finely(monkeypatch)


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize(("kind", "chunk", "pieces"), PIECES, indirect=["pieces"])
def test_a_replay_gives_what_the_reference_gives_however_it_is_cut(
    spark: SparkSession, tmp_path: Path, kind: str, chunk: str
) -> None:
    history = random_history(len(kind))
    write_history(tmp_path / "data", history)
    content = native_definition(tmp_path / "data", chunk, window=WINDOWS[kind])
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)
    expected = Expected(history, parse_definition(content, "test"), plan.range)

    manifests = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    assert fates(manifests) == expected.fates()
    assert panes(manifests) == expected.values()
    assert published(manifests) == expected.published()


SESSION_STREAMS = sorted(STREAMS.keys() - {"punctuated", "custom", "after each record"})


@pytest.mark.parametrize(
    ("stream", "kind"), list(zip(SESSION_STREAMS, cycle(["session", "session of days"]), strict=False))
)
def test_sessions_of_every_kind_of_stream_are_replayed_as_the_reference_plays_them(
    spark: SparkSession, tmp_path: Path, kind: str, stream: str
) -> None:
    history = random_history(len(stream) + len(kind), rows=300)
    write_history(tmp_path / "data", history)
    content = native_definition(tmp_path / "data", "1d", window=WINDOWS[kind], **STREAMS[stream])
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)
    expected = Expected(history, parse_definition(content, "test"), plan.range)

    manifests = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    assert fates(manifests) == expected.fates()
    assert panes(manifests) == expected.values()
    assert published(manifests) == expected.published()


@pytest.mark.parametrize("stream", STREAMS)
def test_every_kind_of_stream_is_replayed_as_the_reference_plays_it(
    spark: SparkSession, tmp_path: Path, stream: str
) -> None:
    history = random_history(len(stream), rows=150)
    write_history(tmp_path / "data", history)
    window = WINDOWS["sliding"] if stream == "after each record" else WINDOWS["tumbling"]
    content = native_definition(tmp_path / "data", "3d", window=window, **STREAMS[stream])
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)
    expected = Expected(history, parse_definition(content, "test"), plan.range)

    manifests = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    assert fates(manifests) == expected.fates()
    assert panes(manifests) == expected.values()


@pytest.mark.parametrize("kind", KINDS)
def test_a_recompute_classifies_no_record_as_late(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    history = random_history(5)
    write_history(tmp_path / "data", history)
    content = native_definition(tmp_path / "data", window=WINDOWS[kind])
    plan = planned(tmp_path, content, Mode.RECOMPUTE, since=0, until=3)
    expected = Expected(history, parse_definition(content, "test"), plan.range)

    manifests = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    assert set().union(*fates(manifests).values()) == {"on_time", "duplicate"}
    assert published(manifests) == expected.published()


EVERY_TABLE = [
    ("tumbling with an offset", "punctuated"),
    ("sliding, size no multiple", "time lag, idle"),
    ("cumulate", "punctuated"),
    ("session", "time lag, idle"),
]


@pytest.mark.parametrize(("kind", "stream"), EVERY_TABLE)
def test_every_table_of_a_replay_is_that_of_spark(
    spark: SparkSession, tmp_path: Path, kind: str, stream: str
) -> None:
    write_history(tmp_path / "data", random_history(17, rows=300))
    sections = {"window": WINDOWS[kind], **STREAMS[stream]}

    native, other = (
        run_engine(spark, tmp_path / engine, tmp_path / "data", engine, Mode.REPLAY, sections)
        for engine in ("native", "spark")
    )

    assert {name for name, result in native.items() if result} >= {"", "panes", "metrics"}
    assert native == other


@pytest.mark.parametrize("kind", ["tumbling", "session"])
def test_dropped_records_are_those_of_spark(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    write_history(tmp_path / "data", random_history(23, rows=300))
    sections = {"window": WINDOWS[kind], "lateness": {"allowed": "0s"}}

    native, other = (
        run_engine(spark, tmp_path / engine, tmp_path / "data", engine, Mode.REPLAY, sections)
        for engine in ("native", "spark")
    )

    assert native["dropped"]
    assert native == other


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        (
            {"window": WINDOWS["session"], **STREAMS["punctuated"]},
            "windows are sessions, and watermarks may move between two ticks",
        ),
        ({"window": WINDOWS["sliding with holes"]}, "windows have gaps between them"),
        ({"aggregates": {"middle": "median(value)"}}, "aggregates.middle is median(value)"),
    ],
)
def test_what_the_engine_does_not_know_is_refused_with_the_reason(
    tmp_path: Path, sections: dict[str, Any], reason: str
) -> None:
    write_history(tmp_path / "data", random_history(2, rows=50))
    aggregates = {"aggregates": {"middle": "cast(median(value) as double)"}} if "aggregates" in sections else {}
    content = native_definition(tmp_path / "data", **{"window": WINDOWS["tumbling"], **sections, **aggregates})

    with pytest.raises(SpecError) as refused:
        planned(tmp_path, content, Mode.RECOMPUTE, since=0, until=3)

    wanted = reason.replace("median(value)", "cast(median(value) as double)")
    assert str(refused.value) == (
        f'backfill.engine = "native" cannot run events: {wanted} ({tmp_path / "events.toml"})\n\n'
        'hint: with "auto", Spark computes definitions that the native engine does not support'
    )


def test_a_sum_that_is_too_large_is_an_error_and_no_other_number(spark: SparkSession, tmp_path: Path) -> None:
    write_history(tmp_path / "data", [(*row[:5], 2**62) for row in random_history(2, rows=50)])
    content = native_definition(tmp_path / "data", window={"kind": "tumbling", "size": "1d"})
    plan = planned(tmp_path, content, Mode.RECOMPUTE, since=0, until=3)

    with pytest.raises(Exception, match="out of range for the destination type INT64"):
        list(replay_chunks(SparkEngine(spark), plan, plan.chunks))


@pytest.mark.parametrize("is_started", [True, False])
@pytest.mark.parametrize("failing", [1, 3])
def test_spark_computes_if_the_native_engine_fails_and_logs_a_message(
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    failing: int,
    is_started: bool,
) -> None:
    monkeypatch.setattr(task_cuts, "SMALL_DAY_ROWS", 0)  # the tasks of other days have written files by then
    write_history(tmp_path / "data", random_history(2, rows=50))
    for file in sorted((tmp_path / "data").rglob("*.parquet"))[-failing:]:
        pq.write_table(_with_column(file), file)
    content = native_definition(tmp_path / "data", window=WINDOWS["tumbling"], backfill={"engine": "auto"})
    plan = planned(tmp_path, content, Mode.RECOMPUTE, since=0, until=3)
    expected = Expected(random_history(2, rows=50), parse_definition(content, "test"), plan.range)

    started = SparkEngine(spark)
    engine = started if is_started else NativeFirst(NativeEngine(Threads()), lambda: started)
    manifests = list(replay_chunks(engine, plan, plan.chunks))

    assert published(manifests) == expected.published()
    (message,) = {record.getMessage().partition(":")[2] for record in caplog.records}
    assert "cannot read a file with a column 'file_index'" in message
    assert message.endswith("instead")


def _with_column(file: Path) -> pa.Table:
    table = pq.read_table(file, partitioning=None)
    return table.append_column("file_index", pa.array([0] * table.num_rows))
