"""Copy raw files to the shared disk in Spark tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession

from backstream.source.copies import FetchResult, FetchTask, fetch_file
from backstream.spark.session import ship_package

_AT_ONCE = 4
"""Number of files that a task copies at the same time, since an object store answers slowly."""
_TASKS_PER_SLOT = 4


def fetch_files(spark: SparkSession, tasks: Sequence[FetchTask]) -> list[FetchResult]:
    """Copy raw files, and return the result of each. Runs a job."""
    if not tasks:
        return []
    ship_package(spark.sparkContext)
    by_size = sorted(tasks, key=lambda task: task.file.size_bytes, reverse=True)
    slices = min(len(tasks), spark.sparkContext.defaultParallelism * _TASKS_PER_SLOT)
    dealt = [task for start in range(slices) for task in by_size[start::slices]]
    return spark.sparkContext.parallelize(dealt, slices).mapPartitions(_fetch_all).collect()


def _fetch_all(tasks: Iterable[FetchTask]) -> Iterator[FetchResult]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(fetch_file, tasks)
