"""A real query writes its checkpoint and, by the listener of the documentation, its progress reports."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from demo.settings import CHECKOUT
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

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
    (program,) = re.findall(r"```python\n(from pyspark.*?)```", text, re.DOTALL)
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
