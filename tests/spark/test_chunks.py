"""Compare runs of chunks on Spark with the reference interpreter, on histories with many irregularities."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.histories import Expected, Place, Row, days, definition_of, random_history, write_history
from tests.spark.runs import (
    STREAMS,
    WINDOWS,
    fates,
    in_ms,
    panes,
    physical_plan,
    planned,
    published,
    replay_chunk,
    rows,
)

from backstream.chunks.group import ChunkGroup
from backstream.chunks.lateness import resolve_lateness
from backstream.chunks.replay import replay_chunks
from backstream.definition.loader import parse_definition
from backstream.eventtime.instants import HOUR_MS
from backstream.eventtime.records import Fate
from backstream.eventtime.windows import Sliding
from backstream.runs.manifest import sum_fates
from backstream.runs.plan import Mode
from backstream.runs.table_schemas import WORKING_COLUMNS
from backstream.spark.chunk_group import SparkGroup
from backstream.spark.engine import SparkEngine
from backstream.spark.table_frames import TableFrames, table_frames, window_results
from backstream.spark.windows.fixed_windows import FixedWindows

pytestmark = pytest.mark.slow

CUTS = [*((kind, "1d") for kind in WINDOWS), ("sliding", "3d")]


@pytest.mark.parametrize(("kind", "chunk"), CUTS)
def test_a_replay_gives_what_the_reference_gives_however_it_is_cut(
    spark: SparkSession, tmp_path: Path, kind: str, chunk: str
) -> None:
    window = WINDOWS[kind]
    history = random_history(seed=len(kind))
    write_history(tmp_path / "data", history)
    content = definition_of(tmp_path / "data", window=window, backfill={"chunk": chunk})
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)
    expected = Expected(history, parse_definition(content, "test"), plan.range)

    manifests = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    assert fates(manifests) == expected.fates()
    assert panes(manifests) == expected.values()
    assert published(manifests) == expected.published()
    for row in rows(manifests, "metrics"):
        assert row["events"] == row["on_time"] + row["late"] + row["dropped"] + row["expired"]


@pytest.mark.parametrize("stream", STREAMS)
def test_every_kind_of_stream_is_replayed_as_the_reference_plays_it(
    spark: SparkSession, tmp_path: Path, stream: str
) -> None:
    history = random_history(seed=len(stream), rows=150)
    write_history(tmp_path / "data", history)
    window = WINDOWS["sliding"] if stream == "after each record" else WINDOWS["tumbling"]
    content = definition_of(tmp_path / "data", window=window, backfill={"chunk": "3d"}, **STREAMS[stream])
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)
    expected = Expected(history, parse_definition(content, "test"), plan.range)

    manifests = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    assert fates(manifests) == expected.fates()
    assert panes(manifests) == expected.values()


def test_some_records_of_these_histories_have_every_fate(tmp_path: Path) -> None:
    content = definition_of(tmp_path, window=WINDOWS["sliding with holes"])
    result = Expected(random_history(seed=7), parse_definition(content, "test"), days(0, 3)).fates()

    assert set().union(*result.values()) == {"on_time", "late", "dropped", "unassigned", "duplicate"}


@pytest.mark.parametrize("kind", ["tumbling with an offset", "sliding with holes", "session"])
def test_a_recompute_classifies_no_record_as_late(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    history = random_history(seed=5)
    write_history(tmp_path / "data", history)
    content = definition_of(tmp_path / "data", window=WINDOWS[kind])
    plan = planned(tmp_path, content, Mode.RECOMPUTE, since=0, until=3)
    expected = Expected(history, parse_definition(content, "test"), plan.range)

    manifests = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    result = set().union(*(counts for counts in sum_fates(manifests).values()))
    assert result <= {"on_time", "duplicate", "unassigned"}
    assert published(manifests) == expected.published()


def test_every_pane_is_kept_if_the_definition_keeps_firings(spark: SparkSession, tmp_path: Path) -> None:
    history = random_history(seed=11)
    write_history(tmp_path / "data", history)
    content = definition_of(
        tmp_path / "data", window=WINDOWS["sliding"], backfill={"keep_firings": True, "chunk": "3d"}
    )
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)
    expected = Expected(history, parse_definition(content, "test"), plan.range)

    firings = rows(list(replay_chunks(SparkEngine(spark), plan, plan.chunks)), "firings")

    result: dict[Place, list[tuple[str, int, int]]] = {}
    for row in sorted(firings, key=lambda row: (*in_ms(row), row["pane_index"])):
        result.setdefault(in_ms(row), []).append((row["pane_timing"], row["events"], row["total"]))
    reference: dict[Place, list[tuple[str, int, int]]] = {}
    for each in expected.panes.panes:
        if plan.range.start_ms <= each.window.start_ms < plan.range.end_ms:
            place = (str(each.key), *each.window)
            reference.setdefault(place, []).append((each.timing.value, *expected._value(each.records)))  # noqa: SLF001
    assert result == dict(sorted(reference.items()))


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "session"])
def test_a_large_chunk_is_grouped_another_way_and_gives_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    history = random_history(seed=31, rows=200)
    write_history(tmp_path / "data", history)
    content = definition_of(tmp_path / "data", window=WINDOWS[kind], backfill={"chunk": "3d"})
    del content["source"]["deduplicate_on"]  # so that records are read anew for each result
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)
    monkeypatch.setattr("backstream.spark.windows.aggregation.MANY_EVENTS", 0)
    monkeypatch.setattr("backstream.spark.shuffle_free.MAX_PARTS", 0)  # test_shuffle_free has them

    manifest = replay_chunk(spark, plan, plan.chunks[0])

    assert sum(sum(counts.values()) for counts in manifest.fates.values()) == manifest.events_read
    values = published([manifest])
    assert values == {place: final for place, (_, _, final) in panes([manifest]).items() if final}
    if kind == "tumbling":
        first_ms, end_ms = plan.range.start_ms, plan.range.end_ms
        assert sum(events for events, _ in values.values()) == sum(first_ms <= row[0] < end_ms for row in history)


@pytest.mark.parametrize("mode", list(Mode))
def test_slices_of_a_large_chunk_are_exchanged_once_and_grouped_by_as_many_tasks_as_it_takes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    history = list(dict.fromkeys(random_history(seed=31, rows=200)))
    write_history(tmp_path / "data", history)
    content = definition_of(tmp_path / "data", window=WINDOWS["sliding"], backfill={"chunk": "3d"})
    del content["source"]["deduplicate_on"]
    plan = planned(tmp_path, content, mode, since=0, until=3)
    monkeypatch.setattr("backstream.spark.windows.aggregation.MANY_EVENTS", 0)
    monkeypatch.setattr("backstream.spark.windows.aggregation.GROUPED_AT_ONCE", 60)
    monkeypatch.setattr("backstream.spark.windows.aggregation.WORTHWHILE", 1_000)  # hardly any two in one slice
    monkeypatch.setattr("backstream.spark.windows.aggregation.HOT", 1)
    work = SparkGroup.of(spark, ChunkGroup.from_plan(plan, plan.chunks))

    results = window_results(work, DataFrame.cache)
    grouped = results.values(results.records().columns)

    tasks = -(-work.expected_events // 60)
    assert tasks > 1
    exchanges = re.findall(r"Exchange \w+.*", physical_plan(grouped))
    assert len(exchanges) == 1
    assert f"{tasks})" in exchanges[0]
    manifests = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))
    expected = Expected(history, parse_definition(content, "test"), plan.range)
    assert published(manifests) == expected.published()
    if mode is Mode.REPLAY:
        assert panes(manifests) == expected.values()


def test_a_chunk_that_is_done_is_not_run_again(spark: SparkSession, tmp_path: Path) -> None:
    write_history(tmp_path / "data", random_history(seed=3, rows=50))
    plan = planned(
        tmp_path, definition_of(tmp_path / "data", window=WINDOWS["tumbling"]), Mode.REPLAY, since=0, until=1
    )

    first = replay_chunk(spark, plan, plan.chunks[0])
    again = replay_chunk(spark, plan, plan.chunks[0])

    assert again.attempt == first.attempt


def test_chunks_that_fail_together_leave_nothing_done_and_those_that_were_done_stay(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_history(tmp_path / "data", random_history(seed=3, rows=50))
    content = definition_of(tmp_path / "data", window=WINDOWS["tumbling"])
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)
    done, broken = replay_chunk(spark, plan, plan.chunks[0]), replace(plan.chunks[2], files=(99,))

    manifests = replay_chunks(SparkEngine(spark), plan, [plan.chunks[0], plan.chunks[1], broken])

    assert next(manifests) == done
    with pytest.raises(IndexError):
        next(manifests)
    assert [plan.folder.manifest(each.chunk_id).exists() for each in plan.chunks] == [True, False, False]


def test_a_chunk_that_fails_leaves_those_before_it_done_and_begins_no_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_history(tmp_path / "data", random_history(seed=3, rows=50))
    content = definition_of(
        tmp_path / "data", window=WINDOWS["tumbling"], backfill={"chunk": "1d", "max_events_per_job": 0}
    )
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)
    first, broken = plan.chunks[0], replace(plan.chunks[1], files=(99,))

    with pytest.raises(IndexError):
        list(replay_chunks(SparkEngine(spark), plan, [first, broken, plan.chunks[2]]))

    assert [plan.folder.manifest(each.chunk_id).exists() for each in plan.chunks] == [True, False, False]


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "session"])
def test_physical_plans_contain_no_times_of_the_chunk(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Otherwise Spark compiles each stage of each chunk again."""
    write_history(tmp_path / "data", random_history(seed=3, rows=50))
    content = definition_of(tmp_path / "data", window=WINDOWS[kind])
    plan = planned(tmp_path, content, Mode.REPLAY, since=1, until=3)
    work = SparkGroup.of(spark, ChunkGroup.from_plan(plan, plan.chunks[:1]))
    results = window_results(work, DataFrame.cache)
    known, tallied, _, *_ = results.records()
    values = results.values(known)
    frames = TableFrames(known, results.counts(tallied), values, lambda: values, lambda: set(Fate))

    made = dict(table_frames(work, results, frames))

    times = re.compile(rf"\b{str(work.interval.start_ms)[:6]}\d*\b")
    for name, rows_of_table in made.items():
        assert not times.findall(physical_plan(rows_of_table)), name


