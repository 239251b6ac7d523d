"""The tumbling job by Spark Structured Streaming, `AvailableNow` over the same files; a JSON line on stdout.

python -m benchmarks.peers.structured_streaming --input FOLDER --store default|rocksdb --heap 6g --scratch FOLDER
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.memory import SparkMeter
from benchmarks.session import session

FILES_PER_BATCH = 4
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main() -> None:
    """Run the query twice, and print the figures of the second run. The first run warms up Spark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--store", choices=["default", "rocksdb"], required=True)
    parser.add_argument("--heap", required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    options = parser.parse_args()
    spark = session(options.heap, options.scratch)
    if options.store == "rocksdb":
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", _ROCKSDB)
    meter = SparkMeter(spark)
    _run_query(spark, options.input)
    meter.begin()
    begin = time.perf_counter()
    batches = _run_query(spark, options.input)
    seconds = time.perf_counter() - begin
    use = meter.read()
    spark.stop()
    facts = {
        "seconds": seconds,
        "heap_mb": use.heap_mb,
        "spilled_mb": use.spilled_mb,
        "version": pyspark.__version__,
        "events": sum(int(batch["numInputRows"]) for batch in batches),
        "dropped": sum(_count_drops(batch) for batch in batches),
        "batches": len(batches),
    }
    print(json.dumps(facts))


def _run_query(spark: SparkSession, folder: Path) -> list[Any]:
    """Run the query, and return one progress report per batch."""
    rows = spark.read.parquet(str(folder))
    stream = (
        spark.readStream.schema(rows.schema).option("maxFilesPerTrigger", FILES_PER_BATCH).parquet(str(folder))
    )
    windows = (
        stream.withWatermark("event_time", "1 minute")
        .groupBy("key", F.window("event_time", "1 minute"))
        .agg(F.count("*").alias("events"), F.sum("value").alias("total"))
    )
    checkpoint = tempfile.mkdtemp(prefix="backstream-checkpoint-", dir=spark.conf.get("spark.local.dir"))
    writer = windows.writeStream.format("noop").outputMode("append").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    progress = list(query.recentProgress)
    shutil.rmtree(checkpoint)
    return progress


def _count_drops(batch: Any) -> int:
    """Return the number of groups behind the watermark. Spark drops them after aggregation within the batch."""
    return sum(int(operator["numRowsDroppedByWatermark"]) for operator in batch["stateOperators"])


if __name__ == "__main__":
    main()
