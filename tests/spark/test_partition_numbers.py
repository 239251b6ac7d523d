"""Test source partitions that are recorded as numbers: they are grouped as numbers, and shown as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.histories import Expected, Row, definition_of, random_history, write_history
from tests.spark.runs import STREAMS, WINDOWS, fates, panes, physical_plan, planned, published, rows

from backstream.chunks.arrival_index import extend_index
from backstream.chunks.group import ChunkGroup
from backstream.chunks.replay import replay_chunks
from backstream.definition.loader import parse_definition
from backstream.eventtime.windows import Session
from backstream.runs.manifest import Manifest
from backstream.runs.plan import Mode
from backstream.source.arrival_index import BucketGrid, IndexFolder
from backstream.spark.arrival_index import bucket_events
from backstream.spark.chunk_group import SparkGroup
from backstream.spark.engine import SparkEngine
from backstream.spark.table_frames import window_results
from backstream.spark.watermarks.compress import compress_events

pytestmark = pytest.mark.slow

NAMES = {"A": "10", "B": "2", "C": "-1"}
"""Numbers whose order differs from their order as text."""


def written(folder: Path, of: pa.DataType) -> list[Row]:
    """Return a history with numeric partitions, as in files and as in results."""
    history = [(*row[:2], NAMES[row[2]], *row[3:]) for row in random_history(seed=41, rows=300)]
    write_history(folder, history)
    for file in folder.rglob("*.parquet"):
        table = pq.ParquetFile(file).read()
        at = table.schema.get_field_index("origin")
        pq.write_table(table.set_column(at, "origin", table["origin"].cast(of)), file)
    return history


def definition(folder: Path, kind: str, **sections: dict[str, Any]) -> dict[str, Any]:
    return definition_of(folder, window=WINDOWS[kind], backfill={"chunk": "1d"}, **sections)


def replayed_as_expected(
    spark: SparkSession, folder: Path, history: Sequence[Row], content: dict[str, Any]
) -> list[Manifest]:
    """Replay the history, and compare the result with the reference."""
    plan = planned(folder, content, Mode.REPLAY, since=0, until=3)
    expected = Expected(history, parse_definition(content, "test"), plan.range)
    manifests = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))
    assert fates(manifests) == expected.fates()
    assert panes(manifests) == expected.values()
    assert published(manifests) == expected.published()
    return manifests


@pytest.mark.parametrize(
    ("kind", "of"), [("tumbling", pa.int8()), ("sliding", pa.int64()), ("session", pa.int8())], ids=str
)
def test_a_replay_writes_numbers_of_partitions_as_text(
    spark: SparkSession, tmp_path: Path, kind: str, of: pa.DataType
) -> None:
    history, content = written(tmp_path / "data", of), definition(tmp_path / "data", kind)

    manifests = replayed_as_expected(spark, tmp_path, history, content)

    assert {row["source_partition"] for row in rows(manifests, "metrics")} == set(NAMES.values())


@pytest.mark.parametrize("stream", ["punctuated", "custom", "gate with idleness", "ended partitions"])
def test_whatever_the_watermarks_are(spark: SparkSession, tmp_path: Path, stream: str) -> None:
    history = written(tmp_path / "data", pa.int32())

    replayed_as_expected(spark, tmp_path, history, definition(tmp_path / "data", "sliding", **STREAMS[stream]))


def test_one_that_is_missing_is_unknown(spark: SparkSession, tmp_path: Path) -> None:
    written(tmp_path / "data", pa.int32())
    file = min((tmp_path / "data").rglob("*.parquet"))
    table = pq.ParquetFile(file).read()
    at, first = table.schema.get_field_index("origin"), pa.array([None], pa.int32())
    with_hole = pa.concat_arrays([first, table["origin"].slice(1).combine_chunks()])
    pq.write_table(table.set_column(at, "origin", with_hole), file)
    plan = planned(tmp_path, definition(tmp_path / "data", "tumbling"), Mode.REPLAY, since=0, until=3)

    manifests = list(replay_chunks(SparkEngine(spark), plan, plan.chunks))

    actual = fates(manifests)
    assert actual["unknown"] == {"quarantined": 1}
    assert sum(sum(each.values()) for each in actual.values()) == sum(each.events_read for each in manifests)


def test_an_unreadable_record_of_one_has_no_place_in_the_index(spark: SparkSession, tmp_path: Path) -> None:
    written(tmp_path / "data", pa.int32())
    file = min((tmp_path / "data").rglob("*.parquet"))
    table = pq.ParquetFile(file).read()
    times = table["happened_at"].combine_chunks()
    with_hole = pa.concat_arrays([pa.nulls(1, times.type), times.slice(1)])
    pq.write_table(table.set_column(0, "happened_at", with_hole), file)
    plan = planned(tmp_path, definition(tmp_path / "data", "tumbling"), Mode.REPLAY, since=0, until=3)
    work = SparkGroup.of(spark, ChunkGroup.from_plan(plan, plan.chunks))

    index = extend_index(plan.inputs, folder_of(tmp_path, work), work.reader.read_index)

    assert index.paths_without_times() == {str(file)}
    assert index.partitions() == set(NAMES.values())
    assert sum(rows.num_rows for rows in index.rows_by_partition.values()) == index.rows.num_rows - 1


@pytest.mark.parametrize("grouping", ["index", "watermarks", "metrics"])
def test_text_is_made_of_them_only_when_they_are_grouped(
    spark: SparkSession, tmp_path: Path, grouping: str
) -> None:
    written(tmp_path / "data", pa.int32())
    content = definition(tmp_path / "data", "tumbling")
    content["source"]["deduplicate_on"] = []  # to find copies, rows are moved as they are
    plan = planned(tmp_path, content, Mode.REPLAY, since=0, until=3)
    work = SparkGroup.of(spark, ChunkGroup.from_plan(plan, plan.chunks))

    _, *below = physical_plan(group_events(work, grouping)).split("HashAggregate")

    assert len(below) > 1
    assert not [each for each in below if re.search(r"cast\((origin|source_partition)\S* as string\)", each)]


def buckets_of(work: ChunkGroup) -> BucketGrid:
    window = work.definition.window.spec()
    assert not isinstance(window, Session)
    return BucketGrid.from_window(window, work.emission, work.definition.lateness.allowed)


def folder_of(home: Path, work: ChunkGroup) -> IndexFolder:
    return IndexFolder.from_source(home / "index", work.definition.name, work.definition.read_by, buckets_of(work))


def group_events(work: SparkGroup, grouping: str) -> DataFrame:
    if grouping == "metrics":
        results = window_results(work, DataFrame.cache)
        return results.counts(results.records().columns).rows
    if grouping == "watermarks":
        return compress_events(work.event_files.all(), work.clock, work.emission)
    return bucket_events(work.event_files.all(), buckets_of(work), ())
