"""A real query writes its checkpoint and, by the listener of the documentation, its progress reports."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from demo.settings import CHECKOUT
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner

import backstream
from backstream.cli import app
from backstream.lake.reader import load_rows
from backstream.runs.home import Home
from backstream.storage.stores import Stores
from backstream.structured_streaming.batches import merge_logs, require_sound
from backstream.structured_streaming.checkpoint import read_checkpoint
from backstream.structured_streaming.kept_batches import keep_batches, read_kept
from backstream.structured_streaming.progress import read_progress
from backstream.structured_streaming.rules import BatchRecord, BatchWatermarks, JobWindows, emit_windows

pytestmark = pytest.mark.slow
MINUTES = [[0, 1, 2], [12, 13], [3, 25], [1, 40], [14]]
"""The event times of the records in each file; the job forgets a window of five minutes after two minutes."""


def listener_of_the_docs() -> str:
    """Return the program in the documentation, up to its last statement."""
    text = (CHECKOUT / "docs/structured-streaming.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(from pyspark.sql.streaming.*?)```", text, re.DOTALL)
    return str(program).partition("\nspark.streams")[0]


def test_the_logs_of_a_query_lead_to_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    names: dict[str, type] = {}
    exec(listener_of_the_docs(), names)  # noqa: S102 - the program of our documentation
    listener = names["ProgressLog"](str(tmp_path / "progress.jsonl"))
    (tmp_path / "input").mkdir()
    events = spark.readStream.schema("id int, minute int").option("maxFilesPerTrigger", 1)
    read = events.json(str(tmp_path / "input")).withColumn("at", F.timestamp_seconds(F.col("minute") * 60))
    counted = read.withWatermark("at", "2 minutes").groupBy(F.window("at", "5 minutes"))
    rows = counted.agg(F.sort_array(F.collect_list("id")).alias("ids"))
    writer = rows.writeStream.outputMode("append").option("checkpointLocation", str(tmp_path / "checkpoint"))
    spark.streams.addListener(listener)
    try:
        query = writer.format("memory").queryName("counted").start()
        for number, minutes in enumerate(MINUTES):
            lines = [json.dumps({"id": 10 * number + place, "minute": at}) for place, at in enumerate(minutes)]
            (tmp_path / f"input/{number}.json").write_text("\n".join(lines))
            query.processAllAvailable()
        query.stop()
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # noqa: SLF001 - it has no other name
    finally:
        spark.streams.removeListener(listener)

    checkpoint = read_checkpoint(str(tmp_path / "checkpoint"), Stores())
    progress = read_progress(str(tmp_path / "progress.jsonl"), Stores())
    log = require_sound(merge_logs([checkpoint, progress]))
    assert len(log.batches) >= len(MINUTES)
    assert keep_batches(str(tmp_path / "checkpoint"), str(tmp_path / "kept")).lost == []
    kept = read_kept(str(tmp_path / "kept"), Stores())
    assert kept
    assert kept.batches == require_sound(checkpoint).batches
    records = [
        BatchRecord(10 * number + place, "", at * 60_000_000, batch)
        for number, minutes in enumerate(MINUTES)
        for place, at in enumerate(minutes)
        if (batch := log.batch_of_file("0", f"/{number}.json")) is not None
    ]
    watermarks = BatchWatermarks([batch.watermark_ms for batch in log.batches])
    found = emit_windows(records, watermarks, JobWindows(300_000_000, 300_000_000))
    emitted = {tuple(row["ids"]) for row in spark.table("counted").collect()}
    assert {window.records for window in found} == emitted
    assert (0, 1, 2) in emitted
    assert not any(30 in ids for ids in emitted), "the record of minute 1 was late"


ORDERS: list[list[tuple[str, int, int]]] = [
    [("lyon", 0, 5), ("lyon", 1, 7), ("porto", 2, 3)],
    [("porto", 9, 4)],
    [("lyon", 3, 100), ("porto", 12, 8)],
    [("porto", 4, 90), ("lyon", 13, 6), ("porto", 30, 1)],
    [("lyon", 31, 2), ("lyon", 14, 77)],
    [("porto", 60, 9)],
]
"""Shop, minute, and amount of the orders in each file. The third file has a late record that counts: its batch is
the one in which the window ends. The late record of the fourth one is dropped, since Spark dropped it."""


def block_of_the_docs(language: str, start: str) -> str:
    """Return the program or the definition in the documentation that starts with a text."""
    text = (CHECKOUT / "docs/structured-streaming.md").read_text(encoding="utf-8")
    blocks = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    return str(next(block for block in blocks if block.startswith(start)))


def write_orders(folder: Path, number: int) -> None:
    rows = [
        {
            "id": 10 * number + place,
            "shop": shop,
            "at": f"2024-03-01T{10 + minute // 60}:{minute % 60:02}:00Z",
            "amount": amount,
        }
        for place, (shop, minute, amount) in enumerate(ORDERS[number])
    ]
    file = folder / f"orders/{number}.json"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(file, (1_709_290_000 + number,) * 2)  # the job reads files in this order


def test_the_backfill_of_the_docs_replaces_a_wrong_aggregate(spark: SparkSession, tmp_path: Path) -> None:
    """A job gets late records, an outage, and a restart; one of its aggregates has a bug."""
    names: dict[str, Any] = {}
    exec(block_of_the_docs("python", "from pyspark.sql import functions"), names)  # noqa: S102 - our documentation
    (tmp_path / "orders").mkdir()
    for numbers in ((0, 1, 2), (3, 4), (5,)):  # the query stops, and several files wait for the next start
        for number in numbers:
            write_orders(tmp_path, number)
        query = names["start_job"](spark, str(tmp_path))
        query.processAllAvailable()
        query.stop()
    definition = tmp_path / "orders_5m.toml"
    limits = "[quality]\nmissing_ratio = { warn = 1.0, fail = 1.0 }\ndropped_ratio = { warn = 1.0, fail = 1.0 }\n"
    text = block_of_the_docs("toml", "name = ").replace("{folder}", str(tmp_path))
    definition.write_text(f"{text}\n{limits}")
    emitted = spark.read.parquet(str(tmp_path / "live")).collect()
    live = {(row["shop"], row["start"].timestamp()): row for row in emitted}
    assert len(live) == 7
    home = Home(tmp_path / "home")

    backstream.run(definition, "2024-03-01", "2024-03-02", home=home.path, runner="local", allow_unsealed=True)

    rows = {
        (row["shop"], row["window_start"].timestamp()): row for row in load_rows(home, "orders_5m").to_pylist()
    }
    assert {window: row["orders"] for window, row in rows.items()} == {
        window: row["orders"] for window, row in live.items()
    }
    first = rows["lyon", datetime(2024, 3, 1, 10, tzinfo=UTC).timestamp()]
    assert (first["orders"], first["revenue"]) == (3, 112), "the late order of 100 counts"
    assert sum(row["revenue"] for row in rows.values()) == sum(
        amount for shop, minute, amount in chain(*ORDERS) if amount != 90 and minute < 60
    ), "the order of 90 was dropped, and the last window is open"
    asked = ["reconcile", str(definition), "--against", str(tmp_path / "live")]
    environment = {"BACKSTREAM_HOME": str(home.path)}
    (tmp_path / "live/part-00000-of-a-failed-batch.parquet").write_bytes(b"not a file that the job committed")

    same = CliRunner().invoke(app, [*asked, "--columns", "window_start=start,revenue="], env=environment)
    other = CliRunner().invoke(app, [*asked, "--columns", "window_start=start"], env=environment)

    assert "7 of 7 windows are equal" in same.output
    assert "5 of 7 windows are equal, 2 differ" in other.output
