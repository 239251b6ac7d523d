from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from benchmarks.data import FIRST_DAY_MS, Stream
from pyspark.sql import SparkSession

from benchmarks import data

DAY = Stream(rows=20_000, files=4)
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return data.parquet(spark, DAY, tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def rows(folder: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(file) for file in sorted(folder.glob("part-*.parquet"))])


def ms(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.divide(column.cast(pa.int64()), 1000)


def share(rows: pa.Table, is_counted: pa.ChunkedArray) -> float:
    return float(pc.sum(is_counted.cast(pa.int64())).as_py() / rows.num_rows)


def test_the_rows_are_these_on_every_machine_however_the_work_is_cut(spark: SparkSession, rows: pa.Table) -> None:
    other_cut = data.events(spark, Stream(rows=20_000, files=3)).toArrow()

    assert rows.num_rows == 20_000
    assert {name: pc.sum(rows[name]).as_py() for name in ("key", "value")} == {
        "key": 173_869_322,
        "value": 9_991_173,
    }
    assert other_cut.equals(rows)


def test_the_files_are_in_arrival_order_by_name_and_by_age(folder: Path, rows: pa.Table) -> None:
    files = sorted(folder.glob("part-*.parquet"))
    ages = [file.stat().st_mtime for file in files]
    arrivals = ms(rows["arrival_time"]).to_pylist()

    assert len(files) == 4
    assert all(older < newer for older, newer in pairwise(ages))
    assert arrivals == sorted(arrivals)
    assert FIRST_DAY_MS <= arrivals[0] < arrivals[-1] < FIRST_DAY_MS + 24 * HOUR_MS


def test_the_first_key_has_the_share_that_zipf_gives_it(rows: pa.Table) -> None:
    assert pc.min(rows["key"]).as_py() == 0
    assert pc.max(rows["key"]).as_py() < data.KEYS
    # ln 2 / ln 100,001
    assert share(rows, pc.equal(rows["key"], 0)) == pytest.approx(0.060, abs=0.01)


def test_a_hot_key_has_half_of_all_events_and_the_rest_is_as_it_was(spark: SparkSession, rows: pa.Table) -> None:
    hot = data.events(spark, replace(DAY, has_hot_key=True)).toArrow()

    assert share(hot, pc.equal(hot["key"], 0)) == pytest.approx(0.5 + 0.5 * 0.060, abs=0.01)
    assert hot.drop_columns("key").equals(rows.drop_columns("key"))
    is_other = pc.not_equal(hot["key"], 0)
    assert hot["key"].filter(is_other).equals(rows["key"].filter(is_other))


def test_partitions_are_skewed_and_silent_when_they_should_be(rows: pa.Table) -> None:
    hour = pc.divide(pc.subtract(ms(rows["arrival_time"]), FIRST_DAY_MS).cast(pa.float64()), float(HOUR_MS))

    assert sorted(pc.unique(rows["source_partition"]).to_pylist()) == list(range(8))
    assert share(rows, pc.equal(rows["source_partition"], 0)) > 1 / 3
    for partition, stretches in data.IDLE_HOURS.items():
        mine = hour.filter(pc.equal(rows["source_partition"], partition)).to_pylist()
        assert mine
        assert not [at for at in mine for begin, end in stretches if begin <= at < end]


def test_lateness_has_a_heavy_tail(rows: pa.Table) -> None:
    late_ms = pc.subtract(ms(rows["arrival_time"]), ms(rows["event_time"]))

    assert pc.min(late_ms).as_py() >= 999  # 1 s / 1.0001, floored
    assert pc.max(late_ms).as_py() <= 10_000_000
    assert share(rows, pc.greater(late_ms, 60_000)) == pytest.approx(1 / 60, rel=0.2)
    assert share(rows, pc.greater(late_ms, 600_000)) == pytest.approx(1 / 600, rel=0.6)


def test_what_was_made_is_not_made_again(spark: SparkSession, folder: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}

    assert data.parquet(spark, DAY, folder.parents[1]) == folder
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == before


def test_the_two_csv_files_are_at_the_same_moment_of_the_stream(
    spark: SparkSession, folder: Path, rows: pa.Table
) -> None:
    made = data.csv(spark, DAY, folder.parents[1])
    names = ["key", "value", "event_time_ms"]
    read = pyarrow.csv.ReadOptions(column_names=names)
    expected = pa.table([rows["key"], rows["value"], ms(rows["event_time"])], names)

    assert sorted(file.name for file in made.iterdir()) == ["half-0.csv", "half-1.csv"]
    for half in (0, 1):
        every_second = expected.take(list(range(half, 20_000, 2)))
        assert pyarrow.csv.read_csv(made / f"half-{half}.csv", read).equals(every_second.combine_chunks())
