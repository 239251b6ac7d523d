"""How many native tasks run at the same time, and how much memory each may take before it spills."""

from __future__ import annotations

from pyspark.sql import SparkSession

from backstream.spark.heap import heap_mb, machine_bytes

_LEAST_MB, _MOST_MB = 256, 16_384


def memory_mb(spark: SparkSession) -> int:
    """Return the MB of a task: half of what Java leaves of a machine, or what an executor has beside Java."""
    context = spark.sparkContext
    if (context.master or "").startswith("local"):
        free_mb = machine_bytes() // 2**20 - heap_mb(spark.conf.get("spark.driver.memory", "1g") or "1g")
        return min(max(int(free_mb) // (2 * context.defaultParallelism), _LEAST_MB), _MOST_MB)
    settings = ("spark.executor.pyspark.memory", "spark.executor.memoryOverhead")
    beside = next((said for name in settings if (said := spark.conf.get(name, None))), None)
    cores = int(spark.conf.get("spark.executor.cores", None) or 1)
    return max(int(heap_mb(beside)) // cores, _LEAST_MB) if beside else _LEAST_MB
