"""Continue a recorded stream in Structured Streaming: a bundle is the initial state of transformWithState.

python live_structured_streaming.py --records FOLDER --output FILE [--bundle FOLDER]

The job counts and sums the values of each key per tumbling window. Without a bundle, it reads the whole stream.
It needs the packages pyspark, pandas, pyarrow, and protobuf, and no package of backstream.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, GroupedData, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

SIZE_MS, DELAY, LATENESS_MS = 3_600_000, "10 minutes", 3_600_000
"""The window and the watermark of this job: those of the definition, which `bundle.json` repeats."""
RECORDS = StructType(
    [
        StructField("event_time", TimestampType()),
        StructField("arrival_time", TimestampType()),
        StructField("partition", StringType()),
        StructField("seq", LongType()),
        StructField("key", StringType()),
        StructField("value", LongType()),
    ]
)
RESULT = "key string, window_end_ms bigint, events bigint, total bigint"
_FOREVER_MS = 9_000_000_000_000


class Windows(StatefulProcessor):
    """Tumbling windows with state that a bundle can fill."""

    def __init__(self, restored_watermark_ms: int) -> None:
        self._restored_watermark_ms = restored_watermark_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Create the state: count and total by the end of a window."""
        self._handle = handle
        self._windows = handle.getMapState("windows", "end_ms bigint", "events bigint, total bigint")

    def handleInitialState(self, key: Any, initialState: Any, timerValues: TimerValues) -> None:  # noqa: N802, N803
        """Restore a window: step 3 and 4 of the guide, partial aggregates and timers."""
        del key, timerValues
        end_ms = initialState.window_end_ms
        self._windows.updateValue((end_ms,), (initialState.events, initialState.total))
        if initialState.is_pending:
            self._handle.registerTimer(end_ms - 1)
        self._handle.registerTimer(end_ms - 1 + LATENESS_MS)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Row]:  # noqa: N802, N803
        """Add records to their windows."""
        # Step 2 of the guide: the watermark of the cut counts until the new one has passed it.
        watermark_ms = max(timerValues.getCurrentWatermarkInMs(), self._restored_watermark_ms)
        for row in rows:
            end_ms = row.event_ms - row.event_ms % SIZE_MS + SIZE_MS
            if end_ms - 1 + LATENESS_MS <= watermark_ms:
                continue
            old = self._windows.getValue((end_ms,)) or (0, 0)
            self._windows.updateValue((end_ms,), (old[0] + 1, old[1] + row.value))
            self._handle.registerTimer(end_ms - 1 + LATENESS_MS)
            if end_ms - 1 <= watermark_ms:
                yield Row(key=key[0], window_end_ms=end_ms, events=old[0] + 1, total=old[1] + row.value)
            else:
                self._handle.registerTimer(end_ms - 1)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        """Fire a window at its end, and remove its state after the allowed lateness."""
        del timerValues
        at_ms = expiredTimerInfo.getExpiryTimeInMs()
        if self._windows.containsKey((at_ms + 1,)):
            events, total = self._windows.getValue((at_ms + 1,)) or (0, 0)
            yield Row(key=key[0], window_end_ms=at_ms + 1, events=events, total=total)
        if self._windows.containsKey((at_ms + 1 - LATENESS_MS,)):
            self._windows.removeKey((at_ms + 1 - LATENESS_MS,))

    def close(self) -> None:
        """Do nothing: the state belongs to Spark."""


def load_state(spark: SparkSession, bundle: Path) -> tuple[GroupedData, int]:
    """Return the open windows of a bundle by key, and its watermark."""
    manifest = json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))
    if (manifest["schema_version"], manifest["window"]["size_ms"]) != (1, SIZE_MS):
        sys.exit("this job reads bundles of version 1 with windows of one hour")
    return spark.read.parquet(str(bundle / "windows.parquet")).groupBy("key"), manifest["watermark_ms"]


def live_records(spark: SparkSession, folder: Path, bundle: Path | None) -> DataFrame:
    """Return the stream of records from the positions of a bundle on, or of all records."""
    records = spark.readStream.schema(RECORDS).option("maxFilesPerTrigger", 1).parquet(str(folder))
    if bundle is not None:
        # Step 1 of the guide: each partition begins at its next position.
        positions = spark.read.parquet(str(bundle / "partitions.parquet"))
        starts = F.broadcast(positions.select(F.col("source_partition").alias("partition"), "next_seq"))
        records = records.join(starts, "partition").where(F.col("seq") >= F.col("next_seq"))
    return records.withWatermark("event_time", DELAY).select(
        "key", "value", "event_time", F.unix_millis("event_time").alias("event_ms")
    )


def main() -> None:
    """Run the job, and write its firings as JSON: key, end of the window, count, and total."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--bundle", type=Path)
    options = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.streaming.stateStore.providerClass", provider)
        .getOrCreate()
    )
    state, watermark_ms = load_state(spark, options.bundle) if options.bundle else (None, 0)
    windows = (
        live_records(spark, options.records, options.bundle)
        .groupBy("key")
        .transformWithState(
            statefulProcessor=Windows(watermark_ms),
            outputStructType=RESULT,
            outputMode="Append",
            timeMode="EventTime",
            initialState=state,
        )
    )
    rows: list[list[Any]] = []
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            windows.writeStream.foreachBatch(lambda batch, _: rows.extend(list(row) for row in batch.collect()))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .outputMode("append")
            .start()
        )
        query.awaitTermination()
    spark.stop()
    options.output.write_text(json.dumps(sorted(rows)), encoding="utf-8")


if __name__ == "__main__":
    main()
