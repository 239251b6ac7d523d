"""What Spark fails of, said without Java's traces."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from backstream.core.errors import HeapError
from backstream.core.plan import Plan
from backstream.spark.heap import OUT_OF_MEMORY_STATUS, SETTING

_ERROR = "java.lang.OutOfMemoryError"
_STOPPED = (
    "SparkContext was shut down",
    "stopped SparkContext",
    'SparkContext.dagScheduler()" is null',  # that of a context which stops just now
    "Java side is empty",
    "Java server",
)
"""What is said to whoever waits for a Java that ends."""
_END_S = 15.0


def silence(spark: SparkSession) -> None:
    """Have Java print no traces: whoever waits in this process is raised what fails."""
    spark.sparkContext.setLogLevel("OFF")


@contextmanager
def heap_errors_in_words(spark: SparkSession, plan: Plan, by: str = SETTING) -> Iterator[None]:
    """A Java that has no memory left is said in words, and how it gets more; `by` is what sets the heap.

    Raises:
        HeapError: naming the heap.
    """
    size = spark.sparkContext.getConf().get(SETTING, "1g")
    try:
        yield
    except Exception as error:
        if not _is_of_memory(error):
            raise
        msg = (
            f"could not run the chunks of {plan.run_id}: Spark's Java has no memory left\n"
            f"  its heap was {size}\n\n"
            f"hint: give it more with {by}, and run the same again: what was finished is kept"
        )
        raise HeapError(msg) from error


def _is_of_memory(error: Exception) -> bool:
    """Whether Java said so, or has ended for it: it may be gone before it could say anything."""
    if _ERROR in str(error):
        return True
    is_told = isinstance(error, (Py4JNetworkError, ConnectionError))
    if not is_told and not any(each in str(error) for each in _STOPPED):
        return False
    gateway = SparkContext._gateway  # noqa: SLF001 - knows the process, and nobody else does
    java: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    try:
        return java is not None and java.wait(_END_S) == OUT_OF_MEMORY_STATUS
    except subprocess.TimeoutExpired:
        return False
