"""Whole jobs, from the start of the process to its exit: backstream's command beside a script written by hand.

    python -m benchmarks.whole_jobs --rows 25000000 --rounds 3

Both get the same heap and cores, read the same Parquet files and write Parquet. They run in turn, and the results
are compared row by row. Printed are the median seconds of each, and the ratios.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import dataset

from backstream.core.folders import CATALOG_VARIABLE, HOME_VARIABLE
from backstream.spark.session import local
from benchmarks import data

HEAP = "6g"
DEFINITION = """\
name = "jobs"

[source]
path = "{path}"
event_time = "event_time"
arrival_time = "arrival_time"
partition = "source_partition"
sequence = "arrival_seq"
key = ["key"]

[window]
kind = "tumbling"
size = "{size}"

[watermark]
strategy = "bounded_out_of_orderness"
delay = "1m"
idle_timeout = "10m"

[lateness]
allowed = "5m"

[aggregates]
events = "count(*)"
total = "sum(value)"

[quality]
late_ratio = {{ warn = 1.0, fail = 1.0 }}
dropped_ratio = {{ warn = 1.0, fail = 1.0 }}
missing_ratio = {{ warn = 1.0, fail = 1.0 }}
"""
BY_HAND = """\
import sys
from pyspark.sql import SparkSession, functions as F

spark = (
    SparkSession.builder.master("local[*]")
    .config("spark.driver.memory", "{heap}")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
events = spark.read.parquet("{path}").where("event_time >= '2024-03-01' AND event_time < '2024-03-02'")
windows = events.groupBy("key", F.window("event_time", "{window}")).agg(
    F.count("*").alias("events"), F.sum("value").alias("total")
)
rows = windows.select("key", F.col("window.start").alias("window_start"), "events", "total")
rows.write.mode("overwrite").parquet("{out}")
"""
RANGE = ["--since", "2024-03-01", "--until", "2024-03-02"]
Sums = tuple[int, int, int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is 1 when results differ."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.whole_jobs", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rows", type=int, default=2_000_000, help="events (default 2,000,000)")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds (default 3)")
    parser.add_argument("--folder", type=Path, default=Path(".backstream/benchmarks"), help="for data")
    parser.add_argument("--window", choices=["1m", "1h"], default="1m", help="its size (default 1m)")
    options = parser.parse_args(arguments)
    folder = options.folder.resolve()
    stream = data.Stream(options.rows)
    spark = local("benchmark data")
    path = data.parquet(spark, stream, folder)
    spark.stop()
    seconds, sums = measure(path, folder / "jobs", options.window, options.rounds)
    by_hand = statistics.median(seconds["by hand"])
    print(f"{options.rows:,} events, windows of {options.window}, {HEAP} heap, {os.cpu_count()} cores")
    for name, runs in seconds.items():
        each = ", ".join(f"{run:.1f}" for run in runs)
        median = statistics.median(runs)
        print(f"{name:<12} {median:>7.1f} s ({each})  ratio {median / by_hand:.2f}  {sums[name][0]:,} rows")
    return 0 if len(set(sums.values())) == 1 else 1


def measure(path: Path, folder: Path, size: str, rounds: int) -> tuple[dict[str, list[float]], dict[str, Sums]]:
    """Run each job so many times, in turn; return its seconds, and rows and sums of what it wrote."""
    jobs: Mapping[str, Callable[[], Sums]] = {
        "by hand": lambda: _by_hand(path, folder / "by-hand", size),
        "recompute": lambda: _backstream(path, folder / "recompute", size, "recompute"),
        "replay": lambda: _backstream(path, folder / "replay", size, "replay"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    sums: dict[str, Sums] = {}
    for _ in range(rounds):
        for name, job in jobs.items():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            begin = time.monotonic()
            sums[name] = job()
            seconds[name].append(_ended_at(folder) - begin)
            print(f"  {name}: {seconds[name][-1]:.1f} s", file=sys.stderr, flush=True)
    return seconds, sums


def _ended_at(folder: Path) -> float:
    """When the job's process ended; what is compared after it does not count."""
    return float((folder / "ended").read_text())


def _run(command: Sequence[str], folder: Path, variables: Mapping[str, str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != CATALOG_VARIABLE} | dict(variables)
    with (folder.parent / "job.log").open("w") as log:
        subprocess.run(command, env=environment, stdout=log, stderr=log, check=True)
    (folder.parent / "ended").write_text(str(time.monotonic()))


def _by_hand(path: Path, folder: Path, size: str) -> Sums:
    folder.mkdir()
    script = folder / "job.py"
    window = {"1m": "1 minute", "1h": "1 hour"}[size]
    script.write_text(BY_HAND.format(heap=HEAP, path=path, window=window, out=folder / "out"))
    _run([sys.executable, str(script)], folder, {})
    return _sums(sorted((folder / "out").glob("*.parquet")))


def _backstream(path: Path, folder: Path, size: str, mode: str) -> Sums:
    folder.mkdir()
    definition = folder / "jobs.toml"
    definition.write_text(DEFINITION.format(path=path, size=size))
    variables = {HOME_VARIABLE: str(folder / "home"), "BACKSTREAM_DRIVER_MEMORY": HEAP}
    command = [sys.executable, "-m", "backstream.cli", "run", str(definition), *RANGE, "--mode", mode]
    _run(command, folder, variables)
    return _sums(sorted((folder / "home").glob("warehouse/backstream/jobs/data/**/*.parquet")))


def _sums(files: Sequence[Path]) -> Sums:
    """Rows, events and a sum that tells which window and key has which total."""
    rows = dataset.dataset([str(file) for file in files], format="parquet").to_table(
        columns=["key", "window_start", "events", "total"]
    )
    minutes = pc.divide(rows["window_start"].cast(pa.timestamp("s", "UTC"), safe=False).cast("int64"), 60)
    mixed = pc.add(pc.multiply(pc.cast(rows["key"], "int64"), 31), minutes)
    told = pc.sum(pc.multiply(pc.bit_wise_and(mixed, 1023), rows["total"])).as_py()
    return rows.num_rows, pc.sum(rows["events"]).as_py(), told


if __name__ == "__main__":
    sys.exit(main())
