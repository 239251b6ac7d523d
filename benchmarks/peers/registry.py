"""The list of peers, with the command and the settings of each. Readers need the settings to judge a result."""

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
    """The folder and the heap of a peer."""

    folder: Path
    heap: str


@dataclass(frozen=True, slots=True)
class Peer:
    """Another engine.

    `program` and `arguments` follow the path of Python on the command line. `arguments` can have four
    placeholders: `{heap}`, `{half_mb}` (half of the heap), `{scratch}` and `{java}`. The Java of backstream also
    gets the `{java}` options. `settings` is for readers. If `requirements` is None, the peer uses the
    environment of the project.
    """

    name: str
    engine: str
    reads: str
    settings: str
    program: tuple[str, ...]
    arguments: tuple[str, ...]
    requirements: str | None = None

    def prepared(self, spark: SparkSession, stream: Stream, place: Place) -> list[str]:
        """Return the command that runs the peer. Create its environment and its input if they are absent.

        Raises:
            PeerError: if the environment cannot be created.
        """
        python = Path(sys.executable)
        if self.requirements:
            python = environment(_HERE / self.requirements, place.folder / "environments")
        write = data.csv if self.reads == "CSV" else data.parquet
        source = write(spark, stream, place.folder)
        values = {
            "heap": place.heap,
            "half_mb": half_in_mb(place.heap),
            "scratch": place.folder / "spark",
            "java": ASK_FOR_HUGE_PAGES if huge_page_options() == ASKED_FOR else "",
        }
        options = [argument.format(**values) for argument in self.arguments]
        return [str(python), *self.program, "--input", str(source), *options]


def run(name: str, command: list[str]) -> Mapping[str, Any]:
    """Run the peer once. Return its figures and `rss_mb`.

    Raises:
        PeerError: if the peer fails. The message has the end of its output.
    """
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, cwd=CHECKOUT
    )
    try:
        with ResidentPeak(process.pid) as resident:
            output, errors = process.communicate()
    finally:
        process.kill()  # has no effect on a process that has ended
    if process.returncode:
        details = "\n".join(f"  {line}" for line in (output + errors).strip().splitlines()[-5:])
        msg = f"{name} ended with status {process.returncode}\n{details}"
        raise PeerError(msg)
    facts: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return facts | {"rss_mb": resident.peak_mb}


def half_in_mb(heap: str) -> int:
    """Return half of a size such as `6g` or `900m`, in MiB."""
    size = re.fullmatch(r"(\d+)([gm])", heap)
    if size is None:
        msg = f"heap must be a whole number with g or m, such as 6g, got {heap!r}"
        raise ValueError(msg)
    return int(size[1]) * {"g": 1024, "m": 1}[size[2]] // 2


def _structured_streaming(store: str, label: str) -> Peer:
    return Peer(
        f"structured-streaming, {store}",
        "Spark Structured Streaming",
        "Parquet",
        f"local[{THREADS}], AvailableNow, {FILES_PER_BATCH} files a batch, watermark 1 min, {label} state store",
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


def to_parquet(name: str, threads: int) -> str:
    """Return the name of a peer that writes its rows to a Parquet file, as a task of the native engine does."""
    return f"{name}, tumbling to Parquet, {threads} threads"


def _in_process(name: str, engine: str, file: str, settings: str) -> Peer:
    threads = ("--threads", str(THREADS))
    return Peer(name, engine, "Parquet", settings, (str(_HERE / file),), threads, f"requirements-{name}.txt")


def _to_parquet(name: str, engine: str, file: str, threads: int, *, is_installed: bool = False) -> Peer:
    out = ("--out", f"{{scratch}}-{name}-{threads}.parquet")
    return Peer(
        to_parquet(name, threads),
        engine,
        "Parquet",
        f"{threads} threads, to one Parquet file",
        (str(_HERE / file),),
        ("--threads", str(threads), *out),
        None if is_installed else f"requirements-{name}.txt",
    )


PEERS = (
    _structured_streaming("default", "default"),
    _structured_streaming("rocksdb", "RocksDB"),
    _flink("streaming"),
    _flink("batch"),
    _in_process("duckdb", "DuckDB", "duckdb_sql.py", f"{THREADS} threads, into a table"),
    _in_process("polars", "Polars", "polars_frames.py", f"{THREADS} threads, streaming engine, into a frame"),
    _to_parquet("duckdb", "DuckDB", "duckdb_sql.py", THREADS),
    _to_parquet("duckdb", "DuckDB", "duckdb_sql.py", 1),
    _to_parquet("polars", "Polars", "polars_frames.py", 1),
    _to_parquet("arrow", "Arrow", "arrow_tables.py", 1, is_installed=True),
)
FAMILIES = tuple(dict.fromkeys(peer.name.partition(",")[0] for peer in PEERS))
"""The names by which you choose peers on the command line."""


def of_families(families: set[str]) -> list[Peer]:
    """Return the peers of some families."""
    return [peer for peer in PEERS if peer.name.partition(",")[0] in families]
