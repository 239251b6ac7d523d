"""Kinds of compared jobs. The benchmark measures each kind in a separate process.

The speed of a job in Java depends on the other jobs of the process. For example, hand-written tumbling windows
took 7.6 s in a process without other windows. With sessions and sliding windows in between, they took 9 to 10 s.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial, reduce
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import NamedTuple, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks import results, spark_jobs
from benchmarks.comparisons import Comparison
from benchmarks.data import Stream
from benchmarks.measure import Benchmark
from benchmarks.peers.registry import PEERS, Place
from benchmarks.results import Results
from benchmarks.session import session

KINDS = ("tumbling", "sliding", "session", "30 days", "64 partitions")
"""Kinds of jobs. Each kind is a part of the names of its jobs."""
PROGRESS = Console(stderr=True, highlight=False, soft_wrap=True)

_Value = TypeVar("_Value")


class Setting(NamedTuple):
    """The settings of all kinds: events, measured rounds, the heap of each JVM, and the folder of the data."""

    rows: int
    rounds: int
    heap: str
    folder: Path
    has_scripts: bool = True
    """A flag: whole jobs run beside the hand-written scripts."""


def by_kind(setting: Setting, comparisons: Sequence[Comparison], peers: Sequence[str]) -> Results:
    """Measure the jobs of at least one comparison. Of the other engines, measure only the named ones."""
    kinds = [names for kind in KINDS if (names := measured_of(kind, comparisons, peers))]
    # A separate process creates the input, because this is one more Java job for a measuring process.
    list(in_processes([partial(_prepare, setting, [name for names in kinds for name in names])]))
    return reduce(Results.joined, in_processes(partial(_measure, setting, names) for names in kinds))


def measured_of(kind: str, comparisons: Sequence[Comparison], peers: Sequence[str]) -> list[str]:
    """Return the names of the compared jobs of a kind, and of the peers in these comparisons."""
    other_peers = {peer.name for peer in PEERS} - {*peers}
    selection = (comparison for comparison in comparisons if kind in comparison.job)
    return sorted({name for comparison in selection for name in (comparison.job, comparison.base)} - other_peers)


def in_processes(calls: Iterable[Callable[[], _Value]]) -> Iterator[_Value]:
    """Yield the result of each call in order. Each call runs in a new process, which ends with this process.

    Raises:
        RuntimeError: if Spark failed. The message has the error of Spark.
    """
    for call in calls:
        with ProcessPoolExecutor(1, get_context("spawn"), _end_with_parent) as pool:
            yield pool.submit(_call, call).result()


def _end_with_parent() -> None:
    """End this process with its parent. Otherwise, after a kill of its parent, it would continue with its heap."""

    def wait() -> None:
        if (parent := parent_process()) is not None:
            parent.join()
            os._exit(1)

    Thread(target=wait, daemon=True).start()


def _call(call: Callable[[], _Value]) -> _Value:
    try:
        return call()
    except (PySparkException, Py4JError) as error:
        # Python cannot send these errors to another process.
        raise RuntimeError(str(error)) from None


def _prepare(setting: Setting, names: Sequence[str]) -> None:
    """Create the data and the input of peers if they are absent."""
    spark = session(setting.heap, setting.folder / "spark")
    _benchmark(spark, setting, names)
    spark.stop()


def _measure(setting: Setting, names: Sequence[str]) -> Results:
    spark = session(setting.heap, setting.folder / "spark")
    benchmark = _benchmark(spark, setting, names)
    benchmark.measure()
    spark.stop()
    return benchmark.results


def _benchmark(spark: SparkSession, setting: Setting, names: Sequence[str]) -> Benchmark:
    rows, rounds, heap, folder, _ = setting
    result = Results(rows, rounds, heap, results.today(), results.machine(spark))
    with PROGRESS.status("making the data, on first use"):
        benchmark = Benchmark(spark, result, spark_jobs.jobs(spark, rows, folder, {*names}), PROGRESS.print)
    for peer in (peer for peer in PEERS if peer.name in names):
        with PROGRESS.status(f"preparing {peer.name}, on first use"):
            benchmark.add(peer, partial(peer.prepared, spark, Stream(rows), Place(folder, heap)))
    return benchmark
