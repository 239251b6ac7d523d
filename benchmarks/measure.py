"""Rounds of measurements. Each round measures every job and peer once, in a different order."""

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
    """A benchmark that adds measurements to `results`, and reports its progress."""

    def __init__(self, spark: SparkSession, results: Results, jobs: Sequence[Job], say: Say) -> None:
        self.results, self._say = results, say
        self._jobs = {job.name: job for job in jobs}
        self._meter = SparkMeter(spark)
        self._peers: dict[str, tuple[Peer, list[str]]] = {}
        self._sums: dict[str, Sums] = {}

    def add(self, peer: Peer, prepare: Callable[[], list[str]]) -> None:
        """Add a peer to the rounds, unless it cannot be prepared here."""
        try:
            self._peers[peer.name] = (peer, prepare())
        except PeerError as error:
            self._leave_out(peer.name, error)

    def measure(self) -> None:
        """Check every job once without a measurement. Then run the rounds."""
        for name, job in self._jobs.items():
            self._sums[name] = job.checked()
            job.run()  # for Java, a checked job differs from the job of the rounds
            self._say(f"warm-up: {name}")
        previous = ""
        for number in range(1, self.results.rounds + 1):
            for name in in_turn([*self._jobs], [*self._peers], number):
                if previous and previous not in self._jobs and name in self._jobs:
                    self._jobs[name].run()  # after idle minutes of the session, the first job is slow
                self._measure_once(name, f"round {number} of {self.results.rounds}")
                previous = name
        self.results.disagreements.extend(disagreements(self._sums))
        runs_by_name = {name: self.results.runs[name] for name in (*self._jobs, *self._peers)}
        self.results.runs.clear()
        self.results.runs.update(runs_by_name)

    def _measure_once(self, name: str, where: str) -> None:
        values = self._measure_job(self._jobs[name]) if name in self._jobs else self._measure_peer(name)
        if values is not None:
            self._say(f"{where}: {name}, {values['seconds']:.1f} s")

    def _measure_job(self, job: Job) -> dict[str, float]:
        self._meter.begin()
        with ResidentPeak() as resident:
            begin = time.perf_counter()
            job.run()
            seconds = time.perf_counter() - begin
        values = {"seconds": seconds, "rss_mb": resident.peak_mb, **asdict(self._meter.read())}
        engine = "Spark SQL" if job.name.endswith("by hand") else "backstream on Spark"
        settings = f"local[{THREADS}], heap {self.results.heap}, noop sink; 30 days: staged for the lake"
        runs = Runs(f"{engine} {self.results.machine['spark']}", "Parquet", settings)
        self.results.runs.setdefault(job.name, runs).rounds.append(values)
        return values

    def _measure_peer(self, name: str) -> dict[str, float] | None:
        peer, command = self._peers[name]
        try:
            facts = run(name, command)
        except PeerError as error:
            del self._peers[name]
            self.results.runs.pop(name, None)
            self._leave_out(name, error)
            return None
        if "windows" in facts:
            self._sums[name] = Sums(facts["windows"], facts["events"], facts["total"])
            facts = {**facts, "dropped": self.results.rows - facts["events"]}
        values = {measure: float(facts[measure]) for measure in _PEER_MEASURES if measure in facts}
        runs = Runs(f"{peer.engine} {facts['version']}", peer.reads, peer.settings)
        self.results.runs.setdefault(name, runs).rounds.append(values)
        return values

    def _leave_out(self, name: str, error: PeerError) -> None:
        self.results.failed[name] = str(error)
        self._say(f"{name} is left out: {error}")


def in_turn(jobs: Sequence[str], peers: Sequence[str], number: int) -> list[str]:
    """Return the order of a round: first the jobs, then the peers, both shuffled by the number of the round.

    The speed of a shared machine differs from minute to minute, so compared jobs run one after another.
    """
    order = random.Random(number)  # noqa: S311 - an order, not a secret
    return [*order.sample(jobs, len(jobs)), *order.sample(peers, len(peers))]


_SAME_EVENTS = (
    ("tumbling, by hand", "tumbling, recompute", "tumbling, replay", "flink, batch", "duckdb", "polars"),
    ("sliding, by hand", "sliding, recompute", "sliding, replay"),
    ("30 days in 30 chunks", "30 days uncut"),
)


def disagreements(sums: Mapping[str, Sums]) -> list[str]:
    """Return a line for each job whose sums differ from those of the first job with the same computation.

    For sessions, only the events must be equal. Spark's own sessions end before an event exactly one gap later. A
    replay has one more row for each session that grows after it fires.
    """
    lines = [
        line for names in _SAME_EVENTS for line in _unequal({name: sums[name] for name in names if name in sums})
    ]
    sessions = ("session, by hand", "session, recompute", "session, replay")
    return lines + _unequal({name: sums[name]._replace(windows=0) for name in sessions if name in sums})


def _unequal(sums: Mapping[str, Sums]) -> list[str]:
    if not sums:
        return []
    first, *rest = sums
    return [f"{name}: {sums[name]}, {first}: {sums[first]}" for name in rest if sums[name] != sums[first]]
