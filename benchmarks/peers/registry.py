"""Which peers there are, how each is called, and what a reader must know to judge it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from backstream.spark.java import ASK_FOR_HUGE_PAGES, ASKED_FOR, huge_page_options
from benchmarks import data
from benchmarks.data import Stream
from benchmarks.memory import ResidentPeak
from benchmarks.peers.environment import CHECKOUT, PeerError, environment
from benchmarks.peers.structured_streaming import FILES_PER_BATCH
from benchmarks.session import THREADS

_HERE = Path(__file__).parent


class Place(NamedTuple):
    """Where and in how much memory a peer runs."""

    folder: Path
    heap: str


@dataclass(frozen=True, slots=True)
class Peer:
    """Another engine.

    `program` and `arguments` follow its Python on the command line; in arguments `{heap}`, `{half_mb}` (half of
    it), `{scratch}` and `{java}` (options that the Java of our Spark gets too) are filled in. `settings` is for
    readers. `requirements` None: the project's environment.
    """

    name: str
    engine: str
    reads: str
    settings: str
    program: tuple[str, ...]
    arguments: tuple[str, ...]
    requirements: str | None = None

    def prepared(self, spark: SparkSession, stream: Stream, place: Place) -> list[str]:
        """The command that runs it; its environment and input are made when they are not there yet.

        Raises:
            PeerError: when it has no environment.
        """
        python = Path(sys.executable)
        if self.requirements:
            python = environment(_HERE / self.requirements, place.folder / "environments")
        write = data.csv if self.reads == "CSV" else data.parquet
        source = write(spark, stream, place.folder)
        filled = {
            "heap": place.heap,
            "half_mb": half_in_mb(place.heap),
            "scratch": place.folder / "spark",
            "java": ASK_FOR_HUGE_PAGES if huge_page_options() == ASKED_FOR else "",
        }
        options = [each.format(**filled) for each in self.arguments]
        return [str(python), *self.program, "--input", str(source), *options]


def run(name: str, command: list[str]) -> Mapping[str, Any]:
    """What the peer says of one run, and `rss_mb`.

    Raises:
        PeerError: when it fails, with the end of what it said.
    """
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, cwd=CHECKOUT
    )
    try:
        with ResidentPeak(process.pid) as resident:
            told, complaints = process.communicate()
    finally:
        process.kill()  # has no effect on one that has ended
    if process.returncode:
        said = "\n".join(f"  {line}" for line in (told + complaints).strip().splitlines()[-5:])
        msg = f"{name} ended with status {process.returncode}\n{said}"
        raise PeerError(msg)
    facts: dict[str, Any] = json.loads(told.strip().splitlines()[-1])
    return facts | {"rss_mb": resident.peak_mb}


def half_in_mb(heap: str) -> int:
    """Half of a size such as `6g` or `900m`, in MiB."""
    found = re.fullmatch(r"(\d+)([gm])", heap)
    if found is None:
        msg = f"heap must be a whole number with g or m, such as 6g, got {heap!r}"
        raise ValueError(msg)
    return int(found[1]) * {"g": 1024, "m": 1}[found[2]] // 2


def _structured_streaming(store: str, said: str) -> Peer:
    return Peer(
        f"structured-streaming, {store}",
        "Spark Structured Streaming",
        "Parquet",
        f"local[{THREADS}], AvailableNow, {FILES_PER_BATCH} files a batch, watermark 1 min, {said} state store",
        ("-m", "benchmarks.peers.structured_streaming"),
        ("--store", store, "--heap", "{heap}", "--scratch", "{scratch}"),
    )


def _flink(mode: str) -> Peer:
    memory = ("--heap-mb={half_mb}", "--managed-mb={half_mb}")
    return Peer(
        f"flink, {mode}",
        "Apache Flink",
        "CSV",
        f"SQL, {mode}, parallelism {THREADS}, memory half heap and half managed, watermark 1 min, blackhole sink",
        (str(_HERE / "flink_sql.py"),),
        (f"--mode={mode}", f"--threads={THREADS}", *memory, "--java={java}"),
        "requirements-flink.txt",
    )


def _in_process(name: str, engine: str, file: str, settings: str) -> Peer:
    requirements = f"requirements-{name}.txt"
    threads = ("--threads", str(THREADS))
    return Peer(name, engine, "Parquet", settings, (str(_HERE / file),), threads, requirements)


PEERS = (
    _structured_streaming("default", "default"),
    _structured_streaming("rocksdb", "RocksDB"),
    _flink("streaming"),
    _flink("batch"),
    _in_process("duckdb", "DuckDB", "duckdb_sql.py", f"{THREADS} threads, into a table"),
    _in_process("polars", "Polars", "polars_frames.py", f"{THREADS} threads, streaming engine, into a frame"),
)
FAMILIES = tuple(dict.fromkeys(peer.name.partition(",")[0] for peer in PEERS))
"""What peers are chosen by on the command line."""


def of_families(families: set[str]) -> list[Peer]:
    """The peers of some families."""
    return [peer for peer in PEERS if peer.name.partition(",")[0] in families]
