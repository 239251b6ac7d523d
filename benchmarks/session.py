"""The Spark session of the benchmark: two threads on any machine, and a heap of full size from the start."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from backstream.spark.session import local_session

THREADS = 2


def session(heap: str, folder: Path) -> SparkSession:
    """Return the session of a benchmark, with few threads and a heap of full size from the start."""
    folder.mkdir(parents=True, exist_ok=True)
    return local_session("backstream benchmark", settings(heap, folder))


def settings(heap: str, folder: Path) -> dict[str, str]:
    """Return the settings that the benchmark adds to those of the product."""
    return {
        "spark.master": f"local[{THREADS}]",
        "spark.driver.memory": heap,
        "spark.driver.extraJavaOptions": f"-Xms{heap} -XX:+AlwaysPreTouch",
        "spark.sql.shuffle.partitions": str(2 * THREADS),
        "spark.local.dir": str(folder),
        "spark.ui.retainedStages": "10000",
    }
