"""Folders as Kafka Connect's sinks and Flink's file sink write them are read as they are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.prepared.events import Event, make_events, nested
from tests.prepared.test_prepared import NESTED_COLUMNS, write_definition

from backstream.definition.prepared_columns import EVENT_TIME
from backstream.runs.home import Home
from backstream.workflow.inputs.prepare import prepare_source
from backstream.workflow.runners import SparkRunner

EVENTS = make_events(60)
VALUES = 'format = "json"\nevent_time = "payload.at"\n'
PAYLOAD = '\n[source.columns]\npayload = "struct<at: string, user: struct<id: string>, amount: int>"\n'
FLINK_FILE = "part-2f6c0b1e-5e0c-4d5f-9b4b-6d1f0a3c9e77"


def write_lines(path: Path, events: Iterable[Event]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(nested(event))}\n" for event in events))


def by_partition(events: Sequence[Event]) -> dict[int, list[Event]]:
    return {number: [event for event in events if event.partition == number] for number in (0, 1)}


def prepare(spark: SparkSession, folder: Path, source: str, path: str = "data") -> list[dict[str, Any]]:
    definition = write_definition(folder, source, "payload.amount")
    definition.write_text(definition.read_text().replace(f"{folder}/data", f"{folder}/{path}"))
    prepare_source(definition, Home(folder / "home"), SparkRunner(lambda: spark))
    return [row for batch in folder.glob("home/prepared/*/*/batch-*") for row in pq.read_table(batch).to_pylist()]


def expect(rows: list[dict[str, Any]], events: Iterable[Event], *columns: str) -> None:
    read = [(row[EVENT_TIME], row["payload_amount"], *(row[name] for name in columns)) for row in rows]
    own = {"partition": lambda event: event.partition, "payload_user_id": lambda event: event.user}
    wanted = [(event.at, event.amount, *(own[name](event) for name in columns)) for event in events]
    assert sorted(read) == sorted(wanted)


def test_the_default_partitioner_of_kafka_connect(spark: SparkSession, tmp_path: Path) -> None:
    topic = tmp_path / "topics/_orders.v1"  # a name of a topic may begin with _
    for partition, events in by_partition(EVENTS).items():
        for start in range(0, len(events), 12):
            name = f"_orders.v1+{partition}+{start:010}.json"
            write_lines(topic / f"partition={partition}" / name.lstrip("_"), events[start : start + 12])
    source = f'{VALUES}partition = "partition"\nkey = ["payload.user.id"]\n{PAYLOAD}'

    rows = prepare(spark, tmp_path, source, "topics/_orders.v1")

    expect(rows, EVENTS, "partition", "payload_user_id")


def test_the_temporary_files_of_the_hdfs_sink_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    write_lines(tmp_path / "topics/orders/partition=0/orders+0+0000000000+0000000059.json", EVENTS)
    write_lines(tmp_path / "topics/+tmp/orders/partition=0/6a5e_tmp.json", EVENTS[:7])
    expect(prepare(spark, tmp_path, VALUES + PAYLOAD, "topics"), EVENTS)


@pytest.mark.parametrize("path_format", ["dt=%Y-%m-%d/hour=%H", "year=%Y/month=%m/day=%d/hour=%H"])
def test_the_time_based_partitioner_of_kafka_connect(
    path_format: str, spark: SparkSession, tmp_path: Path
) -> None:
    for number, event in enumerate(EVENTS):
        folder = tmp_path / "topics/orders" / event.arrived.strftime(path_format)
        write_lines(folder / f"orders+0+{number:010}.json", [event])
    source = f'{VALUES}key = ["payload.user.id", "hour"]\n{PAYLOAD}'

    rows = prepare(spark, tmp_path, source, "topics/orders")

    expect(rows, EVENTS, "payload_user_id")
    assert sorted(row["hour"] for row in rows) == sorted(event.arrived.hour for event in EVENTS)


def test_the_file_sink_of_flink(spark: SparkSession, tmp_path: Path) -> None:
    hours = sorted({event.arrived.replace(minute=0, second=0, microsecond=0) for event in EVENTS})
    for hour in hours:
        bucket = tmp_path / "data" / hour.strftime("%Y-%m-%d--%H")
        inside = [event for event in EVENTS if hour <= event.arrived < hour + timedelta(hours=1)]
        for subtask, events in by_partition(inside).items():
            write_lines(bucket / f"{FLINK_FILE}-{subtask}", events)
        write_lines(bucket / f".{FLINK_FILE}-2.inprogress.0c7d6f7e-4a2e-4a43-a1a7-6a7a3a0f1c55", inside)
    source = f'{VALUES}partition = "partition"\nsequence = "offset"\nkey = ["payload.user.id"]\n{NESTED_COLUMNS}'

    expect(prepare(spark, tmp_path, source), EVENTS, "partition", "payload_user_id")
