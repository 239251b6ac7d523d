"""Kinds of jobs: those that are compared, each kind measured in a process of its own.

How fast Java runs a job depends on which others it has run: by hand, tumbling windows took 7.6 s in a process that
only saw such, and 9 to 10 s in one that saw sessions and sliding windows in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial, reduce
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple, TypeVar

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


def by_kind(setting: Setting, wanted: Sequence[Comparison], peers: Sequence[str]) -> Results:
    """Measure what is compared; of other engines only the named ones. At least one comparison is wanted."""
    kinds = (measured_of(kind, wanted, peers) for kind in KINDS)
    return reduce(Results.joined, in_processes(partial(_measured, setting, names) for names in kinds if names))


def measured_of(kind: str, wanted: Sequence[Comparison], peers: Sequence[str]) -> list[str]:
    """The jobs of a kind that are compared, and the peers they are compared with."""
    others = {peer.name for peer in PEERS} - {*peers}
    mine = (each for each in wanted if kind in each.job)
    return sorted({name for each in mine for name in (each.job, each.base)} - others)


def in_processes(calls: Iterable[Callable[[], _Made]]) -> Iterator[_Made]:
    """What each call gives, one after the other, each in a new process."""
    for call in calls:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            yield pool.submit(call).result()


def _measured(setting: Setting, names: Sequence[str]) -> Results:
    rows, rounds, heap, folder = setting
    spark = session(heap, folder / "spark")
    found = Results(rows, rounds, heap, results.today(), results.machine(spark))
    with PROGRESS.status("making the data, on first use"):
        benchmark = Benchmark(spark, found, spark_jobs.jobs(spark, rows, folder, {*names}), PROGRESS.print)
    for peer in (peer for peer in PEERS if peer.name in names):
        with PROGRESS.status(f"preparing {peer.name}, on first use"):
            benchmark.add(peer, partial(peer.prepared, spark, Stream(rows), Place(folder, heap)))
    benchmark.measure()
    spark.stop()
    return found
