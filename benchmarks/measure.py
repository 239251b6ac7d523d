"""Rounds: every job and peer is measured once in each, in an order that changes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from pyspark.sql import SparkSession

from benchmarks.jobs import Job, Sums
from benchmarks.memory import ResidentPeak, SparkMeter
from benchmarks.peers.environment import PeerError
from benchmarks.peers.registry import Peer, run
from benchmarks.results import Results, Runs
from benchmarks.session import THREADS

Say = Callable[[str], None]
_PEER_MEASURES = ("seconds", "rss_mb", "heap_mb", "spilled_mb", "dropped", "batches")


class Benchmark:
    """Measures into `results`, and says how far it is."""

    def __init__(self, spark: SparkSession, results: Results, jobs: Sequence[Job], say: Say) -> None:
        self.results, self._say = results, say
        self._jobs = {job.name: job for job in jobs}
        self._meter = SparkMeter(spark)
        self._peers: dict[str, tuple[Peer, list[str]]] = {}
        self._sums: dict[str, Sums] = {}

    def add(self, peer: Peer, prepare: Callable[[], list[str]]) -> None:
        """Let a peer take part, unless it cannot be prepared here."""
        try:
            self._peers[peer.name] = (peer, prepare())
        except PeerError as error:
            self._gave_up(peer.name, error)

    def measure(self) -> None:
        """Check every job once, unmeasured; then the rounds."""
        for name, job in self._jobs.items():
            self._sums[name] = job.checked()
            job.run()  # checked, a job is another one to Java than it is in the rounds
            self._say(f"warm-up: {name}")
        before = ""
        for number in range(1, self.results.rounds + 1):
            for name in in_turn([*self._jobs], [*self._peers], number):
                if before and before not in self._jobs and name in self._jobs:
                    self._jobs[name].run()  # the session was idle for minutes: whoever comes first is slow
                self._once(name, f"round {number} of {self.results.rounds}")
                before = name
        self.results.disagreements.extend(disagreements(self._sums))
        in_order = {name: self.results.runs[name] for name in (*self._jobs, *self._peers)}
        self.results.runs.clear()
        self.results.runs.update(in_order)

    def _once(self, name: str, where: str) -> None:
        measured = self._job(self._jobs[name]) if name in self._jobs else self._peer(name)
        if measured is not None:
            self._say(f"{where}: {name}, {measured['seconds']:.1f} s")

    def _job(self, job: Job) -> dict[str, float]:
        self._meter.begin()
        with ResidentPeak() as resident:
            begin = time.perf_counter()
            job.run()
            seconds = time.perf_counter() - begin
        measured = {"seconds": seconds, "rss_mb": resident.peak_mb, **asdict(self._meter.read())}
        engine = "Spark SQL" if job.name.endswith("by hand") else "backstream on Spark"
        settings = f"local[{THREADS}], heap {self.results.heap}, noop sink; 30 days: staged for the lake"
        known = Runs(f"{engine} {self.results.machine['spark']}", "Parquet", settings)
        self.results.runs.setdefault(job.name, known).rounds.append(measured)
        return measured

    def _peer(self, name: str) -> dict[str, float] | None:
        peer, command = self._peers[name]
        try:
            told = run(name, command)
        except PeerError as error:
            del self._peers[name]
            self.results.runs.pop(name, None)
            self._gave_up(name, error)
            return None
        if "windows" in told:
            self._sums[name] = Sums(told["windows"], told["events"], told["total"])
            told = {**told, "dropped": self.results.rows - told["events"]}
        measured = {measure: float(told[measure]) for measure in _PEER_MEASURES if measure in told}
        known = Runs(f"{peer.engine} {told['version']}", peer.reads, peer.settings)
        self.results.runs.setdefault(name, known).rounds.append(measured)
        return measured

    def _gave_up(self, name: str, error: PeerError) -> None:
        self.results.failed[name] = str(error)
        self._say(f"{name} is left out: {error}")


def in_turn(jobs: Sequence[str], peers: Sequence[str], number: int) -> list[str]:
    """The order of a round: jobs and behind them peers, both shuffled by its number.

    A shared machine is faster in one minute than in the next, so jobs that are compared follow one another.
    """
    order = random.Random(number)  # noqa: S311 - an order, not a secret
    return [*order.sample(jobs, len(jobs)), *order.sample(peers, len(peers))]


_SAME_EVENTS = (
    ("tumbling, by hand", "tumbling, recompute", "tumbling, replay", "flink, batch", "duckdb", "polars"),
    ("sliding, by hand", "sliding, recompute", "sliding, replay"),
    ("30 days in 30 chunks", "30 days uncut"),
)


def disagreements(sums: Mapping[str, Sums]) -> list[str]:
    """Jobs whose results do not add up to the same as those of the first that computes the same.

    Sessions only have to hold the same events: Spark's own end before an event exactly one gap later, and a
    replay has a row for each session that was extended after it had fired.
    """
    found = [
        line for names in _SAME_EVENTS for line in _unequal({name: sums[name] for name in names if name in sums})
    ]
    sessions = ("session, by hand", "session, recompute", "session, replay")
    return found + _unequal({name: sums[name]._replace(windows=0) for name in sessions if name in sums})


def _unequal(sums: Mapping[str, Sums]) -> list[str]:
    if not sums:
        return []
    first, *others = sums
    return [f"{name}: {sums[name]}, {first}: {sums[first]}" for name in others if sums[name] != sums[first]]