@pytest.mark.parametrize("kind", ["sliding with holes", "session"])
def test_no_column_of_a_source_can_be_hidden_by_one_that_a_run_adds(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    write_history(tmp_path / "data", random_history(seed=3, rows=50))
    content = definition_of(tmp_path / "data", window=WINDOWS[kind])
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)

    known = (
        window_results(SparkGroup.of(spark, ChunkGroup.from_plan(plan, plan.chunks)), DataFrame.cache)
        .records()
        .columns
    )

    assert set(known.columns) - WORKING_COLUMNS == {"key", "value", "origin", "seq"}  # the source's own


def test_a_source_may_call_its_partition_what_a_run_calls_the_file(spark: SparkSession, tmp_path: Path) -> None:
    history = list(dict.fromkeys(random_history(seed=31, rows=300)))  # without copies
    write_history(tmp_path / "data", history)
    for file in (tmp_path / "data").rglob("*.parquet"):
        table = pq.ParquetFile(file).read()
        pq.write_table(table.rename_columns({"origin": "source_file"}), file)
    content = definition_of(tmp_path / "data", window=WINDOWS["tumbling"], backfill={"chunk": "3d"})
    del content["source"]["deduplicate_on"]
    content["source"]["partition"] = "source_file"
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)
    expected = Expected(history, parse_definition(content, "test"), plan.range)

    manifests = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    assert fates(manifests) == expected.fates()
    assert panes(manifests) == expected.values()


def test_no_python_runs_in_the_plan_of_a_replay(spark: SparkSession, tmp_path: Path) -> None:
    write_history(tmp_path / "data", random_history(seed=3, rows=50))
    plan = planned(
        tmp_path, definition_of(tmp_path / "data", window=WINDOWS["sliding"]), Mode.REPLAY, since=0, until=1
    )
    work = SparkGroup.of(spark, ChunkGroup.from_plan(plan, plan.chunks[:1]))

    window = Sliding(3 * HOUR_MS, HOUR_MS)
    results = FixedWindows(work, window, resolve_lateness(work, window, work.reader))
    known = results.records().columns
    wanted = results.values(known)

    physical = physical_plan(wanted)
    assert "HashAggregate" in physical
    assert not re.search(r"BatchEvalPython|ArrowEvalPython|MapInPandas|FlatMapGroups|PythonUDF", physical)
    # Nothing is sorted by all records: a sort is part of a window over the copies of one row, or none.
    assert "rangepartitioning" not in physical


def test_the_history_is_played_in_arrival_order() -> None:
    history: list[Row] = random_history(seed=1)

    assert [row[1] for row in history] == sorted(row[1] for row in history)
