"""The Spark session that is measured: two threads on any machine, and a heap that is there from the start."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from backstream.spark.session import local_session

THREADS = 2


def session(heap: str, folder: Path) -> SparkSession:
    """The session of a benchmark: few threads, and a heap that is there from the start."""
    folder.mkdir(parents=True, exist_ok=True)
    return local_session("backstream benchmark", settings(heap, folder))


def settings(heap: str, folder: Path) -> dict[str, str]:
    """What is set besides the product's own settings."""
    return {
        "spark.master": f"local[{THREADS}]",
        "spark.driver.memory": heap,
        "spark.driver.extraJavaOptions": f"-Xms{heap} -XX:+AlwaysPreTouch",
        "spark.sql.shuffle.partitions": str(2 * THREADS),
        "spark.local.dir": str(folder),
        "spark.ui.retainedStages": "10000",
    }
