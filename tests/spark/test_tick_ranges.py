"""Test watermarks in ranges of ticks: the sizes of the ranges, and that results don't depend on them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.spark.histories import Expected, definition_of, random_history, write_history
from tests.spark.runs import STREAMS, WINDOWS, fates, panes, physical_plan, planned

from backstream.chunks import stream_reader as native_reader
from backstream.chunks.group import ChunkGroup
from backstream.chunks.replay import replay_chunks
from backstream.definition.loader import parse_definition
from backstream.eventtime.emission import Emission
from backstream.eventtime.instants import DAY_MS, HOUR_MS, MIN_MS
from backstream.eventtime.records import SourceClock
from backstream.eventtime.watermark_generators import StrategyKind, WatermarkStrategy
from backstream.runs.plan import InputFile, Mode
from backstream.spark.chunk_group import SparkGroup
from backstream.spark.engine import SparkEngine
from backstream.spark.watermarks import join
from backstream.spark.watermarks import stream_reader as module
from backstream.spark.watermarks.user_generators import timeline_of_events
from backstream.watermarks import streams
from backstream.watermarks.stream_slices import split_ticks
from backstream.watermarks.streams import StreamPart, timeline_of_files
from backstream.watermarks.tick_maxima import TickMerger, merge_maxima

pytestmark = pytest.mark.slow

DAY_OF_HOURS = SourceClock(0, HOUR_MS, DAY_MS)


def arriving(rows: int, first_hour: int, last_hour: int) -> InputFile:
    return InputFile("/a", rows, 1, min_arrival_ms=first_hour * HOUR_MS, max_arrival_ms=last_hour * HOUR_MS)


def spans(result: Sequence[range]) -> list[tuple[int, int]]:
    return [(each.start, each.stop) for each in result]


@pytest.mark.parametrize(
    ("files", "partitions", "expected"),
    [
        pytest.param([arriving(100, 0, 23)], 64, [(0, 25)], id="no more events than cells may be"),
        pytest.param([arriving(9_999, 0, 24)], 10, [(0, 10), (10, 20), (20, 25)], id="no more cells than blocks"),
        pytest.param([arriving(250, 0, 24)], 64, [(0, 10), (10, 20), (20, 25)], id="no more cells than events"),
        pytest.param(
            [arriving(200, 20, 20), arriving(50, 0, 9)], 64, [(0, 20), (20, 21), (21, 25)], id="most at once"
        ),
        pytest.param(
            [InputFile("/b", 200, 1), arriving(50, 0, 9)], 50, [(n, min(n + 2, 25)) for n in range(0, 25, 2)],
            id="a footer that does not tell",
        ),
        pytest.param([arriving(999, 30, 40)], 1_000, [(0, 24), (24, 25)], id="when the clock has stopped"),
        pytest.param([InputFile("/c", 0, 1)], 5, [(0, 25)], id="no event"),
        pytest.param([arriving(999, 0, 24)], 0, [(0, 25)], id="no partition"),
    ],
)  # fmt: skip
def test_a_portion_has_as_many_cells_as_the_driver_is_sent(
    files: list[InputFile], partitions: int, expected: list[tuple[int, int]]
) -> None:
    assert spans(split_ticks(files, partitions, DAY_OF_HOURS, most=100)) == expected


@pytest.mark.parametrize("seed", range(5))
def test_watermarks_merged_stretch_by_stretch_are_those_of_all_ticks_together(seed: int) -> None:
    chance, rises = random.Random(seed), 0  # noqa: S311 - a test's streams, not secrets
    for number in range(200):
        kind = chance.choice([StrategyKind.BOUNDED, StrategyKind.MONOTONOUS])
        emission = Emission(WatermarkStrategy(kind, chance.choice([0, 40]), 10, chance.choice([0, 0, 30, 200])))
        last_block = chance.choice([5, 50, 500])
        rows = [
            (chance.choice("abc"), chance.choice([0, block := chance.randint(0, last_block), block]))
            for _ in range(chance.choice([1, 5, 40]))
        ]
        cells = pa.table(
            {
                "source_partition": [name for name, _ in rows],
                "block": [block for _, block in rows],
                "event_time_ms": [10 * block - chance.choice([0, 10, 300]) for _, block in rows],
            }
        )
        clock, partitions = (
            SourceClock(0, 10, 10 * last_block + chance.choice([-10, 0, 500])),
            ["a", "b", "c", "silent"],
        )

        merge, result = TickMerger(emission, clock, partitions), []
        cuts = sorted(chance.randint(0, last_block) for _ in range(chance.randint(0, 6)))
        for start, stop in pairwise([0, *cuts, clock.last_tick + 1]):
            is_inside = [start <= block < stop for block in cells["block"].to_pylist()]
            result.append(merge.advance_to(stop, cells.filter(pa.array(is_inside))))

        expected_ms, ticks = (each.tolist() for each in merge_maxima(cells, emission, clock, partitions))
        assert [value for each, _ in result for value in each.tolist()] == expected_ms, f"{number} of seed {seed}"
        assert [tick for _, each in result for tick in each.tolist()] == ticks, f"{number} of seed {seed}"
        rises += len(ticks)
    assert rises > 300


@pytest.mark.parametrize("stream", ["bounded", *STREAMS])
def test_the_watermarks_are_those_of_the_whole_stream(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: str
) -> None:
    write_history(tmp_path / "data", random_history(seed=7, rows=300))
    content = definition_of(tmp_path / "data", window=WINDOWS["session"], **STREAMS.get(stream, {}))
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)
    work = SparkGroup.of(spark, ChunkGroup.from_plan(plan, plan.chunks))
    monkeypatch.setattr(module, "max_driver_rows", lambda _: 100)

    result = timeline_of_files(work.reader, StreamPart(work.plan.inputs, work.clock, work.emission), ["silent"])

    wanted = timeline_of_events(work.event_files.all(), work.emission, work.clock, ["silent"])
    for name in ("watermark_ms", "visible_from", "blocks"):
        assert getattr(result, name).tolist() == getattr(wanted, name).tolist()
    assert len(wanted.watermark_ms) or stream != "bounded"


@pytest.mark.parametrize("engine", ["native", "spark"])
@pytest.mark.parametrize(("since", "until"), [(0, 9), (6, 7)])
def test_sessions_are_replayed_the_same_however_little_the_driver_is_sent(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since: int, until: int, engine: str
) -> None:
    history = random_history(seed=11, rows=600, days=9)
    write_history(tmp_path / "data", history)
    watermark = {
        "strategy": "bounded_out_of_orderness",
        "delay": "10m",
        "emit_interval": "30s",
        "idle_timeout": "6h",
    }
    backfill = {"engine": engine}
    content = definition_of(tmp_path / "data", window=WINDOWS["session"], watermark=watermark, backfill=backfill)
    plan = planned(tmp_path, content, Mode.REPLAY, since=since, until=until)
    expected = Expected(history, parse_definition(content, "test"), plan.range)
    monkeypatch.setattr(native_reader, "_MAX_CELLS", 200)
    monkeypatch.setattr(module, "max_driver_rows", lambda _: 200)
    portions = []

    def noted(*actual: object) -> list[range]:
        portions.append(split_ticks(*actual))  # type: ignore[arg-type]
        return portions[-1]

    monkeypatch.setattr(streams, "split_ticks", noted)
    manifests = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    assert max(map(len, portions)) > 2
    assert fates(manifests) == expected.fates()
    assert panes(manifests) == expected.values()


@pytest.mark.parametrize(
    ("heap", "sent", "expected_bytes"),
    [
        ("6g", "1g", 0.8 * 2**30),
        ("1g", "1g", 2**30 / 3),
        ("6144", "500m", 0.8 * 500 * 2**20),
        ("3GB", "0", 2**30),
        ("3g", "-1", 2**30),
        ("6g", "1000000", 800_000),
    ],
)
def test_the_driver_is_sent_no_more_than_it_has_room_for(heap: str, sent: str, expected_bytes: float) -> None:
    settings = {"spark.driver.memory": heap, "spark.driver.maxResultSize": sent}

    most = module.max_driver_rows(SimpleNamespace(conf=settings))  # type: ignore[arg-type]

    assert most * streams.CELL_BYTES == pytest.approx(expected_bytes, abs=streams.CELL_BYTES)


def test_what_is_not_set_is_what_spark_takes(spark: SparkSession) -> None:
    assert 0 < module.max_driver_rows(spark) * streams.CELL_BYTES <= 0.8 * 2**30


def test_a_list_of_ticks_with_a_late_start_gives_each_record_its_watermark(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join, "_MAX_LISTED_TICKS", 10)
    emission, clock = Emission(WatermarkStrategy(StrategyKind.BOUNDED, 5, 1)), SourceClock(0, 1, 30 * DAY_MS)
    arrivals = [DAY_MS, DAY_MS + 2, DAY_MS + 2, DAY_MS + 9, None, 30 * DAY_MS]
    columns = {
        "arrival_time_ms": pa.array(arrivals, pa.int64()),
        "event_time_ms": pa.array([100, 300, 200, 400, None, None], pa.int64()),
        "source_partition": ["a"] * len(arrivals),
    }
    events = spark.createDataFrame(pa.table(columns))
    readable = events.where("event_time_ms is not null")

    timeline = timeline_of_events(readable, emission, clock)
    in_force_ms = events.transform(join.add_watermarks(spark, timeline, clock))

    assert "Join" not in physical_plan(in_force_ms)
    result = [row.watermark_ms for row in in_force_ms.orderBy("arrival_time_ms", "event_time_ms").collect()]
    assert result == [None, MIN_MS, 94, 94, 294, None]
