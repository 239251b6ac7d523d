"""Test time ranges that one task each aggregates: their bounds, and that results stay the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.histories import Expected, definition_of, random_history, write_history
from tests.spark.runs import WINDOWS, panes, physical_plan, planned, published, replay_chunk

from backstream.chunks.group import ChunkGroup
from backstream.definition.loader import parse_definition
from backstream.eventtime.instants import DAY_MS, HOUR_MS
from backstream.eventtime.intervals import Interval
from backstream.eventtime.windows import Tumbling
from backstream.runs.plan import InputFile, Mode
from backstream.spark import shuffle_free
from backstream.spark import shuffle_free as module
from backstream.spark.chunk_group import SparkGroup
from backstream.spark.shuffle_free import cut_time_ranges
from backstream.spark.table_frames import window_results
from backstream.spark.windows import aggregation
from backstream.watermarks.firing_times import WindowGrid

DAY = Interval(0, DAY_MS)


def hourly(late_by_ms: int, count: int = 24) -> list[InputFile]:
    """Write files of one hour each, with events that are late by at most this time."""
    each_ms = DAY_MS // count
    return [
        InputFile(f"/{number:02d}", 100, 1, number * each_ms - late_by_ms, (number + 1) * each_ms - 1)
        for number in range(count)
    ]


def grid(size_ms: int = HOUR_MS, offset_ms: int = 0) -> WindowGrid:
    return WindowGrid.from_window(Tumbling(size_ms, offset_ms), DAY)


def test_files_in_order_of_time_are_cut_where_they_end() -> None:
    assert cut_time_ranges(hourly(HOUR_MS), grid(), 4) == [range(6), range(6, 12), range(12, 18), range(18, 24)]


@pytest.mark.parametrize("size_ms", [60_000, HOUR_MS, 5 * HOUR_MS])
@pytest.mark.parametrize("offset_ms", [0, -20_000])
def test_every_window_is_in_one_stretch_with_all_its_time(size_ms: int, offset_ms: int) -> None:
    sessions = grid(size_ms, offset_ms)

    result = cut_time_ranges(hourly(60_000), sessions, 2)

    assert len(result) == 2
    assert [number for each in result for number in each] == list(range(sessions.count))
    for each in result:
        ends_ms = sessions.ends_ms[each.start : each.stop]
        assert sessions.span(each) == Interval(ends_ms[0] - size_ms, ends_ms[-1])


def test_a_task_is_not_given_more_events_than_it_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffle_free, "LARGEST", 300)

    assert [len(each) for each in cut_time_ranges(hourly(0), grid(), 2)] == [3] * 8


@pytest.mark.parametrize(
    ("files", "tasks"),
    [
        pytest.param(hourly(12 * HOUR_MS), 4, id="events so late that most files are read often"),
        pytest.param([InputFile(f"/{n}", 100, 1, 0, DAY_MS - 1) for n in range(8)], 4, id="files in no order"),
        pytest.param([InputFile("/a", 100, 1)], 1, id="a footer that does not tell"),
        pytest.param(hourly(0, 3), 4, id="fewer files than tasks"),
        pytest.param(
            [InputFile("/a", 900, 1, 0, DAY_MS // 2 - 1), InputFile("/b", 100, 1, DAY_MS // 2, DAY_MS - 1)],
            2,
            id="a file with nearly all",
        ),
        pytest.param(hourly(0, 240), 65, id="more parts than a plan should have"),
        pytest.param([], 4, id="nothing"),
    ],
)
def test_where_it_would_not_pay_there_are_none(files: list[InputFile], tasks: int) -> None:
    assert cut_time_ranges(files, grid(60_000), tasks) == []


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("kind", ["tumbling", "tumbling with an offset"])
def test_a_large_chunk_is_grouped_by_stretches_and_equals_the_reference(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, mode: Mode
) -> None:
    history = list(dict.fromkeys(random_history(seed=31, rows=300)))
    write_history(tmp_path / "data", history)
    content = definition_of(tmp_path / "data", window=WINDOWS[kind], backfill={"chunk": "3d"})
    del content["source"]["deduplicate_on"]
    plan = planned(tmp_path, content, mode, since=0, until=3)
    expected = Expected(history, parse_definition(content, "test"), plan.range)
    monkeypatch.setattr(aggregation, "MANY_EVENTS", 0)
    # The Spark of tests has one task at a time; there are three files, of which all but the last are of two days.
    monkeypatch.setattr(shuffle_free, "LARGEST", len(history) // 3 + 1)
    monkeypatch.setattr(module, "MAX_READ_RATIO", 3)

    work = SparkGroup.of(spark, ChunkGroup.from_plan(plan, plan.chunks))
    results = window_results(work, DataFrame.cache)
    grouped = results.values(results.records().columns)
    manifest = replay_chunk(spark, plan, plan.chunks[0])

    physical = physical_plan(grouped)
    # Nor what Spark knows of files, row by row; the name of a file is read for an error only.
    assert not re.search(r"Exchange|Python|file_(?!name\(\))", physical)
    assert grouped.rdd.getNumPartitions() > 1
    assert published([manifest]) == expected.published()
    if mode is Mode.REPLAY:
        assert panes([manifest]) == expected.values()
        assert any(first != final for first, _, final in expected.values().values())
