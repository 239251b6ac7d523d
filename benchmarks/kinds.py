"""Kinds of jobs: those that are compared, each kind measured in a process of its own.

How fast Java runs a job depends on which others it has run: by hand, tumbling windows took 7.6 s in a process that
only saw such, and 9 to 10 s in one that saw sessions and sliding windows in between.
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
"""By a part of the names of their jobs."""
PROGRESS = Console(stderr=True, highlight=False, soft_wrap=True)

_Made = TypeVar("_Made")


class Setting(NamedTuple):
    """What is the same for all kinds: events, measured rounds, heap of each JVM, and where data lies."""

    rows: int
    rounds: int
    heap: str
    folder: Path
    has_scripts: bool = True
    """Whether whole jobs run beside the scripts by hand."""


def by_kind(setting: Setting, wanted: Sequence[Comparison], peers: Sequence[str]) -> Results:
    """Measure what is compared; of other engines only the named ones. At least one comparison is wanted."""
    kinds = [names for kind in KINDS if (names := measured_of(kind, wanted, peers))]
    # What is measured has not made its own input before: that would be one more job that Java has run.
    list(in_processes([partial(_prepared, setting, [name for names in kinds for name in names])]))
    return reduce(Results.joined, in_processes(partial(_measured, setting, names) for names in kinds))


def measured_of(kind: str, wanted: Sequence[Comparison], peers: Sequence[str]) -> list[str]:
    """The jobs of a kind that are compared, and the peers they are compared with."""
    others = {peer.name for peer in PEERS} - {*peers}
    mine = (each for each in wanted if kind in each.job)
    return sorted({name for each in mine for name in (each.job, each.base)} - others)


def in_processes(calls: Iterable[Callable[[], _Made]]) -> Iterator[_Made]:
    """What each call gives, one after the other, each in a new process, which ends when this one does.

    Raises:
        RuntimeError: what Spark said, if it failed.
    """
    for call in calls:
        with ProcessPoolExecutor(1, get_context("spawn"), _end_with_parent) as pool:
            yield pool.submit(_called, call).result()


def _end_with_parent() -> None:
    """Else a process whose parent was killed would measure on, and keep its heap."""

    def wait() -> None:
        if (parent := parent_process()) is not None:
            parent.join()
            os._exit(1)

    Thread(target=wait, daemon=True).start()


def _called(call: Callable[[], _Made]) -> _Made:
    try:
        return call()
    except (PySparkException, Py4JError) as error:
        # These cannot be sent to another process.
        raise RuntimeError(str(error)) from None


def _prepared(setting: Setting, names: Sequence[str]) -> None:
    """Make the data and what peers need, where it is not there yet."""
    spark = session(setting.heap, setting.folder / "spark")
    _benchmark(spark, setting, names)
    spark.stop()


def _measured(setting: Setting, names: Sequence[str]) -> Results:
    spark = session(setting.heap, setting.folder / "spark")
    benchmark = _benchmark(spark, setting, names)
    benchmark.measure()
    spark.stop()
    return benchmark.results


def _benchmark(spark: SparkSession, setting: Setting, names: Sequence[str]) -> Benchmark:
    rows, rounds, heap, folder, _ = setting
    found = Results(rows, rounds, heap, results.today(), results.machine(spark))
    with PROGRESS.status("making the data, on first use"):
        benchmark = Benchmark(spark, found, spark_jobs.jobs(spark, rows, folder, {*names}), PROGRESS.print)
    for peer in (peer for peer in PEERS if peer.name in names):
        with PROGRESS.status(f"preparing {peer.name}, on first use"):
            benchmark.add(peer, partial(peer.prepared, spark, Stream(rows), Place(folder, heap)))
    return benchmark
