"""Test file groups that one task each reads: how files are assigned, and that watermarks stay the same."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.spark.histories import definition_of, random_history, write_history
from tests.spark.runs import STREAMS, physical_plan, planned

from backstream.chunks.group import ChunkGroup
from backstream.eventtime.emission import Emission
from backstream.eventtime.instants import DAY_MS, HOUR_MS, MAX_MS
from backstream.eventtime.records import SourceClock
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy
from backstream.runs.plan import InputFile, Mode
from backstream.spark import shuffle_free
from backstream.spark import shuffle_free as module
from backstream.spark.chunk_group import SparkGroup
from backstream.spark.shuffle_free import compress_file_groups, share_files
from backstream.spark.watermarks.user_generators import timeline_of_events
from backstream.watermarks import tick_maxima
from backstream.watermarks.streams import StreamPart, timeline_of_files
from backstream.watermarks.tick_maxima import merge_maxima


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANY_EVENTS", 1)


def arriving(path: str, rows: int, first_ms: int, last_ms: int) -> InputFile:
    return InputFile(path, rows, 1, min_arrival_ms=first_ms, max_arrival_ms=last_ms)


def hourly(count: int = 24, overlap_ms: int = 0) -> list[InputFile]:
    """Return files of one hour each, the last one first."""
    return [
        arriving(f"/{hour:02d}", 100, hour * HOUR_MS - overlap_ms, (hour + 1) * HOUR_MS - 1)
        for hour in reversed(range(count))
    ]


def unordered(count: int) -> list[InputFile]:
    return [arriving(f"/{number}", 100, number, DAY_MS + number) for number in range(count)]


def paths(result: list[list[InputFile]]) -> list[list[str]]:
    return [[file.path for file in share] for share in result]


def test_files_are_dealt_out_in_order_of_arrival() -> None:
    assert paths(share_files(hourly(6), 3)) == [["/00", "/01"], ["/02", "/03"], ["/04", "/05"]]


def test_shares_have_about_as_many_events_not_as_many_files() -> None:
    files = [
        arriving("/a", 300, 0, 9),
        *(arriving(f"/b{n}", 100, 10 + n, 10 + n) for n in range(3)),
        arriving("/none", 0, 0, 0),
    ]

    assert paths(share_files(files, 2)) == [["/a"], ["/b0", "/b1", "/b2"]]


def test_a_task_is_not_given_more_events_than_it_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffle_free, "LARGEST", 300)

    assert [len(share) for share in share_files(hourly(), 2)] == [3] * 8


def test_shares_may_have_half_of_their_arrivals_in_common_and_no_more() -> None:
    assert share_files(hourly(overlap_ms=HOUR_MS), 24)
    assert not share_files(hourly(overlap_ms=HOUR_MS + 2), 24)


@pytest.mark.parametrize(
    ("files", "tasks"),
    [
        pytest.param(unordered(8), 4, id="arrivals in no order"),
        pytest.param([arriving("/old", 100, -(10**12), 0), *unordered(40)], 4, id="in no order, and an old file"),
        pytest.param([InputFile("/a", 100, 1)], 1, id="a footer that does not tell"),
        pytest.param(hourly(3), 4, id="fewer files than tasks"),
        pytest.param([arriving("/a", 900, 0, 9), arriving("/b", 100, 10, 19)], 2, id="a file with nearly all"),
        pytest.param(hourly(240), 65, id="more parts than a plan should have"),
        pytest.param([arriving("/a", 0, 0, 0)], 1, id="no event"),
        pytest.param([], 4, id="nothing"),
    ],
)
def test_where_it_would_not_pay_there_are_none(files: list[InputFile], tasks: int) -> None:
    assert share_files(files, tasks) == []


def test_few_events_are_not_dealt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANY_EVENTS", 2401)

    assert share_files(hourly(), 2) == []


def history_in_three_files(folder: Path) -> None:
    """Write records of all days into each file, so that ticks are in several files."""
    write_history(folder / "by day", random_history(seed=7, rows=300))
    table = pq.read_table(folder / "by day", partitioning=None)
    (folder / "data").mkdir()
    for number in range(3):
        rows = pa.array(range(number, table.num_rows, 3))
        pq.write_table(table.take(rows), folder / "data" / f"part-{number}.parquet")


@pytest.mark.parametrize("stream", ["bounded", *STREAMS])
def test_the_watermarks_are_those_of_all_events_together(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: str
) -> None:
    history_in_three_files(tmp_path)
    content = definition_of(
        tmp_path / "data",
        **{"window": {"kind": "session", "gap": "1h"}, "backfill": {"chunk": "3d"}, **STREAMS.get(stream, {})},
    )
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)
    work = SparkGroup.of(spark, ChunkGroup.from_plan(plan, plan.chunks))
    # The Spark of tests has one task at a time.
    monkeypatch.setattr(shuffle_free, "LARGEST", max(file.rows for file in plan.inputs))
    monkeypatch.setattr(module, "MAX_SHARED_TIME", 1)
    result = share_files(plan.inputs, 1)
    assert len(result) == 3

    ours = timeline_of_files(work.reader, StreamPart(work.plan.inputs, work.clock, work.emission), ["silent"])

    wanted = timeline_of_events(work.event_files.all(), work.emission, work.clock, ["silent"])
    for name in ("watermark_ms", "visible_from", "blocks"):
        assert getattr(ours, name).tolist() == getattr(wanted, name).tolist()
    assert list(ours.marker_positions) == list(wanted.marker_positions)
    assert len(wanted.watermark_ms) or stream != "bounded"
    if work.emission.is_mergeable:
        cells = compress_file_groups(work.event_files, result, work.emission, work.clock)
        assert cells.count() > cells.select("source_partition", "block").distinct().count()
        assert not re.search(r"Exchange|Python", physical_plan(cells))
        assert cells.rdd.getNumPartitions() > 1


@pytest.mark.parametrize("idle_timeout_ms", [0, 300])
def test_of_cells_of_one_tick_the_greatest_holds(idle_timeout_ms: int) -> None:
    emission = Emission(WatermarkStrategy(StrategyKind.BOUNDED, 10, 100, idle_timeout_ms))
    clock = SourceClock(0, 100, 2_000)
    rows = [("a", 0, 50), ("b", 0, 40), ("a", 2, 250), ("b", 9, 900), ("a", 12, 1_000), ("b", 12, 1_100)]
    cells = pa.Table.from_pylist(
        [{"source_partition": name, "block": block, "event_time_ms": event_ms} for name, block, event_ms in rows]
    )
    lower = cells.set_column(2, "event_time_ms", pa.compute.subtract(cells["event_time_ms"], 35))

    wanted = [each.tolist() for each in merge_maxima(cells, emission, clock, ["a", "b"])]

    assert len(wanted[0]) > 1
    for twice in ([lower, cells], [cells, lower]):
        result = merge_maxima(pa.concat_tables(twice), emission, clock, ["a", "b"])
        assert [each.tolist() for each in result] == wanted


@pytest.mark.parametrize("seed", range(20))
def test_ticks_that_are_marked_give_what_those_that_are_sorted_give(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 - a test's ticks, not a secret
    emission = Emission(WatermarkStrategy(StrategyKind.BOUNDED, 10, 100, chance.choice([0, 300])))
    last_block = chance.choice([3, 30, 3_000])
    places = [(chance.choice("abc"), chance.randint(0, last_block)) for _ in range(40)]
    cells = pa.Table.from_pylist(
        [
            {"source_partition": name, "block": block, "event_time_ms": block * 100 + chance.randint(0, 500)}
            for name, block in places
        ]
    )
    clock = SourceClock(0, 100, chance.choice([100 * last_block, 70 * last_block]))

    result = []
    for spread in (0, MAX_MS):
        monkeypatch.setattr(tick_maxima, "MAX_SPREAD", spread)
        blocks = tick_maxima.sorted_unique(cells["block"].to_numpy()).tolist()
        result.append(
            (blocks, *(each.tolist() for each in merge_maxima(cells, emission, clock, ["a", "b", "silent", "c"])))
        )

    by_sorting, by_marking = result
    assert by_sorting == by_marking
    assert by_marking[0] == sorted({*cells["block"].to_pylist()})
