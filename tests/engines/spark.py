"""Run SQL in one Spark with Iceberg: a line of JSON per statement on standard input, a line per answer.

This program runs in the environment of `parts.py`, which has another version of Spark.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession


def main(settings: str) -> None:
    """Start Spark with the settings of a file, and answer."""
    builder = SparkSession.builder
    for name, value in json.loads(Path(settings).read_text(encoding="utf-8")).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    answer({"version": spark.version})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            for name, value in request.get("settings", {}).items():
                spark.conf.set(name, value)
            if "stream" in request:
                answer({"rows": read_stream(spark, **request["stream"])})
                continue
            rows = spark.sql(request["sql"]).toArrow() if request["sql"] else None
        except Exception as error:  # noqa: BLE001 - the test decides about each
            answer({"error": str(error)})
            continue
        answer({"rows": json.loads(json.dumps(rows.to_pylist(), default=str)) if rows else []})


def read_stream(spark: SparkSession, table: str, checkpoint: str, options: dict[str, str]) -> list[list[object]]:
    """Return the ids that each batch of a streaming query reads, until it has read all."""
    found: list[list[object]] = []

    def add(batch: DataFrame, number: int) -> None:
        found.append([number, sorted(row["id"] for row in batch.select("id").collect())])

    stream = spark.readStream.format("iceberg").options(**options).load(table)
    query = stream.writeStream.foreachBatch(add).option("checkpointLocation", checkpoint).start()
    query.processAllAvailable()
    query.stop()
    return found


def answer(content: object) -> None:
    print(json.dumps(content), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    main(sys.argv[1])
