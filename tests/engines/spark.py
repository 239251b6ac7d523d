"""Run SQL in one Spark with Iceberg: a line of JSON per statement on standard input, a line per answer.

This program runs in the environment of `parts.py`, which has another version of Spark.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession


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
            rows = spark.sql(request["sql"]).toArrow() if request["sql"] else None
        except Exception as error:  # noqa: BLE001 - the test decides about each
            answer({"error": str(error)})
            continue
        answer({"rows": json.loads(json.dumps(rows.to_pylist(), default=str)) if rows else []})


def answer(content: object) -> None:
    print(json.dumps(content), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    main(sys.argv[1])
